"""Whether the definitions of our kinds on a cluster have all fields that this version writes.

An API server drops fields that a definition lacks, without an error. Those of Kubeflow Trainer, of training-operator
and of our older versions lack some. A newer definition has more, which disturbs nobody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from trainmaster.api.declaring import catalogue, crd
from trainmaster.api.meta import GVR, Fields
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.monitoring.troubles import PRINT, OperatorTrouble, explain_failure, join

_AGAIN_SECONDS = 30.0


class DefinitionsCheck:
    """Asks again while something is lacking, because somebody may apply what is new."""

    def __init__(self, client: Client, kinds: Sequence[GVR], clock: Clock) -> None:
        self._client = client
        self._kinds = kinds
        self._clock = clock
        self._found: list[OperatorTrouble] = []

    def __call__(self) -> list[OperatorTrouble]:
        return self._found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Scope("definitions") as scope:
            scope.spawn(self._look(), name="operator.definitions")
            yield

    async def _look(self) -> None:
        while True:
            try:
                self._found = await check_definitions(self._client, self._kinds)
            except StatusError as error:
                self._found = [explain_failure(error.code, error.message)]
            if not self._found:
                return
            await self._clock.sleep(_AGAIN_SECONDS)


async def check_definitions(client: Client, kinds: Sequence[GVR]) -> list[OperatorTrouble]:
    """Of kinds that are defined; others are missed when they are watched. Raises StatusError if they cannot be
    read."""
    lacking = []
    for gvr in kinds:
        try:
            found = await client.get(CUSTOM_RESOURCE_DEFINITIONS, gvr.qualified)
        except NotFound:
            continue
        fields = list_lacking(found, gvr)
        if fields:
            lacking.append(f"{gvr.qualified} lacks {join(fields)}")
    if not lacking:
        return []
    return [
        OperatorTrouble(
            "DefinitionsOutdated",
            f"the definitions of our kinds are those of Kubeflow Trainer or of an older version, and the API server "
            f"drops what they lack ({'; '.join(lacking)}): apply the output of `{PRINT}`",
        )
    ]


def list_lacking(definition: Fields, gvr: GVR) -> list[str]:
    """The outermost fields of our definition that this one has not, as paths; empty if its schema keeps everything."""
    kind = next(kind for kind in catalogue.build().kinds if kind.gvr == gvr)
    theirs = _read_schema(definition, gvr)
    return [] if theirs is None else list(_compare(_read_schema(crd.build_crd(kind), gvr) or {}, theirs, ""))


def _read_schema(definition: Fields, gvr: GVR) -> Fields | None:
    for version in definition["spec"]["versions"]:
        if version["name"] == gvr.version:
            return read_fields(version, "schema", "openAPIV3Schema")
    return None


def _compare(ours: Fields, theirs: Fields, path: str) -> Iterator[str]:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = read_fields(theirs, "properties")
    for name, schema in read_fields(ours, "properties").items():
        where = f"{path}.{name}" if path else name
        if name in known:
            yield from _compare(schema, known[name], where)
        elif known or not theirs.get("additionalProperties"):
            yield where
    if "items" in ours and "items" in theirs:
        yield from _compare(ours["items"], theirs["items"], f"{path}[]")
