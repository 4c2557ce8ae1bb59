"""The namespace that a request of `/api/v1` is about. The API server decides who may access it."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.resources import NAMESPACES, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import ListOptions
from trainmaster.client.pages import read_pages
from trainmaster.rest.callers import Caller
from trainmaster.rest.problems import FieldProblem, invalid
from trainmaster.rest.services.creation import naming

ALL = ("",)
_ACCOUNT = "system:serviceaccount:"
_PAGE = 500
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


async def list_readable(caller: Caller) -> Sequence[str]:
    """The namespaces in which the caller may read TrainJobs; ALL if those are all."""
    if caller.tenant is not None:
        # Asked about nothing else, so that a page of a tenant costs one request.
        return (caller.tenant,)
    if await _may_read(caller, ""):
        return ALL
    names = await _list_all(caller)
    return [name for name in names if await _may_read(caller, name)]


async def list_readable_names(caller: Caller) -> list[str]:
    """The same, by name."""
    found = await list_readable(caller)
    return sorted(await _list_all(caller) if found is ALL else found)


async def _list_all(caller: Caller) -> list[str]:
    """All namespaces if the caller may list them, otherwise that of its account."""
    names: list[str] = []
    options = ListOptions(limit=_PAGE, metadata_only=True)
    try:
        async for page in read_pages(caller.client, NAMESPACES, "", options):
            names += [item["metadata"]["name"] for item in page.items]
        return names
    except StatusError as error:
        if error.code != 403:
            raise
    user = caller.identity.user
    return [user.split(":")[2]] if user.startswith(_ACCOUNT) else []


async def _may_read(caller: Caller, namespace: str) -> bool:
    try:
        await check_reader(caller, namespace)
    except StatusError as error:
        if error.code != 403:
            raise
        return False
    return True
