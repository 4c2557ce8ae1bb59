"""Compiles a wish to the objects that are submitted: a TrainJob, and a runtime derived for it where it needs one. Pure.

Only public fields are used, so what is printed works with kubectl too. What one job wants stands in the TrainJob:
`spec.trainer`, and one entry of `runtimePatches` for mounts and annotations of its Pods. What a TrainJob cannot say,
the number of restarts and whole Secrets as variables, needs another runtime: a copy of the one that was named, called
by the hash of its content, so that equal wishes share one. The one part that means something on this machine only is
the volume with the code; `list_local` names it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api.code import MOUNT_PATH, VOLUME_NAME, build_volume, find_digest
from trainmaster.api.labels import ANCESTOR_STEP, DERIVED, DERIVED_FROM, FRAMEWORK, PACKAGES
from trainmaster.api.meta import Object
from trainmaster.cli.launch.wishes import RequestedMount, RunRequest

API_VERSION = "trainer.kubeflow.org/v1alpha1"
MANAGER = "trainmaster.dev/run"
CONTAINER = "node"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_LONGEST_BASE = 40
_DOLLARS = r"\$\$+|\$(?=\()"


@dataclass(frozen=True, slots=True)
class Code:
    """What was sent: its digest ("sha256:..."), and what is recorded on the job about where it came from."""

    digest: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifests:
    runtime: Object | None
    """The derived runtime; None when the one that was named does."""
    trainjob: Object

    @property
    def objects(self) -> tuple[Object, ...]:
        """In the order in which they are submitted."""
        return (self.trainjob,) if self.runtime is None else (self.runtime, self.trainjob)


def build_manifests(wish: RunRequest, base: Object, code: Code | None = None) -> Manifests:
    """`base` is the runtime that was asked for, of either kind, as the server has it."""
    runtime = _derive(wish, base)
    chosen = base if runtime is None else runtime
    reference = {"apiGroup": API_VERSION.partition("/")[0], "kind": chosen["kind"], "name": chosen["metadata"]["name"]}
    spec: Object = {"runtimeRef": reference, "trainer": _build_trainer(wish)}
    if patch := _build_patch(wish, base, code):
        spec["runtimePatches"] = [patch]
    if wish.deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = wish.deadline_seconds
    if wish.ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = wish.ttl_seconds
    metadata: Object = {"name": wish.name, "namespace": wish.namespace}
    if wish.labels:
        metadata["labels"] = dict(wish.labels)
    if code is not None and code.annotations:
        metadata["annotations"] = dict(code.annotations)
    return Manifests(runtime, {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec})


def _build_trainer(wish: RunRequest) -> Object:
    trainer: Object = {"numNodes": wish.nodes}
    if wish.processes:
        trainer["numProcPerNode"] = int(wish.processes) if wish.processes.isdecimal() else wish.processes
    if wish.image:
        trainer["image"] = wish.image
    first, *arguments = map(escape, wish.command)
    trainer["command"] = [first]
    if arguments:
        trainer["args"] = arguments
    env: list[Object] = [{"name": name, "value": escape(value)} for name, value in wish.env.items()]
    for entry in wish.secret_variables:
        source = {"secretKeyRef": {"name": entry.secret, "key": entry.key}}
        env.append({"name": entry.variable, "valueFrom": source})
    if env:
        trainer["env"] = env
    if wish.resources:
        trainer["resourcesPerNode"] = {"requests": dict(wish.resources), "limits": dict(wish.resources)}
    return trainer


def escape(text: str) -> str:
    """So that Kubernetes, which replaces $(NAME) and halves $$, arrives at exactly this text."""
    return re.sub(_DOLLARS, lambda match: match[0] * 2, text) if "$" in text else text


def list_steps(runtime: Object) -> Iterator[str]:
    """The jobs of a runtime in which a program of the user runs: all but the initializers."""
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        labels = ((job.get("template") or {}).get("metadata") or {}).get("labels") or {}
        containers = job["template"]["spec"]["template"]["spec"].get("containers") or ()
        if labels.get(ANCESTOR_STEP) not in _INITIALIZERS and any(item["name"] == CONTAINER for item in containers):
            yield job["name"]


def _build_patch(wish: RunRequest, base: Object, code: Code | None) -> Object | None:
    volumes: list[Object] = []
    mounts: list[Object] = []
    if code is not None:
        volumes.append(build_volume(code.digest))
        mounts.append({"name": VOLUME_NAME, "mountPath": MOUNT_PATH})
    for number, mount in enumerate(wish.mounts):
        name = f"{mount.kind}-{number}"
        volumes.append({"name": name, **_build_source(mount)})
        entry: Object = {"name": name, "mountPath": mount.path}
        mounts.append({**entry, "readOnly": True} if mount.read_only else entry)
    template: Object = {}
    if wish.packages:
        template["metadata"] = {"annotations": {PACKAGES: "\n".join(wish.packages)}}
    if volumes:
        template["spec"] = {"volumes": volumes, "containers": [{"name": CONTAINER, "volumeMounts": mounts}]}
    if not template:
        return None
    jobs = [{"name": name, "template": {"spec": {"template": copy.deepcopy(template)}}} for name in list_steps(base)]
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _build_source(mount: RequestedMount) -> Object:
    if mount.kind == "host":
        return {"hostPath": {"path": mount.source}}
    if mount.kind == "claim":
        return {"persistentVolumeClaim": {"claimName": mount.source}}
    return {"secret": {"secretName": mount.source}}


def _derive(wish: RunRequest, base: Object) -> Object | None:
    """A runtime like `base` that does what a TrainJob cannot ask for; None when `base` does it already."""
    spec = copy.deepcopy(base["spec"])
    jobset = spec["template"]["spec"]
    _set_restarts(jobset, wish.max_restarts)
    if wish.secrets:
        _add_secrets(jobset, wish)
    if spec == base["spec"]:
        return None
    name = base["metadata"]["name"]
    labels = {DERIVED: "true"}
    if framework := (base["metadata"].get("labels") or {}).get(FRAMEWORK):
        labels[FRAMEWORK] = framework
    content = json.dumps([name, labels, spec], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    short = name[:_LONGEST_BASE].rstrip(".-")
    metadata = {
        "name": f"{short}-{digest}",
        "namespace": wish.namespace,
        "labels": labels,
        "annotations": {DERIVED_FROM: f"{base['kind']}/{name}"},
    }
    return {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def _set_restarts(jobset: dict[str, Any], restarts: int) -> None:
    """A failure restarts the whole gang, so often and no more; a rank is never started again alone."""
    policy = dict(jobset.get("failurePolicy") or {})
    jobset["failurePolicy"] = {**policy, "maxRestarts": restarts}
    for job in jobset["replicatedJobs"]:
        job["template"]["spec"]["backoffLimit"] = 0
        job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"


def _add_secrets(jobset: dict[str, Any], wish: RunRequest) -> None:
    for job in jobset["replicatedJobs"]:
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or ():
            if container["name"] == CONTAINER:
                known = container.setdefault("envFrom", [])
                known += [{"secretRef": {"name": name}} for name in wish.secrets]


def list_local(manifests: Manifests) -> list[str]:
    """The parts that mean something on this machine only, each as a sentence for whoever reads the manifest."""
    found = []
    if "ttlSecondsAfterFinished" in manifests.trainjob["spec"]:
        found.append("Trainmaster only: spec.ttlSecondsAfterFinished (--ttl) is not in Kubeflow Trainer's own TrainJob")
    for patch in manifests.trainjob["spec"].get("runtimePatches") or ():
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            template = job["template"]["spec"]["template"]
            for volume in (template.get("spec") or {}).get("volumes") or ():
                if find_digest(volume) is not None:
                    found.append(f"local: the volume {volume['name']!r} is the code in this machine's home (--no-code)")
                if "hostPath" in volume:
                    found.append(f"local: {volume['hostPath']['path']} is a path of this machine")
            if PACKAGES in ((template.get("metadata") or {}).get("annotations") or {}):
                found.append(f"local: the annotation {PACKAGES} installs packages; on a cluster the image has them")
    return list(dict.fromkeys(found))
