"""The namespace that a request of `/api/v1` is about. The API server decides who may access it."""

from __future__ import annotations

from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.client.contract import ListOptions
from trainmaster.rest.callers import Caller
from trainmaster.rest.problems import FieldProblem, invalid
from trainmaster.rest.services.creation import naming

_RULE = "a namespace is a DNS label: lower-case letters, digits and '-', at most 63 characters"


def find_namespace(caller: Caller, namespace: str | None, *, pointer: str = "") -> str:
    """The given one, or else the caller's own. Raises Problem 422 if there is neither."""
    chosen = caller.tenant if namespace is None else namespace
    if chosen is None:
        raise _refuse("is needed: you are no tenant, so there is no namespace of yours", pointer)
    if not naming.is_namespace(chosen):
        raise _refuse(_RULE, pointer)
    return chosen


def _refuse(text: str, pointer: str) -> Exception:
    return invalid([FieldProblem(text, pointer=pointer) if pointer else FieldProblem(text, parameter="namespace")])


async def check_reader(caller: Caller, namespace: str) -> None:
    """Raises StatusError 403 unless the caller may read TrainJobs there, which includes records of deleted ones."""
    await caller.client.list(TRAIN_JOBS, namespace, ListOptions(limit=1))
