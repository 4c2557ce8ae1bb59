"""The life of a Pod with real processes: init containers, sidecars, probes, hooks, stopping, messages."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.node.bench import Bench, find_status, get_ended, has_phase, is_over, run
from trainmaster.api.conditions import find_condition, is_true, list_conditions
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, PODS
from trainmaster.client.contract import WatchOptions

pytestmark = pytest.mark.node


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


FOREVER = "while :; do sleep 0.02; done"


def container(name: str, script: str, **fields: Any) -> Object:
    return {"name": name, "image": "i", "command": ["/bin/sh", "-c", script], **fields}


def test_init_containers_sidecars_and_main_containers_begin_and_end_in_order(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        say = "echo $0 >> order"
        proxy = container(
            "proxy", f"trap 'echo proxy-end >> order; exit 0' TERM; echo proxy >> order; {FOREVER}",
            restartPolicy="Always",
        )  # fmt: skip
        inits = [container("first", say.replace("$0", "first")), proxy, container("second", "echo second >> order")]
        async with bench.running_agent():
            made = await bench.create("echo main >> order; sleep 0.2; echo main-end >> order", initContainers=inits)
            pod = await bench.wait_for(is_over)
            assert pod["status"]["phase"] == "Succeeded"
            order = (bench.get_work(made) / "order").read_text().split()
            assert order[0] == "first" and set(order[1:3]) == {"proxy", "second"}
            assert order[3:] == ["main", "main-end", "proxy-end"]
            assert [find_status(pod, name)["ready"] for name in ("first", "second")] == [True, True]
            assert is_true(list_conditions(pod), "Initialized")

    run(tmp_path, test)


def test_a_failing_init_container_fails_the_pod_and_main_containers_never_run(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create("touch ran", initContainers=[container("setup", "exit 3")])
            pod = await bench.wait_for(is_over)
            assert (pod["status"]["phase"], get_ended(pod, "setup")["exitCode"]) == ("Failed", 3)
            assert find_status(pod)["state"] == {"waiting": {"reason": "PodInitializing"}}
            assert not (bench.get_work(made) / "ran").exists()

    run(tmp_path, test)


def test_a_short_life_takes_two_status_writes(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        options = WatchOptions(field_selector="metadata.name=p")
        async with bench.running_agent():
            await bench.create("true", name="warm-up")
            await bench.wait_for(is_over, "warm-up")
            phases: list[str] = []
            async with bench.client.watch(PODS, "default", options) as events:
                await bench.create("sleep 0.3")
                async with asyncio.timeout(30):
                    async for event in events:
                        phases.append(event.object["status"]["phase"])
                        if phases[-1] == "Succeeded":
                            break
            assert phases == ["Pending", "Running", "Succeeded"], "the first is the creation"

    run(tmp_path, test)


SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(self.path.strip("/")) else 503); self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


@pytest.mark.parametrize("kind", ["exec", "httpGet", "tcpSocket"])
def test_readiness_is_asked_inside_the_pod(tmp_path: Path, kind: str, free_port: int) -> None:
    handlers: dict[str, Object] = {
        "exec": {"exec": {"command": ["/bin/sh", "-c", "test -e ready"]}},
        "httpGet": {"httpGet": {"port": "web", "path": "/ready"}},
        "tcpSocket": {"tcpSocket": {"port": free_port}},
    }
    script = {
        "exec": FOREVER,
        "httpGet": f"exec python -c '{SERVER}'",
        "tcpSocket": f"while [ ! -e ready ]; do sleep 0.02; done; exec python -m http.server {free_port}",
    }
    main = {
        "readinessProbe": {**handlers[kind], "periodSeconds": 1},
        "ports": [{"name": "web", "containerPort": free_port}],
        "env": [{"name": "PORT", "value": str(free_port)}],
    }

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create(script[kind], main=main)
            pod = await bench.wait_for(has_phase("Running"))
            assert not find_status(pod)["ready"]
            ready = find_condition(list_conditions(pod), "Ready") or {}
            assert ready["reason"] == "ContainersNotReady"
            (bench.get_work(made) / "ready").touch()
            pod = await bench.wait_for(lambda pod: find_status(pod).get("ready"))
            assert is_true(list_conditions(pod), "Ready")
            await bench.remove()

    run(tmp_path, test)


def test_liveness_restarts_the_container_and_says_so(tmp_path: Path) -> None:
    probe: Object = {"exec": {"command": ["/bin/sh", "-c", "echo sick; test -e second"]}}
    probe |= {"periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1}
    script = f"[ -e first ] && touch second; touch first; trap '' TERM; {FOREVER}"

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            main = {"livenessProbe": {**probe, "terminationGracePeriodSeconds": 1}}
            await bench.create(script, main=main, restartPolicy="Always")
            pod = await bench.wait_for(lambda pod: find_status(pod).get("restartCount") == 1 and has_phase("Running"))
            assert find_status(pod)["lastState"]["terminated"]["exitCode"] == 137
            assert await bench.list_events("Unhealthy") == ["Liveness probe failed: sick"]
            assert "Container main failed liveness probe, will be restarted" in await bench.list_events("Killing")
            await bench.remove()

    run(tmp_path, test)


def test_hooks_run_inside_the_container_before_and_after(tmp_path: Path) -> None:
    lifecycle = {
        "postStart": {"exec": {"command": ["/bin/sh", "-c", "echo hello > greeting"]}},
        "preStop": {"exec": {"command": ["/bin/sh", "-c", "echo goodbye >> greeting; cp greeting /tmp/$NAME"]}},
    }
    note = f"greeting-{tmp_path.name}-{tmp_path.parent.name}"

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            main = {"lifecycle": lifecycle, "env": [{"name": "NAME", "value": note}]}
            made = await bench.create(FOREVER, main=main)
            await bench.wait_for(has_phase("Running"))
            assert (bench.get_work(made) / "greeting").read_text() == "hello\n"
            await bench.delete()
            await bench.wait_until_gone()
            left = Path("/tmp") / note
            assert left.read_text() == "hello\ngoodbye\n"
            left.unlink()

    run(tmp_path, test)


def test_a_failing_post_start_hook_ends_the_container(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            lifecycle = {"postStart": {"exec": {"command": ["/bin/sh", "-c", "echo no; exit 2"]}}}
            await bench.create(FOREVER, main={"lifecycle": lifecycle})
            pod = await bench.wait_for(is_over)
            assert pod["status"]["phase"] == "Failed"
            (text,) = await bench.list_events("FailedPostStartHook")
            assert text.endswith("exited with 2: no")

    run(tmp_path, test)


def test_a_program_can_poll_for_the_notice_and_leave_by_itself(tmp_path: Path) -> None:
    """Without any signal handler: it ignores the signal and looks at the file that the variable names."""
    script = """trap '' TERM; touch armed; while [ ! -e "$TRAINMASTER_STOP_NOTICE" ]; do sleep 0.02; done
                cat "$TRAINMASTER_STOP_NOTICE" > "/tmp/$NAME"; exit 0"""
    note = f"notice-{tmp_path.name}-{tmp_path.parent.name}"

    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            made = await bench.create(script, main={"env": [{"name": "NAME", "value": note}]})
            await bench.wait_until((bench.get_work(made) / "armed").exists)
            await bench.delete(grace=25)
            await bench.wait_until_gone()
            left = Path("/tmp") / note
            said = json.loads(left.read_text())
            assert said["reason"] == "Deleted" and 20 < said["seconds"] <= 25 and said["deadline"].endswith("Z")
            left.unlink()

    run(tmp_path, test)


def test_a_pod_past_its_deadline_fails_with_the_reason(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            await bench.create(FOREVER, activeDeadlineSeconds=1, restartPolicy="Always")
            pod = await bench.wait_for(is_over)
            assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
            assert get_ended(pod)["exitCode"] == 143

    run(tmp_path, test)


def test_the_termination_message_is_what_the_program_left_or_the_end_of_its_log(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            quiet = container("quiet", 'echo bye > "$PWD/note"; exit 1', terminationMessagePath="note")
            loud = container("loud", "echo Traceback; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
            await bench.create(containers=[quiet, loud])
            pod = await bench.wait_for(is_over)
            assert "Traceback" in get_ended(pod, "loud")["message"]

    run(tmp_path, test)


def test_a_mirror_pod_is_never_run(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
            made = await bench.create("true", name="mirror", metadata=mirror)
            await bench.create("true")
            await bench.wait_for(is_over)
            shown = await bench.client.get(PODS, "mirror", "default")
            assert shown["status"]["phase"] == "Pending"
            assert not bench.get_work(made).exists()

    run(tmp_path, test)


def test_what_is_missing_is_waited_for_and_named(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        async with bench.running_agent():
            source = {"configMapKeyRef": {"name": "later", "key": "a"}}
            main = {"env": [{"name": "A", "valueFrom": source}]}
            await bench.create('[ "$A" = 1 ]', main=main)
            pod = await bench.wait_for(
                lambda pod: "message" in (find_status(pod).get("state", {}).get("waiting") or {})
            )
            assert find_status(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
            assert pod["status"]["phase"] == "Pending"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"a": "1"}}
            await bench.client.create(CONFIG_MAPS, body, "default")
            pod = await bench.wait_for(is_over)
            assert pod["status"]["phase"] == "Succeeded"

    run(tmp_path, test)
