"""The runtime as it was when the job began: a ConfigMap `NAME-runtime-snapshot` with YAML under the key `runtime`.

The format is Trainer 2.3's, so that either controller can go on with a job that the other began. Editing or deleting
a runtime does not reach jobs that have one. `managedFields` are left out: they say who wrote the runtime, are half of
the text, and mean nothing to a job.

Reading takes milliseconds; equal texts are parsed once (most jobs share their runtime).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainmaster.api.formats import yaml_documents
from trainmaster.api.meta import Object
from trainmaster.api.training import yaml_text
from trainmaster.api.training.devices import canonical_resources
from trainmaster.api.training.steps import get_runtime_spec, list_containers, list_jobs

GROUP = "trainer.kubeflow.org"
DATA_KEY = "runtime"
_KEPT = 64
_SMALL = 128 * 1024
"""Characters of a text that is remembered; a tenant's may have a million."""
_DEPTH = 200
_UID = re.compile(r"^metadata:\n(?:  .*\n)*?  uid: ([0-9a-f-]+)$", re.MULTILINE)
_parsed: dict[str, Object] = {}
"""The last texts and what they mean. Values are shared: read-only."""
_taken: dict[str, tuple[Mapping[str, Any], Object, str]] = {}
"""By name, the last runtime seen, and its snapshot; good while the runtime is still the same."""


def get_name(trainjob: Mapping[str, Any]) -> str:
    return f"{trainjob['metadata']['name']}-runtime-snapshot"


def take(runtime: Mapping[str, Any], kind: str) -> tuple[Object, str]:
    """(what the job runs from, its text)."""
    name = runtime["metadata"]["name"]
    known = _taken.get(name)
    if known is not None and known[0] == runtime and known[1]["kind"] == kind:
        return known[1:]
    content: Object = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {key: value for key, value in runtime["metadata"].items() if key != "managedFields"},
        "spec": _complete(get_runtime_spec(runtime)),
    }
    text = yaml_text.render(content)
    if len(text) <= _SMALL:
        _remember(_parsed, text, content)
        _remember(_taken, name, (runtime, content, text))
    return content, text


def _complete(spec: Mapping[str, Any]) -> Object:
    """With the empty objects that a typed client writes where nothing was said."""
    template = spec.get("template") or {}
    jobset = dict(template.get("spec") or {})
    if list_jobs(jobset):
        jobset["replicatedJobs"] = [_complete_job(job) for job in list_jobs(jobset)]
    policies = jobset.get("volumeClaimPolicies")
    if policies:
        jobset["volumeClaimPolicies"] = [
            {**policy, "templates": [{"status": {}, **claim} for claim in policy.get("templates") or ()]}
            for policy in policies
        ]
    return {**spec, "template": {"metadata": {}, **template, "spec": jobset}}


def _complete_job(job: Object) -> Object:
    template = job.get("template") or {}
    job_spec = template.get("spec") or {}
    pod_template = job_spec.get("template") or {}
    pod = dict(pod_template.get("spec") or {})
    for group in ("containers", "initContainers"):
        if pod.get(group):
            pod[group] = [
                {**container, "resources": canonical_resources(container.get("resources") or {})}
                for container in list_containers(job, group)
            ]
    job_spec = {**job_spec, "template": {"metadata": {}, **pod_template, "spec": pod}}
    return {**job, "template": {"metadata": {}, **template, "spec": job_spec}}


def read(text: str) -> Object:
    """The runtime in a snapshot. ValueError when it is none."""
    known = _parsed.get(text)
    if known is not None:
        return known
    # Whoever may write ConfigMaps may have written this one.
    value = yaml_documents.parse(text.encode(errors="replace"), _DEPTH)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if len(text) <= _SMALL:
        _remember(_parsed, text, value)
    return value


def find_uid(text: str) -> str | None:
    """Of the runtime in a snapshot; None where it is not written as Go programs and we write it.

    Without parsing: after each start this is asked for every finished job, and their texts differ.
    """
    match = _UID.search(text)
    return match[1] if match else None


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    if len(memory) >= _KEPT:
        memory.pop(next(iter(memory)), None)
    memory[key] = value
