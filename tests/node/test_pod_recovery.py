"""Nothing is lost and nothing runs twice: new agents, reboots, lost shims, an API that is away, old generations."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.bench import LIMIT, Bench, find_status, get_ended, has_phase, is_over, run
from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.client.contract import LogOptions
from trainmaster.kit import failpoints
from trainmaster.node.runner import PodRunner
from trainmaster.shim.processes import read_start_ticks
from trainmaster.shim.protocol import ProcessIdentity, decode

pytestmark = pytest.mark.node

FOREVER = "while :; do sleep 0.02; done"


def read_shim(bench: Bench, pod: Object) -> ProcessIdentity:
    return decode(ProcessIdentity, Path(bench.get_paths(pod).identity).read_bytes())


async def kill_shim(bench: Bench, pod: Object) -> None:
    who = read_shim(bench, pod)
    os.kill(who.pid, signal.SIGKILL)
    await bench.wait_until(lambda: read_start_ticks(who.pid) != who.start_ticks)


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_after_a_reboot_a_pod_is_disrupted_and_not_run_again(tmp_path: Path, policy: str) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create(f"echo started >> starts; {FOREVER}", restartPolicy=policy)
            await bench.wait_for(has_phase("Running"))
            starts = bench.get_work(made) / "starts"
            await bench.wait_until(lambda: starts.exists() and starts.read_text())
        # A reboot: nothing runs any more, and the record is of another boot.
        await kill_shim(bench, made)
        path = Path(bench.get_paths(made).identity)
        path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
        async with bench.running_agent():
            pod = await bench.wait_for(is_over)
            assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
            condition = find_condition(list_conditions(pod), "DisruptionTarget") or {}
            assert (condition["status"], condition["reason"]) == ("True", "TerminationByKubelet")
            assert get_ended(pod)["reason"] == "ContainerStatusUnknown"
            assert starts.read_text() == "started\n"

    run(tmp_path, test)


def test_a_pod_whose_shim_was_killed_is_said_to_be_unknown_and_its_tree_is_gone(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create(f"sleep 1000 & echo $! > pid; {FOREVER}")
            pid = bench.get_work(made) / "pid"
            await bench.wait_for(has_phase("Running"))
            await bench.wait_until(lambda: pid.exists() and pid.read_text().strip())
            child = int(pid.read_text())
            await kill_shim(bench, made)
            pod = await bench.wait_for(is_over)
            assert (get_ended(pod)["exitCode"], get_ended(pod)["reason"]) == (137, "ContainerStatusUnknown")
            assert find_condition(list_conditions(pod), "DisruptionTarget") is None
            await bench.wait_until(lambda: read_start_ticks(child) is None)

    run(tmp_path, test)


def test_restart_count_and_the_last_end_survive_a_new_agent(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create(
                f"[ -e second ] && {{ {FOREVER}; }}; touch second; exit 7", restartPolicy="Always"
            )
            await bench.wait_for(lambda pod: find_status(pod).get("restartCount") == 1)
        async with bench.running_agent() as agent:
            (bench.get_work(made) / "x").touch()
            pod = await bench.wait_for(lambda pod: "running" in (find_status(pod).get("state") or {}))
            assert find_status(pod)["restartCount"] == 1
            assert find_status(pod)["lastState"]["terminated"]["exitCode"] == 7
            assert await bench.read_log(agent, pod, previous=True) == ""
            await bench.remove()

    run(tmp_path, test)


class SlowClient:
    """Lists of Pods wait for `go`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.go = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list(self, gvr: GVR, *arguments: Any, **named: Any) -> Any:
        if gvr == PODS:
            await self.go.wait()
        return await self._inner.list(gvr, *arguments, **named)


