"""Users of v1 jobs: what they do besides what users of TrainJobs do."""

from __future__ import annotations

import random

from tests.simulation.remote import RemoteClient
from tests.simulation.users import NAMESPACE, UserAction, Users
from tests.simulation.v1_plans import FRAMEWORKS, V1_STEADY, build_v1_job, draw_clean_up, draw_v1_ttl
from tests.simulation.world import World
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, PODS, SERVICES
from trainmaster.api.v1jobs.frameworks import LAUNCHER, MPI, WORKER, V1Framework


class V1Users(Users):
    def __init__(self, world: World, client: RemoteClient, late_runtime: Object) -> None:
        super().__init__(world, client, late_runtime)
        self._drawing = random.Random(f"v1 users/{world.seed}")

    async def _do(self, deed: UserAction) -> None:
        framework, name = deed.framework, deed.job
        if framework is None:
            await super()._do(deed)
            return
        if deed.what not in V1_STEADY:
            self._world.disturbed.add(name)
        gvr = framework.gvr
        match deed.what:
            case "submit":
                await self._submit_v1(framework, name)
            case "submit another kind":
                other = self._drawing.choice([one for one in FRAMEWORKS if one is not framework])
                await self._submit_v1(other, name)
            case "suspend" | "resume":
                await self._patch(gvr, name, {"spec": {"runPolicy": {"suspend": deed.what == "suspend"}}})
            case "scale":
                worker = {WORKER: {"replicas": self._drawing.choice((1, 2, 3))}}
                await self._patch(gvr, name, {"spec": {framework.replicas_field: worker}})
            case "change the clean-up":
                await self._patch(gvr, name, {"spec": {"runPolicy": {"cleanPodPolicy": draw_clean_up(self._drawing)}}})
            case "change the TTL":
                await self._patch(gvr, name, draw_v1_ttl(self._drawing))
            case "edit":
                await self._patch(gvr, name, {"metadata": {"labels": {"edited": str(self._drawing.random())}}})
            case "storm":
                await self._storm_v1(framework, name)
            case _:
                await self._remove(deed, framework)

    async def _submit_v1(self, framework: V1Framework, name: str) -> None:
        job = build_v1_job(self._world.seed, self._drawing, framework, name)
        await self._try(lambda: self._client.create(framework.gvr, job, NAMESPACE))

    async def _remove(self, deed: UserAction, framework: V1Framework) -> None:
        gvr, name = framework.gvr, deed.job
        match deed.what:
            case "delete":
                await self._delete(gvr, name)
            case "delete in the foreground":
                await self._delete(gvr, name, propagation="Foreground")
            case "delete, leaving its Pods":
                await self._delete(gvr, name, propagation="Orphan")
                await self._submit_v1(framework, name)
            case "replace":
                await self._delete(gvr, name)
                await self._submit_v1(framework, name)
            case str(what) if "squat" in what:
                await self._squat(what, framework, name)
            case str(what):
                kind = SERVICES if "Service" in what else PODS
                found = await self._pick(kind, name)
                if found is not None:
                    await self._delete(kind, found, grace=0 if "force" in what else None)

    async def _squat(self, what: str, framework: V1Framework, name: str) -> None:
        gvr, foreign = _build_foreign(what.rpartition(" ")[2], framework, name)
        if what.startswith("un"):
            await self._delete(gvr, foreign["metadata"]["name"], propagation="Background")
        else:
            await self._try(lambda: self._client.create(gvr, foreign, NAMESPACE))

    async def _storm_v1(self, framework: V1Framework, name: str) -> None:
        for number in range(self._drawing.choice((5, 20))):
            gvr = self._drawing.choice((framework.gvr, PODS))
            found = name if gvr == framework.gvr else await self._pick(gvr, name)
            if found is not None:
                await self._patch(gvr, found, {"metadata": {"annotations": {"storm": str(number)}}}, tries=1)


def _build_foreign(kind: str, framework: V1Framework, name: str) -> tuple[GVR, Object]:
    """A foreign object with a name that the job may need. A Pod ends soon, and stays."""
    first = f"{name}-{LAUNCHER.lower()}" if framework is MPI else f"{name}-{WORKER.lower()}-0"
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    forms: dict[str, tuple[GVR, str, Object]] = {
        "Pod": (PODS, first, pod),
        "Service": (SERVICES, first, {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
        "ConfigMap": (CONFIG_MAPS, f"{name}-config", {"data": {"a": "b"}}),
    }
    gvr, full_name, rest = forms[kind]
    return gvr, {"apiVersion": "v1", "kind": kind, "metadata": {"name": full_name, "namespace": NAMESPACE}, **rest}
