"""Every field of every kind with a value that does not belong there: refused or taken, never an error of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import orjson
import pytest

from tests.attacks.fuzz.objects import BODIES, build_object
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Call
from trainmaster.client.contract import ActingIdentity, PatchType, WriteOptions
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

VALUES: tuple[Any, ...] = (None, {}, [None], "x", -1, {"a": None}, [{}])
GONE = object()


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from list_paths(value[key], (*path, key))


def list_bent(kind: Kind, name: str) -> Iterator[Any]:
    bare = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    yield bare
    for top in sorted(set(kind.load().properties) - set(bare)):
        yield from ({**bare, top: value} for value in VALUES)
    if BODIES.get(kind.plural, ("",))[0] != kind.api_version:
        return
    whole = build_object(Random(1), kind.plural, name)
    for path in list_paths(whole):
        for value in (*VALUES[:4], GONE):
            bent = copy.deepcopy(whole)
            holder: Any = bent
            for key in path[:-1]:
                holder = holder[key]
            if value is GONE:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield bent


@pytest.mark.parametrize("kind", catalogue.build().kinds, ids=lambda kind: f"{kind.plural}.{kind.group}/{kind.version}")
def test_a_bent_object_is_refused_or_taken(kind: Kind) -> None:
    namespace = "default" if kind.namespaced else ""
    call, dry = Call(ActingIdentity("ann"), "test/1"), WriteOptions(dry_run=True)

    async def main() -> None:
        async with running_cluster() as cluster:
            registry = cluster.registry
            standing = None
            if kind.plural in BODIES:
                with suppress(StatusError):
                    standing = registry.create(
                        call, kind, namespace, build_object(Random(1), kind.plural, "a"), WriteOptions()
                    )
            for bent in list_bent(kind, "a"):
                raw = orjson.dumps(bent)
                with suppress(StatusError):
                    registry.create(call, kind, namespace, orjson.loads(raw.replace(b'"a"', b'"b"')), dry)
                if standing is not None:
                    for patch_type in (PatchType.MERGE, PatchType.STRATEGIC):
                        with suppress(StatusError):
                            registry.patch(call, kind, namespace, "a", patch_type, orjson.loads(raw), dry)
                    with suppress(StatusError):
                        registry.patch(
                            call, kind, namespace, "a", PatchType.MERGE, orjson.loads(raw), dry, subresource="status"
                        )

    run_virtual(main())
