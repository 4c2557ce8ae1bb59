"""A copy of the runtime from the start of a job: a ConfigMap `NAME-runtime-snapshot` with YAML in the key `runtime`.

The format is Trainer 2.3's, so that either controller can continue a job of the other. Editing or deleting a runtime
does not affect jobs that have a snapshot. `managedFields` are left out: they are half of the text and irrelevant here.

Reading takes milliseconds; equal texts are parsed once (most jobs share their runtime).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.api.training import yaml_text
from trainmaster.api.training.devices import canonical_resources
from trainmaster.api.training.steps import get_runtime_spec, list_containers, list_jobs

GROUP = "trainer.kubeflow.org"
DATA_KEY = "runtime"
_KEPT = 64
_SMALL = 128 * 1024
"""Maximum length of a cached text; those of tenants may have a million characters."""
_DEPTH = 200
_UID = re.compile(r"^metadata:\n(?:  .*\n)*?  uid: ([0-9a-f-]+)$", re.MULTILINE)
_parsed: dict[str, Object] = {}
"""Cache of the last texts. Values are shared and read-only."""
_taken: dict[str, tuple[Mapping[str, Any], Object, str]] = {}
"""Name to the last runtime and its snapshot; valid while the runtime is the same object."""


def get_name(trainjob: Mapping[str, Any]) -> str:
    return f"{trainjob['metadata']['name']}-runtime-snapshot"


def take(runtime: Mapping[str, Any], kind: str) -> tuple[Object, str]:
    """(the runtime for the job, its text)."""
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
    """Adds the empty objects that a typed client writes for missing fields."""
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
    """The runtime in a snapshot. ValueError if it is invalid."""
    known = _parsed.get(text)
    if known is not None:
        return known
    from trainmaster.api.formats import yaml_documents  # noqa: PLC0415 - it was read before in most cases

    # Untrusted: a user who can write ConfigMaps may have written it.
    value = yaml_documents.parse(text.encode(errors="replace"), _DEPTH)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    if len(text) <= _SMALL:
        _remember(_parsed, text, value)
    return value


def find_uid(text: str) -> str | None:
    """The uid of the runtime in a snapshot; None if the text is not in the form that Go programs and we write.

    Does not parse the text, because it is called for every finished job after each start.
    """
    match = _UID.search(text)
    return match[1] if match else None


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    if len(memory) >= _KEPT:
        memory.pop(next(iter(memory)), None)
    memory[key] = value
