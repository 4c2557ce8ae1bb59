"""What one flow test of the TrainJob controller gets: a cluster at work, and a namespace of its own.

The same tests run on two kinds of cluster: `embedded`, all our controllers in one process in virtual time, and `kube`,
our operator on a real control plane with the real JobSet manager, where kwok's nodes follow the same script. The
latter also runs `disturbed`: connections are cut, others write to the same objects, and the operator is restarted. A
test cannot tell them apart; what only one of them has, a test asks for (`only_on`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.flow.plant import Script, ScriptedNode, running_plant, succeed
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, PODS, SERVICES, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, PatchType, WatchOptions

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., Any])

EMBEDDED = ("embedded",)
CLUSTER = ("kube", "disturbed")
SERVERS = EMBEDDED + CLUSTER
CHAIN = (TRAIN_JOBS, JOB_SETS, JOBS, PODS, SERVICES, CONFIG_MAPS)
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 90.0


def make_trainjob(*, name: str = "first", runtime: str = "torch-distributed", nodes: int = 2, **spec: object) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": runtime},
            "trainer": {"image": "train:1", "command": ["python", "train.py"], "numNodes": nodes},
            **spec,
        },
    }


def is_finished(trainjob: Object) -> bool:
    conditions = list_conditions(trainjob)
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def scripted(script: Script) -> Callable[[Test], Test]:
    """The Pods of this test end as the script says."""

    def mark(test: Test) -> Test:
        test.script = script  # type: ignore[attr-defined]  # read by conftest
        return test

    return mark


def only_on(servers: tuple[str, ...], reason: str) -> Callable[[Test], Test]:
    """The test is about what only these have; `reason` says why."""
    assert set(servers) <= set(SERVERS) and reason

    def mark(test: Test) -> Test:
        test.servers = servers  # type: ignore[attr-defined]  # read by conftest
        return test

    return mark


@dataclass
class Stage:
    client: Client
    namespace: str
    node: ScriptedNode
    come_to_rest: Callable[[], Awaitable[None]]
    """Returns once no controller has anything to do without time passing or somebody acting."""

    async def submit(self, trainjob: Object | None = None) -> Object:
        obj = trainjob or make_trainjob()
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}}
        return await self.client.create(TRAIN_JOBS, obj, self.namespace)

    async def edit(self, gvr: GVR, name: str, patch: Object) -> Object:
        return await self.client.patch(gvr, name, PatchType.MERGE, patch, self.namespace)

    async def wait_for(self, gvr: GVR, name: str, wanted: Callable[[Object], Any]) -> Object:
        """The object once the condition holds."""
        options = WatchOptions(field_selector=f"metadata.name={name}")
        async with asyncio.timeout(3600 if self.namespace == "default" else _PATIENCE_SECONDS):
            while True:
                try:
                    async with self.client.watch(gvr, self.namespace, options) as events:
                        async for event in events:
                            if event.type != "DELETED" and wanted(event.object):
                                return event.object
                except StatusError as error:
                    # A server that is being restarted; 429: "storage is (re)initializing".
                    assert error.code >= 500 or error.code == 429, error
                await asyncio.sleep(_POLL_SECONDS)

    async def eventually(self, question: Callable[[], Awaitable[T]]) -> T:
        """Asks until the answer is true."""
        end = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while True:
            answer = await question()
            if answer:
                return answer
            assert asyncio.get_running_loop().time() < end, f"still {answer!r} after {_PATIENCE_SECONDS} s"
            await asyncio.sleep(_POLL_SECONDS)

    async def list_all(self, gvr: GVR) -> list[Object]:
        return (await self.client.list(gvr, self.namespace)).items

    async def list_event_reasons(self) -> list[str]:
        return [event["reason"] for event in await self.list_all(EVENTS)]

    async def list_versions(self) -> dict[tuple[str, str], str]:
        """The resourceVersion of everything in the namespace: equal means that nobody wrote."""
        found = {}
        for gvr in CHAIN:
            for obj in await self.list_all(gvr):
                found[gvr.plural, obj["metadata"]["name"]] = obj["metadata"]["resourceVersion"]
        return found


@asynccontextmanager
async def embedded_stage(script: Script = succeed) -> AsyncIterator[Stage]:
    async with running_plant(ScriptedNode(script)) as plant:
        yield Stage(plant.client, "default", plant.node, plant.settle)
