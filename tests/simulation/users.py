"""Simulated users: they submit TrainJobs, change and delete them, and interfere with objects of others.

All actions and their times are drawn from the seed before the run begins. A user retries if there is no response, like
a person with kubectl; refusals are recorded and not retried.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.simulation.base import LATE, RUNTIMES
from tests.simulation.remote import RemoteClient
from tests.simulation.retention_plans import (
    HOLD,
    draw_policy,
    draw_runtime_change,
    draw_ttl_change,
    draw_wish_times,
    set_ttl,
)
from tests.simulation.sharing import set_size
from tests.simulation.world import World
from trainmaster.api.labels import RESTART
from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    SERVICES,
    TRAIN_JOBS,
)
from trainmaster.api.status import StatusError
from trainmaster.api.training import restarts
from trainmaster.api.v1jobs.frameworks import V1Framework
from trainmaster.client.contract import DeleteOptions, PatchType
from trainmaster.jobs.draining import NODE, end_drain, start_drain

T = TypeVar("T")

NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class UserAction:
    time: float
    what: str
    job: str
    obj: Object | None = None
    """The object to submit or change, if it is not random."""
    framework: V1Framework | None = None
    """The kind of the job, if it is a v1 job."""


def draw_deeds(random_: random.Random, span: float) -> list[UserAction]:
    """The actions of users in this run, in order."""
    deeds = [UserAction(random_.random() * span, "appear", LATE)]
    for number in range(random_.choice((1, 2, 2, 3))):
        name = f"job-{number}"
        begin = random_.random() * span / 2
        if random_.random() < 0.1:
            what = random_.choice(SQUATS)
            deeds.append(UserAction(begin * random_.random(), what, name))
            if random_.random() < 0.7:
                deeds.append(UserAction(begin + random_.random() * span / 2, f"un{what}", name))
        deeds.append(UserAction(begin, "submit", name))
        for _ in range(random_.choice((0, 0, 1, 1, 2, 3))):
            deeds.append(UserAction(begin + random_.random() * span / 2, random_.choice(MEDDLING), name))
    return sorted(deeds, key=lambda deed: deed.time)


SQUATS = ("squat JobSet", "squat Service", "squat Job", "squat ConfigMap")
"""Creates a foreign object with a name that the job will need; with the prefix "un", deletes it."""
RETAINING = (
    "change the TTL",
    "change a runtime's TTL",
    "set the policy",
    "remove the policy",
    "hold",
    "release",
    "make it anew once it is gone",
)
"""Actions about retention (`wishes`)."""
MEDDLING = (
    "suspend",
    "suspend",
    "resume",
    "resume",
    "delete",
    "delete in the foreground",
    "replace",
    "edit",
    "delete the JobSet",
    "delete a Job",
    "delete the Service",
    "delete a Pod",
    "delete a Pod by force",
    "edit the JobSet",
    "storm",
    "submit",
)
_IMPATIENCE = 0.4
"""Polling interval of a user who waits until a name is free."""
STEADY = ("submit", "edit", "storm", "edit the JobSet", "delete the Service", *RETAINING)
"""Actions that must not change the outcome of a job."""


def add_wishes(seed: int, span: float, deeds: list[UserAction]) -> list[UserAction]:
    """Adds actions about retention."""
    submissions = {deed.job: deed.time for deed in reversed(deeds) if deed.what == "submit"}
    wishes = draw_wish_times(seed, span, sorted(submissions.items()))
    return sorted(
        [*deeds, *(UserAction(wish.time, wish.what, wish.name) for wish in wishes)], key=lambda deed: deed.time
    )


def add_restarts(seed: int, span: float, deeds: list[UserAction]) -> list[UserAction]:
    """Adds restarts, with a separate random sequence, so that the rest does not change."""
    random_ = random.Random(f"restarts/{seed}")
    submissions = {deed.job: deed.time for deed in reversed(deeds) if deed.what == "submit"}
    more = [
        UserAction(begin + random_.random() * span / 2, "restart", name)
        for name, begin in sorted(submissions.items())
        for _ in range(random_.choice((0, 0, 0, 1, 2)))
    ]
    return sorted([*deeds, *more], key=lambda deed: deed.time)


def build_trainjob(random_: random.Random, name: str) -> Object:
    runtime = random_.choice(RUNTIMES)
    trainer: Object = {"numNodes": random_.choice((1, 2, 2, 3)), "image": "i", "command": ["x"]}
    if random_.random() < 0.3:
        trainer["env"] = [{"name": "A", "value": str(random_.random())}]
    spec: Object = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    if random_.random() < 0.2:
        spec["suspend"] = True
    if random_.random() < 0.15:
        spec["activeDeadlineSeconds"] = random_.choice((2, 15, 40))
    if random_.random() < 0.1:
        spec["labels"] = {"team": "a"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


class Users:
    def __init__(self, world: World, client: RemoteClient, late_runtime: Object) -> None:
        self._world = world
        self._client = client
        self._late_runtime = late_runtime
        self._random = random.Random(f"users/{world.seed}")
        self._wishing = random.Random(f"wishing/{world.seed}")

    async def run(self, deeds: Sequence[UserAction]) -> None:
        now = 0.0
        for deed in deeds:
            await asyncio.sleep(max(0.0, deed.time - now))
            now = max(now, deed.time)
            self._world.trace.note("user", f"{deed.what}: {deed.job}")
            await self._do(deed)

    async def _do(self, deed: UserAction) -> None:
        name = deed.job
        if deed.what not in STEADY:
            self._world.disturbed.add(name)
        match deed.what:
            case "submit":
                await self._submit(name, deed.obj)
            case "appear":
                await self._try(lambda: self._client.create(CLUSTER_TRAINING_RUNTIMES, self._late_runtime))
            case str(what) if "squat" in what:
                gvr, foreign = _build_foreign(what.rpartition(" ")[2], name)
                if what.startswith("un"):
                    await self._delete(gvr, foreign["metadata"]["name"], propagation="Background")
                else:
                    await self._try(lambda: self._client.create(gvr, foreign, NAMESPACE))
            case "suspend" | "resume":
                patch = {"spec": {"suspend": deed.what == "suspend"}}
                await self._patch(TRAIN_JOBS, name, patch)
            case "edit":
                await self._patch(TRAIN_JOBS, name, {"metadata": {"labels": {"edited": str(self._random.random())}}})
            case "edit the JobSet":
                await self._patch(JOB_SETS, name, {"metadata": {"annotations": {"note": str(self._random.random())}}})
            case "delete":
                await self._delete(TRAIN_JOBS, name)
            case "delete in the foreground":
                await self._delete(TRAIN_JOBS, name, propagation="Foreground")
            case "replace":
                await self._delete(TRAIN_JOBS, name)
                await self._submit(name)
            case "storm":
                await self._storm(name)
            case "restart":
                await self._restart(name)
            case "drain" | "undrain" | "uncordon":
                await self._maintain(deed.what)
            case str(what) if what in RETAINING:
                await self._retain(deed)
            case _:
                await self._meddle(deed)

    async def _submit(self, name: str, wanted: Object | None = None) -> None:
        job = wanted or build_trainjob(self._random, name)
        if wanted is None:
            set_size(self._world.seed, job)
            set_ttl(self._world.seed, job)
        await self._try(lambda: self._client.create(TRAIN_JOBS, job, NAMESPACE))

    async def _retain(self, deed: UserAction) -> None:
        patch: Object
        match deed.what:
            case "change the TTL":
                await self._patch(TRAIN_JOBS, deed.job, deed.obj or draw_ttl_change(self._wishing))
            case "change a runtime's TTL":
                patch = draw_runtime_change(self._wishing)
                send = self._client.patch
                await self._try(lambda: send(CLUSTER_TRAINING_RUNTIMES, deed.job, PatchType.MERGE, patch))
            case "set the policy" | "remove the policy":
                place = (policy.NAME, policy.NAMESPACE)
                await self._try(lambda: self._client.delete(CONFIG_MAPS, *place))
                if deed.what == "set the policy":
                    wanted = draw_policy(self._wishing)
                    await self._try(lambda: self._client.create(CONFIG_MAPS, wanted, policy.NAMESPACE))
            case "hold":
                await self._patch(TRAIN_JOBS, deed.job, {"metadata": {"finalizers": [HOLD]}})
            case "release":
                await self._release(deed.job)
            case "make it anew once it is gone":
                self._world.late.append(self._world.loop.create_task(self._make_anew(deed.job)))

    async def _make_anew(self, name: str) -> None:
        """Concurrently creates a new job of the same name, as soon as the name is free."""
        while not self._world.calm:
            await asyncio.sleep(_IMPATIENCE)
            try:
                await self._client.get(TRAIN_JOBS, name, NAMESPACE)
            except ConnectionError:
                continue
            except StatusError as error:
                self._check_refusal(error)
                self._world.disturbed.add(name)
                await self._submit(name)
                return

    async def _release(self, name: str) -> None:
        """Retries until the finalizer is removed."""
        for _ in range(100):
            found = await self._try(lambda: self._client.get(TRAIN_JOBS, name, NAMESPACE), tries=100)
            finalizers = (found or {}).get("metadata", {}).get("finalizers") or ()
            if found is None or HOLD not in finalizers:
                return
            left = [item for item in finalizers if item != HOLD]
            head = {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]}
            await self._patch(TRAIN_JOBS, name, {"metadata": {**head, "finalizers": left}})

    async def _meddle(self, deed: UserAction) -> None:
        name = deed.job
        match deed.what:
            case "delete the JobSet":
                policy = self._random.choice(("Background", "Foreground"))
                await self._delete(JOB_SETS, name, propagation=policy)
            case "delete the Service":
                await self._delete(SERVICES, name)
            case "delete a Job":
                found = await self._pick(JOBS, name)
                if found is not None:
                    policy = self._random.choice(("Background", "Foreground"))
                    await self._delete(JOBS, found, propagation=policy)
            case "delete a Pod":
                found = await self._pick(PODS, name)
                if found is not None:
                    await self._delete(PODS, found)
            case "delete a Pod by force":
                found = await self._pick(PODS, name)
                if found is not None:
                    await self._delete(PODS, found, grace=0)

    async def _restart(self, name: str) -> None:
        """Like `trainmaster restart`: one write with the next attempt number."""
        job = await self._try(lambda: self._client.get(TRAIN_JOBS, name, NAMESPACE))
        jobset = await self._try(lambda: self._client.get(JOB_SETS, name, NAMESPACE))
        if job is not None:
            meta = {"annotations": {RESTART: str(restarts.decide_next(job, jobset))}, "uid": job["metadata"]["uid"]}
            await self._patch(TRAIN_JOBS, name, {"metadata": meta})

    async def _maintain(self, what: str) -> None:
        match what:
            case "drain":
                await self._try(lambda: start_drain(self._client, self._world.clock.now(), "ann"), tries=20)
            case "undrain":
                await self._try(lambda: end_drain(self._client), tries=20)
            case _:
                patch = {"spec": {"unschedulable": None}}
                await self._try(lambda: self._client.patch(NODES, NODE, PatchType.MERGE, patch), tries=20)

    async def _storm(self, name: str) -> None:
        """A faulty foreign controller: it changes all objects of a job repeatedly."""
        for number in range(self._random.choice((5, 20))):
            gvr = self._random.choice((TRAIN_JOBS, JOB_SETS, JOBS, PODS))
            found = name if gvr in (TRAIN_JOBS, JOB_SETS) else await self._pick(gvr, name)
            if found is not None:
                await self._patch(gvr, found, {"metadata": {"annotations": {"storm": str(number)}}}, tries=1)

    async def _pick(self, gvr: GVR, job: str) -> str | None:
        """An object of the kind whose name begins with the job's."""
        listed = await self._try(lambda: self._client.list(gvr, NAMESPACE))
        if listed is None:
            return None
        names = [item["metadata"]["name"] for item in listed.items if item["metadata"]["name"].startswith(f"{job}-")]
        return self._random.choice(names) if names else None

    async def _patch(self, gvr: GVR, name: str, patch: Object, *, tries: int = 5) -> None:
        await self._try(lambda: self._client.patch(gvr, name, PatchType.MERGE, patch, NAMESPACE), tries=tries)

    async def _delete(self, gvr: GVR, name: str, *, propagation: str = "", grace: int | None = None) -> None:
        options = DeleteOptions(propagation=propagation, grace_seconds=grace)
        await self._try(lambda: self._client.delete(gvr, name, NAMESPACE, options))

    async def _try(self, call: Callable[[], Awaitable[T]], *, tries: int = 5) -> T | None:
        for _ in range(tries):
            try:
                return await call()
            except ConnectionError:
                await asyncio.sleep(0.5)
            except StatusError as error:
                self._check_refusal(error)
                return None
        return None

    def _check_refusal(self, error: StatusError) -> None:
        """I14: a valid request never gets a server error."""
        self._world.trace.note("user", f"is refused: {error.code} {error.message}")
        if error.code >= 500:
            self._world.trace.violate("I14", f"the server answered {error.code}: {error.message}")


def _build_foreign(kind: str, name: str) -> tuple[GVR, Object]:
    """A foreign object with a name that a TrainJob will need; suspended, so that it has no effect."""
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"suspend": True, "backoffLimit": 0, "template": pod}
    forms: dict[str, tuple[GVR, str, str, Object]] = {
        "JobSet": (
            JOB_SETS,
            "jobset.x-k8s.io/v1alpha2",
            name,
            {"spec": {"suspend": True, "replicatedJobs": [{"name": "other", "template": {"spec": job}}]}},
        ),
        "Service": (SERVICES, "v1", name, {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
        "Job": (JOBS, "batch/v1", f"{name}-node-0", {"spec": job}),
        "ConfigMap": (CONFIG_MAPS, "v1", f"{name}-runtime-snapshot", {"data": {"a": "b"}}),
    }
    gvr, version, full_name, rest = forms[kind]
    return gvr, {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": full_name, "namespace": NAMESPACE},
        **rest,
    }