@pytest.mark.parametrize("late", ["the Pods", "what runs of them"])
def test_a_log_that_is_followed_before_a_new_agent_knows_its_pod_goes_on_to_the_end(
    tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("echo first; while [ ! -e go ]; do sleep 0.02; done; echo last")
            pod = await bench.wait_for(has_phase("Running"))
            await bench.wait_until(lambda: Path(bench.get_paths(made).log("main", 0)).read_bytes())
        client = SlowClient(bench.client)
        loads = asyncio.Event()
        if late == "the Pods":
            bench.client = client  # type: ignore[assignment]  # stands for it
            loads.set()
        load = PodRunner.load_state

        async def load_late(*arguments: Any) -> Any:
            await loads.wait()
            return await load(*arguments)

        monkeypatch.setattr(PodRunner, "load_state", load_late)
        async with asyncio.timeout(LIMIT), bench.running_agent() as agent, asyncio.TaskGroup() as group:
            pieces = agent.logs.read(pod, "main", LogOptions(follow=True))
            got = [await anext(pieces)]
            rest = group.create_task(read_rest(pieces))
            (bench.get_work(made) / "go").touch()
            await bench.wait_until(lambda: Path(bench.get_paths(made).exited("main", 0)).exists())
            client.go.set()
            loads.set()
            got.append(await rest)
            assert b"".join(got) == b"first\nlast\n"
            await bench.wait_for(is_over)

    run(tmp_path, test)


async def read_rest(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


class AwayClient:
    """The API server answers no status writes while `away`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def patch(self, *arguments: Any, **named: Any) -> Object:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "away")
        found: Object = await self._inner.patch(*arguments, **named)
        return found


def test_an_end_that_could_not_be_reported_is_reported_later(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        client = AwayClient(bench.client)
        bench.client = client  # type: ignore[assignment]  # stands for it
        async with bench.running_agent():
            made = await bench.create("while [ ! -e go ]; do sleep 0.02; done; exit 3")
            await bench.wait_for(has_phase("Running"))
            client.away = True
            (bench.get_work(made) / "go").touch()
            await bench.wait_until(lambda: Path(bench.get_paths(made).exited("main", 0)).exists())
            await asyncio.sleep(0.1)
            client.away = False
            pod = await bench.wait_for(is_over)
            assert get_ended(pod)["exitCode"] == 3

    run(tmp_path, test)


@pytest.mark.parametrize("point", ["node.before_launch", "node.after_launch"])
def test_an_agent_that_dies_around_a_start_starts_nothing_twice(tmp_path: Path, point: str) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    async def test(bench: Bench) -> None:
        made = await bench.create("echo started >> starts; while [ ! -e go ]; do sleep 0.02; done")
        with failpoints.calling(point, die), pytest.raises(BaseException) as caught:
            async with bench.running_agent():
                await asyncio.sleep(30)
        assert caught.group_contains(Died) if isinstance(caught.value, BaseExceptionGroup) else caught.type is Died
        async with bench.running_agent():
            await bench.wait_for(has_phase("Running"))
            (bench.get_work(made) / "go").touch()
            pod = await bench.wait_for(is_over)
            assert pod["status"]["phase"] == "Succeeded"
            assert (bench.get_work(made) / "starts").read_text() == "started\n"

    run(tmp_path, test)


def test_nothing_of_a_gang_starts_while_processes_of_its_deleted_pods_live(tmp_path: Path) -> None:
    """Deleted by force, the object is gone before its processes are; the next generation waits for them."""
    gang = {"labels": {JOBSET_UID: "g"}}

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            old = await bench.create(f"trap '' TERM; echo $$$$ > pid; {FOREVER}", name="old", metadata=gang)
            await bench.wait_for(has_phase("Running"), "old")
            path = bench.get_work(old) / "pid"
            await bench.wait_until(lambda: path.exists() and path.read_text().strip())
            pid = int(path.read_text())
            script = f"kill -0 {pid} 2>/dev/null && exit 9; exit 0"
            await bench.delete("old", 0)
            await bench.create(script, name="new", metadata=gang)
            pod = await bench.wait_for(is_over, "new")
            assert get_ended(pod)["exitCode"] == 0, "the old one was dead when the new one began"

    run(tmp_path, test)
