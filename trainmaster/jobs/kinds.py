"""The kinds of training jobs. Code that reads jobs uses this module and works with `TrainingJob`.

To add a kind, write its model next to `jobs.models.trainjobs` and add it to the table.
"""

from __future__ import annotations

from trainmaster.api.meta import Fields
from trainmaster.jobs.models import v1jobs
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob

TRAINING_KINDS: dict[str, type[TrainingJob]] = {
    "TrainJob": TrainJob,
    **{model.framework.kind: model for model in v1jobs.MODELS},
}


def read_training_job(raw: Fields) -> TrainingJob:
    """The model of the object's kind; TrainJob if it has no kind. Raises KeyError if it is not a training job."""
    return TRAINING_KINDS[raw.get("kind") or "TrainJob"](raw)


def find_kind(word: str) -> type[TrainingJob] | None:
    """By its singular or plural name in commands: trainjob, trainjobs."""
    for model in TRAINING_KINDS.values():
        if word.removesuffix("s") == model.gvr.plural.removesuffix("s"):
            return model
    return None


def find_place(pod: Fields) -> PodPlace | None:
    """Which rank of which training job a Pod is; None if it belongs to no training job."""
    for model in TRAINING_KINDS.values():
        place = model.find_place(pod)
        if place is not None:
            return place
    return None
