"""Bugs of a drain to plant: resuming jobs of others, and losing the place in the queue."""

from __future__ import annotations

from tests.simulation.draining import CONTROLLER
from tests.simulation.planted import Planted, rewrite, show_changed
from trainmaster.api.labels import SUSPENDED_BY_DRAIN
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.client.writes import Write


def _mark_all(gvr: GVR, obj: Object) -> Object:
    """As if whatever is suspended were suspended by the drain."""
    if gvr != TRAIN_JOBS or not obj["spec"].get("suspend"):
        return obj
    annotations = {**read_annotations(obj), SUSPENDED_BY_DRAIN: "2026-01-01T00:00:00Z"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _leave_jobsets(write: Write) -> Write | None:
    return None if write.gvr == JOB_SETS else write


RESUMES_ALL = Planted("resumes what a person has suspended", ("I20",), CONTROLLER, show_changed(_mark_all))
FORGETS = Planted("forgets the place in the queue", ("I20",), CONTROLLER, rewrite(_leave_jobsets))
