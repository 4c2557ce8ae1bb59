"""The shape of the manifests that `run` composes, and which of their parts work only on this machine."""

from __future__ import annotations

from trainmaster.api.code import find_digest
from trainmaster.api.labels import PACKAGES
from trainmaster.api.lifecycle.term_names import DEADLINE_FIELD, TTL_FIELD
from trainmaster.api.reading import list_items, read_annotations
from trainmaster.jobs.compose.trainjob import PATCHES, ComposedJob, SupportedFields

MANAGER = "trainmaster.dev/run"
SHAPE = SupportedFields(MANAGER, frozenset({PATCHES, TTL_FIELD, DEADLINE_FIELD}))
"""The fields that our server supports; other servers refuse unknown fields by name."""


def list_local(composed: ComposedJob) -> list[str]:
    """The parts that work only on this machine, one sentence each."""
    found = []
    if TTL_FIELD in composed.trainjob["spec"]:
        found.append("Trainmaster only: spec.ttlSecondsAfterFinished (--ttl) is not in Kubeflow Trainer's own TrainJob")
    for patch in list_items(composed.trainjob, "spec", PATCHES):
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            template = job["template"]["spec"]["template"]
            for volume in list_items(template, "spec", "volumes"):
                if find_digest(volume) is not None:
                    place = "the code in this machine's home; --kubeconfig prints it for a cluster"
                    found.append(f"local: the volume {volume['name']!r} is {place} (--no-code: without)")
                if "hostPath" in volume:
                    found.append(f"local: {volume['hostPath']['path']} is a path of this machine")
            if PACKAGES in read_annotations(template):
                found.append(f"local: the annotation {PACKAGES} installs packages; on a cluster the image has them")
    return list(dict.fromkeys(found))
