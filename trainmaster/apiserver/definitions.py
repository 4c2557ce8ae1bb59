"""The CustomResourceDefinitions of our custom kinds, which clients (kopf, SDKs, kubectl plugins) look for.

They are stored like any object, so that list and watch work, and are built from the same declarations as the CRDs for
real clusters. Building them needs every schema tree, so a start does it only if one is missing; those of an older
version are updated shortly after the start.
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
"""Delay after the start."""


def ensure(state: RegistryState) -> None:
    """Stores missing definitions."""
    kind = state.catalogue.find(CUSTOM_RESOURCE_DEFINITIONS)
    if kind is None:
        return
    for custom in _custom_kinds(state):
        if state.find(kind, "", custom.gvr.qualified) is None:
            obj = crd.established(_build(custom), state.now())
            metadata.complete_new(obj["metadata"], state.ids.uid(), state.now(), generation=True)
            state.put(kind, obj, None)


async def refresh(state: RegistryState) -> None:
    """Updates definitions of an older version."""
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
"""Cache by definition, because tests start hundreds of servers in one process."""


def _build(kind: Kind) -> Object:
    value = _built.get(kind.definition)
    if value is None:
        value = _built[kind.definition] = orjson.dumps(crd.build_crd(kind))
    return stored.parse(value)
