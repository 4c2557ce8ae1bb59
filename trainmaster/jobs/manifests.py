"""A job as its author wrote it, to submit it again. Pure; used by history and `trainmaster restart`."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api.labels import RESTART, SUBMITTER
from trainmaster.api.meta import Fields, Object

_OF_THE_SERVER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "ownerReferences",
    "finalizers",
    "generateName",
)
_OF_THE_OLD_ONE = ("kubectl.kubernetes.io/last-applied-configuration", RESTART, SUBMITTER)


def build_manifest(job: Fields, name: str, annotations: Mapping[str, str] | None = None) -> Object:
    """Has this name, none of the fields that the server added, and these additional annotations; not suspended."""
    meta = {key: value for key, value in job["metadata"].items() if key not in _OF_THE_SERVER}
    kept = {key: value for key, value in (meta.pop("annotations", None) or {}).items() if key not in _OF_THE_OLD_ONE}
    kept |= annotations or {}
    spec = _resume(job["spec"])
    if "runPolicy" in spec:
        spec["runPolicy"] = _resume(spec["runPolicy"])
    return {
        "apiVersion": job.get("apiVersion", "trainer.kubeflow.org/v1alpha1"),
        "kind": job.get("kind", "TrainJob"),
        "metadata": {**meta, "name": name, **({"annotations": kept} if kept else {})},
        "spec": spec,
    }


def _resume(policy: Fields) -> Object:
    return {key: value for key, value in policy.items() if key != "suspend"}
