"""Programs that the launcher of an MPIJob starts in a worker, through the worker's shim."""

from __future__ import annotations

import array
import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.node.shims import Shims, make_spec, run, wait_until_dead
from trainmaster.remote_start import kubectl_exec
from trainmaster.remote_start.kubectl_exec import ExecCall, KubectlError, TryAgainError, find_worker_session
from trainmaster.shim.protocol import SandboxSpec

pytestmark = pytest.mark.node

POD = {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "main"}]}}
Result = TypeVar("Result")


async def start_worker(shims: Shims, gang: Path, script: str = "sleep 600") -> None:
    gang.mkdir()
    spec = make_spec(shims.root, script, env={"PATH": os.defpath, "WHO": "worker"})
    await shims.supervisor.create("u", SandboxSpec("u", "w", "default", "host", gang_socket=f"{gang}/u"), (spec,))
    await shims.wait_began("u")


async def call(work: Callable[[], Result]) -> Result:
    """In a thread, as the launcher is another process."""
    async with asyncio.timeout(40):
        return await asyncio.to_thread(work)


def ask(gang: Path, content: bytes, fds: list[int]) -> dict[str, Any]:
    """The last answer; {} if there is none."""
    link = kubectl_exec.find_shim(str(gang), "u")
    assert link is not None
    with link:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        link.sendmsg([content], ancillary)
        answer: dict[str, Any] = {}
        while found := kubectl_exec.receive(link):
            answer = found
        return answer


def test_a_program_has_the_callers_streams_and_its_code_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(shims: Shims) -> None:
        gang = tmp_path / ("g" * 120)
        await start_worker(shims, gang)
        monkeypatch.setenv(kubectl_exec.GANG, str(gang))
        out = tmp_path / "out"

        def execute(*command: str) -> int:
            session = find_worker_session(POD, ExecCall("w", ("sh", "-c", f"exec >{out}; {command[0]}")))
            assert session is not None
            return session.run()

        assert await call(lambda: execute("echo $WHO; cat; exit 7")) == 7
        assert out.read_text() == "worker\n", "it has the variables of the container, and no input"
        assert await call(lambda: execute("kill -9 $$")) == 137
        with pytest.raises(KubectlError, match='exec: "no-such": executable file not found'):
            await call(lambda: find_worker_session(POD, ExecCall("w", ("no-such",))))
        with pytest.raises(TryAgainError, match="container side is not running"):
            await call(lambda: find_worker_session(POD, ExecCall("w", ("true",), container="side")))
        other = {**POD, "metadata": {"uid": "another"}}
        assert find_worker_session(other, ExecCall("w", ("true",))) is None, "not a worker of this job"

    run(tmp_path / "pods", test)


def test_a_program_ends_with_its_caller_and_the_socket_with_the_pod(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        gang, mark = tmp_path / "gang", tmp_path / "pid"
        await start_worker(shims, gang)
        link = kubectl_exec.find_shim(str(gang), "u")
        assert link is not None
        words = ["sh", "-c", f"echo $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 600"]
        request = json.dumps({"container": "main", "argv": words}).encode()
        with open(os.devnull, "r+b") as nothing:
            socket.send_fds(link, [request], [nothing.fileno()] * 3)
        assert await call(lambda: kubectl_exec.receive(link)) == {"started": True}
        while not mark.exists():
            await asyncio.sleep(0.01)
        link.close()
        await wait_until_dead(int(mark.read_text()))
        await shims.supervisor.close("u")
        assert list(gang.iterdir()) == []

    run(tmp_path / "pods", test)


def test_nothing_but_programs_can_be_requested_and_nonsense_does_no_harm(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        gang = tmp_path / "gang"
        await start_worker(shims, gang)
        with open(os.devnull, "r+b") as nothing:
            three = [nothing.fileno()] * 3
            for content, fds, want in (
                (b'{"op": "close", "id": 1}', three, "container None is not running"),
                (b'{"container": "main", "argv": ["true"]}', [], "exec needs three descriptors"),
                (b'{"container": "main", "argv": "true"}', three, "exec needs argv, a list of strings"),
                (b'{"container": "main", "argv": ["a\\u0000b"]}', three, "embedded null byte"),
                (b'{"container": "main", "argv": ["\\ud800"]}', three, "surrogates not allowed"),
                (b'{"container": ["main"], "argv": []}', three, "is not running"),
                (b"[" * 100_000, three, ""),
                (b"7", three, ""),
            ):
                answer = await call(lambda content=content, fds=fds: ask(gang, content, fds))  # type: ignore[misc]
                assert want in answer.get("error", ""), (content[:40], answer)
            twice = json.dumps({"container": "main", "argv": ["id"], "uid": 1, "env": {"A": "b"}, "tty": True}).encode()
            assert await call(lambda: ask(gang, twice, three)) == {"code": 0}, "other fields have no effect"

        callers = [kubectl_exec.find_shim(str(gang), "u") for _ in range(70)]
        last = callers[-1]
        assert last is not None
        refused = await call(lambda: kubectl_exec.receive(last))
        assert refused["kind"] == "SessionError"
        for link in callers:
            assert link is not None
            link.close()
        assert shims.supervisor.has_shim("u")
        assert (await shims.supervisor.request("u", "stats"))[0]["pids"] > 0

    run(tmp_path / "pods", test)
