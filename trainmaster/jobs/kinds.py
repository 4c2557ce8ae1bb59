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
    """By its name in commands, with or without its group: trainjob, TrainJobs, trainjobs.trainer.kubeflow.org."""
    name, _, group = word.lower().partition(".")
    for model in TRAINING_KINDS.values():
        if name.removesuffix("s") == model.gvr.plural.removesuffix("s") and group in ("", model.gvr.group):
            return model
    return None


def get_kind_name(model: type[TrainingJob]) -> str:
    """TrainJob for the model of TrainJobs."""
    return next(kind for kind, known in TRAINING_KINDS.items() if known is model)


def split_reference(reference: str) -> tuple[type[TrainingJob] | None, str]:
    """(kind, name) of NAME or KIND/NAME; the kind is None if it is not given. ValueError for an unknown kind."""
    word, slash, name = reference.partition("/")
    if not slash:
        return None, reference
    model = find_kind(word)
    if model is None:
        words = ", ".join(known.gvr.plural.removesuffix("s") for known in TRAINING_KINDS.values())
        raise ValueError(f"{word} is no kind of training job: the kinds are {words}")
    return model, name


def split_kind(reference: str) -> tuple[str, str]:
    """The same with the name of the kind: (TrainJob, my-job) for trainjob/my-job, ("", my-job) for my-job."""
    model, name = split_reference(reference)
    return "" if model is None else get_kind_name(model), name


def find_place(pod: Fields) -> PodPlace | None:
    """Which rank of which training job a Pod is; None if it belongs to no training job."""
    found = find_kind_and_place(pod)
    return None if found is None else found[1]


def find_kind_and_place(pod: Fields) -> tuple[type[TrainingJob], PodPlace] | None:
    for model in TRAINING_KINDS.values():
        place = model.find_place(pod)
        if place is not None:
            return model, place
    return None
