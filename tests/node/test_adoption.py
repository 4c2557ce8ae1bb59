"""A new control plane finds everything as it is: many Pods, ends that nobody saw, other boots, older zygotes."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.node.shims import Shims, make_spec, run, supervising, wait_until_dead
from trainmaster.node.shims import zygotes
from trainmaster.node.shims.supervisor import SupervisorError
from trainmaster.shim.processes import is_alive, list_descendants
from trainmaster.shim.protocol import FULL, PLAIN, ProcessIdentity, write_whole
from trainmaster.shim.wire import Message

pytestmark = pytest.mark.node

MANY = 40


def read_zygote(root: Path) -> ProcessIdentity:
    return ProcessIdentity(**json.loads((root / ".zygote" / "zygote.json").read_bytes()))


def test_pods_are_adopted_with_what_happened_while_nobody_looked(tmp_path: Path) -> None:
    async def first() -> None:
        async with supervising(tmp_path, close=False) as shims:
            script = "while [ ! -e go ]; do sleep 0.02; done; echo last; exit 9"
            await asyncio.gather(*(shims.create(f"u{i}", make_spec(tmp_path, script)) for i in range(MANY // 2)))
            await asyncio.gather(*(shims.create(f"v{i}", make_spec(tmp_path, "sleep 1000")) for i in range(MANY // 2)))
            for happening in [await shims.wait_began(f"u{i}") for i in range(MANY // 2)]:
                assert happening.started.error == ""

    async def second() -> None:
        async with supervising(tmp_path) as shims:
            assert len(shims.supervisor.list_uids()) == MANY
            found = {uid: await shims.supervisor.adopt(uid) for uid in shims.supervisor.list_uids()}
            assert all(pod.alive and pod.list_lost() == [] for pod in found.values())
            for i in range(MANY // 2):
                newest = found[f"u{i}"].get_newest()["main"].exited
                exited = newest or (await shims.wait_ended(f"u{i}")).exited
                assert exited.code == 9
                assert shims.read_log(f"u{i}") == "last\n"
                assert found[f"v{i}"].get_newest()["main"].unfinished
            await shims.supervisor.signal("v0", "main", signal.SIGTERM)
            assert (await shims.wait_ended("v0")).exited.signal == signal.SIGTERM

    asyncio.run(first())
    (tmp_path / "go").touch()
    asyncio.run(second())


def test_a_pod_of_an_earlier_boot_is_lost_and_its_pid_is_left_alone(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        paths = shims.supervisor.get_paths("u")
        os.makedirs(f"{paths.directory}/run")
        stranger = ProcessIdentity(os.getpid(), 1, "another boot")
        write_whole(paths.identity, json.dumps({"pid": stranger.pid, "start_ticks": 1, "boot_id": "other"}).encode())
        write_whole(paths.started("main", 0), b'{"pid": %d, "at": 1.0}' % os.getpid())
        found = await shims.supervisor.adopt("u")
        assert (found.alive, found.rebooted, len(found.list_lost())) == (False, True, 1)
        await shims.supervisor.close("u")

    run(tmp_path, test)


def test_a_zygote_that_was_killed_is_replaced_and_its_pods_go_on(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        zygote = read_zygote(tmp_path)
        os.kill(zygote.pid, signal.SIGKILL)
        await wait_until_dead(zygote.pid)
        assert (await shims.run("v", "exit 5")).exited.code == 5
        assert read_zygote(tmp_path) != zygote
        await shims.supervisor.signal("u", "main", signal.SIGTERM)
        assert (await shims.wait_ended("u")).exited.signal == signal.SIGTERM

    run(tmp_path, test)


def test_a_zygote_of_another_version_is_replaced_for_new_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def first() -> ProcessIdentity:
        async with supervising(tmp_path, close=False) as shims:
            await shims.create("u", make_spec(tmp_path, "sleep 1000"))
            return read_zygote(tmp_path)

    async def second(old: ProcessIdentity) -> None:
        async with supervising(tmp_path) as shims:
            assert (await shims.supervisor.adopt("u")).alive
            assert (await shims.run("v", "exit 5")).exited.code == 5
            assert read_zygote(tmp_path) != old and is_alive(old), "it stays for the Pods that it has"
            await shims.supervisor.close("u")
            await wait_until_dead(old.pid)

    monkeypatch.setattr(zygotes, "get_fingerprint", lambda: "older")
    old = asyncio.run(first())
    monkeypatch.undo()
    asyncio.run(second(old))


def test_a_zygote_ends_when_it_has_nothing_to_do(tmp_path: Path) -> None:
    async def first() -> ProcessIdentity:
        async with supervising(tmp_path) as shims:
            await shims.run("u", "true")
            return read_zygote(tmp_path)

    async def second(zygote: ProcessIdentity) -> None:
        await wait_until_dead(zygote.pid)

    asyncio.run(second(asyncio.run(first())))


def test_a_supervisor_that_was_dropped_hears_of_what_it_missed(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "while [ ! -e go ]; do sleep 0.02; done; exit 3"))
        link = shims.supervisor._links["u"]
        link.close()
        (tmp_path / "go").touch()
        paths = shims.supervisor.get_paths("u")
        while not Path(paths.exited("main", 0)).exists():
            await asyncio.sleep(0.01)
        shims.supervisor._note_gone("u")
        assert (await shims.wait_ended("u")).exited.code == 3

    run(tmp_path, test)


def test_a_machine_without_descriptors_or_processes_left_says_so(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.run("warm", "true")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, limits[1]))
            for fd in held:
                os.close(fd)
            hoard = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
            with pytest.raises(SupervisorError, match="too many open files"):
                await shims.create("u", make_spec(tmp_path, "true"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in hoard:
            os.close(fd)
        assert (await shims.run("u", "exit 2")).exited.code == 2

    run(tmp_path, test)


@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_a_shim_whose_directory_was_removed_ends_with_everything_of_its_pod(tmp_path: Path, level: str) -> None:
    async def main() -> None:
        async with supervising(tmp_path, level=level) as shims:
            script = "trap '' TERM; setsid sleep 300 & echo up; while :; do sleep 0.05; echo tick; done"
            await shims.create("u", make_spec(tmp_path, script, directory="/"))
            await shims.wait_for_log("u", "up")
            shim = shims.read_shim("u")
            tree = [pid for pid, _ in list_descendants(shim.pid)]
            assert len(tree) > 1
            shutil.rmtree(shims.supervisor.get_paths("u").directory)
            await shims.wait_lost("u")
            await wait_until_dead(shim.pid, *tree)

    asyncio.run(main())


@pytest.mark.parametrize("was_ready", [False, True])
def test_a_shim_that_dies_as_soon_as_it_has_begun_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_ready: bool
) -> None:
    """Found by chaos: a second shim found the attempt begun, began nothing, and the Pod seemed to run for ever."""

    async def test(shims: Shims) -> None:
        supervisor = shims.supervisor
        ask = supervisor._ask_zygote

        async def ask_and_kill(uid: str, request: Message, wish: Any) -> bool:
            monkeypatch.undo()
            assert await ask(uid, request, wish)
            await shims.wait_began(uid)
            supervisor._forget(uid)
            shim = shims.read_shim(uid)
            os.kill(shim.pid, signal.SIGKILL)
            await wait_until_dead(shim.pid)
            return was_ready

        monkeypatch.setattr(supervisor, "_ask_zygote", ask_and_kill)
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        await shims.wait_lost("u")
        found = await supervisor.adopt("u")
        assert not found.alive and [attempt.container for attempt in found.list_lost()] == ["main"]

    run(tmp_path, test)
