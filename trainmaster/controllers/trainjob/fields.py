"""The fields of a TrainJob and of a runtime that this version carries out. Everything else is refused by name.

Fields of the JobSet template inside a runtime are not checked here: on a cluster the JobSet controller there decides
about them, and embedded our own does. What happens after the end (TTL) is up to `controllers/lifecycle`.
"""

from __future__ import annotations

from trainmaster.api.declaring.supported import Table

TRAIN_JOB: Table = {
    "runtimeRef": True,
    "suspend": True,
    "managedBy": True,
    "activeDeadlineSeconds": True,
    "ttlSecondsAfterFinished": True,
    "cleanupPolicy": {"ttlSecondsAfterFinished": True},
    "initializer": True,
    "labels": True,
    "annotations": True,
    "podSpecOverrides": True,
    "podTemplateOverrides": True,
    "runtimePatches": True,
    "trainer": {
        "image": True,
        "command": True,
        "args": True,
        "env": True,
        "numNodes": True,
        "numProcPerNode": True,
        "resourcesPerNode": {"limits": True, "requests": True},
    },
}

RUNTIME: Table = {
    "activeDeadlineSeconds": True,
    "ttlSecondsAfterFinished": True,
    "mlPolicy": True,
    "podGroupPolicy": True,
    "runPolicy": {"activeDeadlineSeconds": True, "ttlSecondsAfterFinished": True},
    "template": True,
}
