"""The node agent with real processes on a real in-process API server."""

from __future__ import annotations

import asyncio
import errno
import sys
from pathlib import Path

import pytest

from tests.node.bench import Bench, get_ended, has_phase, run
from trainmaster.api.conditions import is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import EVENTS, NODES, PODS
from trainmaster.client.contract import DeleteOptions
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.shim.processes import read_start_ticks

pytestmark = pytest.mark.node


def test_a_pod_runs_in_its_own_directory_and_reports_how_it_ended(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent() as agent:
            made = await bench.create('pwd; echo "$HOSTNAME"; exit 3', hostname="host")
            pod = await bench.wait_for(has_phase("Succeeded", "Failed"))
            assert pod["status"]["phase"] == "Failed"
            assert (get_ended(pod)["exitCode"], get_ended(pod)["reason"]) == (3, "Error")
            directory = tmp_path / "pods" / made["metadata"]["uid"] / "work"
            assert await bench.read_log(agent, pod) == f"{directory}\nhost\n"
            assert (await bench.client.get(NODES, "local"))["status"]["conditions"][0]["type"] == "Ready"

    run(tmp_path, test)


def test_a_running_pod_is_ready_and_a_successful_one_completed(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("while [ ! -e go ]; do sleep 0.01; done")
            pod = await bench.wait_for(has_phase("Running"))
            assert is_true(list_conditions(pod), "Ready")
            assert pod["status"]["podIP"] == "127.0.0.1"
            (tmp_path / "pods" / made["metadata"]["uid"] / "work" / "go").touch()
            pod = await bench.wait_for(has_phase("Succeeded"))
            assert get_ended(pod)["exitCode"] == 0
            assert not is_true(list_conditions(pod), "Ready")

    run(tmp_path, test)


def test_deletion_asks_the_process_first_and_confirms_when_it_is_gone(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent() as agent:
            made = await bench.create("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
            pod = await bench.wait_for(has_phase("Running"))
            async with asyncio.TaskGroup() as group:
                following = group.create_task(bench.read_log(agent, pod, follow=True))
                path = tmp_path / "pods" / made["metadata"]["uid"] / "logs" / "main" / "0.log"
                while "up" not in path.read_text():
                    await asyncio.sleep(0.01)
                await bench.client.delete(PODS, "p", "default", DeleteOptions())
            assert following.result().splitlines()[0] == "up"
            assert "bye" in following.result().splitlines()
            await bench.wait_until_gone()
            async with asyncio.timeout(10):
                while (tmp_path / "pods" / made["metadata"]["uid"]).exists():
                    await asyncio.sleep(0.01)

    run(tmp_path, test)


def test_what_ignores_the_request_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            await bench.create("trap '' TERM; while :; do sleep 0.01; done", terminationGracePeriodSeconds=1)
            await bench.wait_for(has_phase("Running"))
            await bench.client.delete(PODS, "p", "default", DeleteOptions())
            await bench.wait_until_gone()

    run(tmp_path, test)


def test_a_pod_deleted_by_force_leaves_no_process(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("trap '' TERM; echo $$$$ > pid; while :; do sleep 0.01; done")
            path = tmp_path / "pods" / made["metadata"]["uid"] / "work" / "pid"
            async with asyncio.timeout(20):
                while not path.exists() or not path.read_text().strip():
                    await asyncio.sleep(0.01)
            pid = int(path.read_text())
            await bench.client.delete(PODS, "p", "default", DeleteOptions(grace_seconds=0))
            async with asyncio.timeout(20):
                while read_start_ticks(pid) is not None or path.exists():
                    await asyncio.sleep(0.01)

    run(tmp_path, test)


async def list_warnings(bench: Bench) -> list[tuple[str, str]]:
    events = (await bench.client.list(EVENTS, "default")).items
    return [(event["reason"], event["message"]) for event in events if event["type"] == "Warning"]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        pytest.param(
            {"hostPID": True},
            "Unsupported",
            "this node does not carry out spec.hostPID",
            id="a field that is not carried out",
        ),
    ],
)
def test_a_pod_that_cannot_run_as_asked_fails_and_names_the_field(
    tmp_path: Path, spec: Object, reason: str, message: str
) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            await bench.create("true", **spec)
            pod = await bench.wait_for(has_phase("Failed"))
            assert (pod["status"]["reason"], pod["status"]["message"]) == (reason, message)
            assert await list_warnings(bench) == [(reason, message)]

    run(tmp_path, test)


def test_what_the_scheduler_has_heeded_or_means_nothing_here_does_not_keep_a_pod_from_running(tmp_path: Path) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            await bench.create(
                "true",
                affinity={"nodeAffinity": required},
                topologySpreadConstraints=[spread],
                imagePullSecrets=[{"name": "registry"}],
            )
            pod = await bench.wait_for(has_phase("Succeeded", "Failed"))
            assert pod["status"]["phase"] == "Succeeded", pod["status"]

    run(tmp_path, test)


def test_a_command_that_does_not_exist_is_a_start_error(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            container = {"name": "main", "image": "i", "command": ["no-such-program"]}
            await bench.create("", containers=[container])
            pod = await bench.wait_for(has_phase("Failed"))
            assert (get_ended(pod)["exitCode"], get_ended(pod)["reason"]) == (128, "StartError")
            assert 'exec: "no-such-program": executable file not found' in get_ended(pod)["message"]
            assert await list_warnings(bench) == [("Failed", f"Error: {get_ended(pod)['message']}")]

    run(tmp_path, test)


def test_a_failing_container_restarts_in_place_and_keeps_a_log_per_attempt(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent() as agent:
            script = "echo attempt; [ -e second ] && exec sleep 1000; touch second; exit 1"
            await bench.create(script, restartPolicy="OnFailure")
            pod = await bench.wait_for(
                lambda pod: (
                    pod["status"].get("containerStatuses", [{}])[0].get("restartCount") == 1
                    and has_phase("Running")(pod)
                    and "running" in pod["status"]["containerStatuses"][0]["state"]
                )
            )
            assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
            assert await bench.read_log(agent, pod, previous=True) == "attempt\n"
            await bench.client.delete(PODS, "p", "default", DeleteOptions(grace_seconds=1))
            await bench.wait_until_gone()

    run(tmp_path, test)


def test_an_image_is_mapped_to_the_python_environment_and_said_so(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent() as agent:
            container = {"name": "main", "image": "i:1", "command": ["python", "-c", "import orjson; print('there')"]}
            await bench.create("", containers=[container])
            pod = await bench.wait_for(has_phase("Succeeded", "Failed"))
            assert await bench.read_log(agent, pod) == "there\n"
            events = (await bench.client.list(EVENTS, "default")).items
            said = [event["message"] for event in events if event["reason"] == "Approximated"]
            assert said == [f"image i:1 is run as the Python environment {sys.prefix}"]

    run(tmp_path, test)


def test_a_new_agent_takes_over_what_runs_and_starts_nothing_twice(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("echo started >> starts; while [ ! -e go ]; do sleep 0.01; done; exit 5")
            await bench.wait_for(has_phase("Running"))
        work = tmp_path / "pods" / made["metadata"]["uid"] / "work"
        async with bench.running_agent():
            (work / "go").touch()
            pod = await bench.wait_for(has_phase("Failed"))
            assert get_ended(pod)["exitCode"] == 5
            assert (work / "starts").read_text() == "started\n"

    run(tmp_path, test)


def test_what_a_pod_left_behind_is_swept_when_it_was_deleted_meanwhile(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("while :; do sleep 0.01; done")
            await bench.wait_for(has_phase("Running"))
        await bench.client.delete(PODS, "p", "default", DeleteOptions(grace_seconds=0))
        directory = tmp_path / "pods" / made["metadata"]["uid"]
        assert directory.exists()
        async with bench.running_agent(), asyncio.timeout(20):
            while directory.exists():
                await asyncio.sleep(0.01)

    run(tmp_path, test)


def test_a_process_that_cannot_be_ended_keeps_no_other_pod_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, but it waits for a device: its control group cannot be removed, at the next start of the node either."""
    close, stuck = Supervisor.close, set[str]()

    async def close_unless_stuck(self: Supervisor, uid: str) -> None:
        await close(self, uid)
        if uid in stuck:
            raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Supervisor, "close", close_unless_stuck)

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("while :; do sleep 0.01; done")
            await bench.wait_for(has_phase("Running"))
        await bench.client.delete(PODS, "p", "default", DeleteOptions(grace_seconds=0))
        stuck.add(made["metadata"]["uid"])
        directory = tmp_path / "pods" / made["metadata"]["uid"]
        async with bench.running_agent(), asyncio.timeout(20):
            await bench.create("true")
            await bench.wait_for(has_phase("Succeeded"))
            assert directory.exists()
            stuck.clear()
            while directory.exists():
                await asyncio.sleep(0.01)

    run(tmp_path, test)
