"""The CustomResourceDefinitions that our server shows: one for each custom kind, served and established.

Clients (kopf, SDKs, kubectl plugins) look for them. They are stored like any object, so that list and watch work, and
come from the same declarations as the CRDs for real clusters. Building them needs every schema tree, so that a start
only does it when one is missing; what an upgrade changed is brought up to date a moment later.
"""

from __future__ import annotations

import asyncio

import orjson

from trainmaster.api.declaring import crd
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainmaster.apiserver import stored
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import metadata

_REFRESH_SECONDS = 2.0
"""After the start, which should not wait for this."""


def ensure(state: RegistryState) -> None:
    """Stores the definitions that are missing."""
    kind = state.catalogue.find(CUSTOM_RESOURCE_DEFINITIONS)
    if kind is None:
        return
    for custom in _custom_kinds(state):
        if state.find(kind, "", custom.gvr.qualified) is None:
            obj = crd.established(_build(custom), state.now())
            metadata.complete_new(obj["metadata"], state.ids.uid(), state.now(), generation=True)
            state.put(kind, obj, None)


async def refresh(state: RegistryState) -> None:
    """Brings definitions of an older version up to date."""
    await state.clock.sleep(_REFRESH_SECONDS)
    kind = state.catalogue.find(CUSTOM_RESOURCE_DEFINITIONS)
    if kind is None:
        return
    for custom in _custom_kinds(state):
        await asyncio.sleep(0)
        record = state.find(kind, "", custom.gvr.qualified)
        if record is None:
            continue
        old = stored.parse(record.value)
        built = _build(custom)
        if old["spec"] != built["spec"]:
            meta = {**old["metadata"], "generation": old["metadata"].get("generation", 1) + 1}
            state.put(kind, crd.established({**built, "metadata": meta}, state.now()), record)


def _custom_kinds(state: RegistryState) -> list[Kind]:
    return [kind for kind in state.catalogue.kinds if kind.custom]


_built: dict[str, bytes] = {}
"""By definition. Tests start hundreds of servers in one process."""


def _build(kind: Kind) -> Object:
    value = _built.get(kind.definition)
    if value is None:
        value = _built[kind.definition] = orjson.dumps(crd.build_crd(kind))
    return stored.parse(value)
