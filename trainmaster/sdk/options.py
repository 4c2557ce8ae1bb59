"""Options for `train(options=[...])` of the Kubeflow SDK, as its client takes them: called with the job in the making.

They need nothing of the SDK but that it calls them. The SDK writes TrainJobs through typed models that know no TTL, so
the TTL travels as the annotation that means the same; the deadline has a field there.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations

TTL_ANNOTATION = "trainmaster.dev/ttl-seconds-after-finished"
_MOST = 2**31 - 1


@dataclass(frozen=True)
class TTLSecondsAfterFinished:
    """The TrainJob is deleted with all that it owns so many seconds after its end; 0: at once."""

    seconds: int

    def __post_init__(self) -> None:
        _check("ttl_seconds_after_finished", self.seconds, 0)

    def __call__(self, job_spec: Object, trainer: object, backend: object) -> None:
        metadata = job_spec.setdefault("metadata", {})
        # Another option may have set annotations, as a dictionary of the caller's: it is not ours to change.
        metadata["annotations"] = {**read_annotations(job_spec), TTL_ANNOTATION: str(self.seconds)}


@dataclass(frozen=True)
class ActiveDeadlineSeconds:
    """The TrainJob fails with DeadlineExceeded, and its Pods are stopped, when it is active for longer."""

    seconds: int

    def __post_init__(self) -> None:
        _check("active_deadline_seconds", self.seconds, 1)

    def __call__(self, job_spec: Object, trainer: object, backend: object) -> None:
        job_spec.setdefault("spec", {})["activeDeadlineSeconds"] = self.seconds


def _check(name: str, seconds: object, least: int) -> None:
    # True is an int, and never what somebody meant.
    if type(seconds) is not int or not least <= seconds <= _MOST:
        raise ValueError(f"{name} must be a whole number of seconds from {least} to {_MOST}, not {seconds!r}")
