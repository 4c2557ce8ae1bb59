"""Pods under shims: how they begin, what is recorded, how their trees end, and who gets what descriptor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.node.sandboxes import ORDINARY, Sandboxes, run_sandboxed
from tests.node.shims import Shims, make_spec, run, supervising, wait_until_dead
from trainmaster.node.shims.link import ShimError
from trainmaster.node.shims.supervisor import Began, SupervisorError
from trainmaster.shim import wire
from trainmaster.shim.processes import is_alive, read_start_ticks
from trainmaster.shim.protocol import HOST_NETWORK, PLAIN, VERSION, Exited, Mount, SandboxSpec

pytestmark = pytest.mark.node


def test_a_container_has_its_directory_environment_and_both_streams(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        env = {"PATH": os.defpath, "GREETING": "hello"}
        ended = await shims.run("u", 'pwd; echo "$GREETING"; echo err >&2; printf tail; exit 7', env=env)
        assert (ended.exited.code, ended.exited.signal) == (7, 0)
        assert sorted(shims.read_log("u").split()) == sorted([str(tmp_path), "hello", "err", "tail"])
        began = shims.happened[0]
        assert isinstance(began, Began)
        assert began.started.pid > 0 and began.started.error == ""
        found = await shims.supervisor.adopt("u")
        assert found.get_newest()["main"].exited == ended.exited

    run(tmp_path, test)


def test_a_signal_is_recorded_as_128_plus_its_number(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        exited = (await shims.run("u", "kill -SEGV $$")).exited
        assert (exited.code, exited.signal) == (139, signal.SIGSEGV)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("argv", "directory", "want"),
    [
        pytest.param(
            ("no-such-program",), "/", 'exec: "no-such-program": executable file not found in $PATH', id="path"
        ),
        pytest.param(("/no/such",), "/", 'exec: "/no/such": no such file or directory', id="file"),
        pytest.param(("/etc/passwd",), "/", 'exec: "/etc/passwd": permission denied', id="not executable"),
        pytest.param(
            ("true",), "/no", "cannot change into the working directory /no: No such file or directory", id="cwd"
        ),
    ],
)
def test_a_program_that_cannot_be_executed_says_why(
    tmp_path: Path, argv: tuple[str, ...], directory: str, want: str
) -> None:
    async def test(shims: Shims) -> None:
        ended = await shims.run("u", "", argv=argv, directory=directory)
        assert (ended.exited.code, ended.exited.error) == (128, want)
        assert (await shims.wait_began("u")).started.error == want

    run(tmp_path, test)


def test_a_container_gets_three_descriptors_default_signals_and_a_session_of_its_own(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        script = "ls /proc/self/fd | wc -l; grep -E 'SigBlk|SigIgn' /proc/self/status; ps -o sid= -p $$; echo $$"
        assert (await shims.run("u", script)).exited.code == 0
        fds, blocked, ignored, sid, pid = shims.read_log("u").strip().splitlines()
        assert fds == "4", "0, 1, 2 and that of the directory that ls reads"
        ordinary = (1 << 31) - 1  # above are signals that the C library keeps for itself
        assert (int(blocked.split()[1], 16) & ordinary, int(ignored.split()[1], 16) & ordinary) == (0, 0)
        assert sid.strip() == pid

    run(tmp_path, test)


ESCAPES = {
    "a child": "sleep 1000 & echo $!",
    "a child in a session of its own": "setsid sleep 1000 & echo $!",
    "a daemon that forked twice": "(setsid sh -c 'sleep 1000 & echo $!' &) ; sleep 0.1",
    "one without an environment": "env -i setsid sleep 1000 & echo $!",
    "one that ignores requests": "(trap '' TERM INT HUP; exec sleep 1000) & echo $!",
}


def test_whatever_a_container_leaves_behind_dies_with_it(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        script = "\n".join((*ESCAPES.values(), "sleep 0.05; exit 4"))
        assert (await shims.run("u", script)).exited.code == 4
        pids = [int(word) for word in shims.read_log("u").split()]
        assert len(pids) == len(ESCAPES)
        assert [pid for pid in pids if read_start_ticks(pid) is not None] == []

    run(tmp_path, test)


def test_with_several_containers_only_the_tree_of_the_ended_one_dies(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        script = "setsid sleep 1000 & echo $!; sleep 1000 & echo $!; echo up; while [ ! -e NAME ]; do sleep 0.02; done"
        first = make_spec(tmp_path, script.replace("NAME", "one"), name="one")
        second = make_spec(tmp_path, script.replace("NAME", "two"), name="two")
        await shims.create("u", first, second)
        mine = [int(word) for word in (await shims.wait_for_log("u", "up", "one")).split()[:2]]
        others = [int(word) for word in (await shims.wait_for_log("u", "up", "two")).split()[:2]]
        (tmp_path / "one").touch()
        await shims.wait_ended("u", "one")
        assert [read_start_ticks(pid) for pid in mine] == [None, None]
        assert None not in [read_start_ticks(pid) for pid in others]
        await shims.supervisor.kill("u", "two")
        assert (await shims.wait_ended("u", "two")).exited.signal == signal.SIGKILL
        assert [read_start_ticks(pid) for pid in others] == [None, None]

    run(tmp_path, test)


def test_the_polite_signal_reaches_the_whole_group(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        spec = make_spec(tmp_path, "trap 'echo stopped; exit 3' TERM; sleep 1000 & echo child; wait")
        await shims.create("u", spec)
        await shims.wait_for_log("u", "child")
        await shims.supervisor.signal("u", "main", signal.SIGTERM)
        assert (await shims.wait_ended("u")).exited.code == 3
        assert "stopped" in shims.read_log("u")

    run(tmp_path, test)


def test_closing_ends_everything_and_the_shim_too(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "trap '' TERM; setsid sleep 1000 & echo $!; wait"))
        child = int(await shims.wait_for_log("u", "\n"))
        began = await shims.wait_began("u")
        who = shims.read_shim("u")
        assert is_alive(who)
        await shims.supervisor.close("u")
        await wait_until_dead(child, began.started.pid, who.pid)
        found = await shims.supervisor.adopt("u")
        newest = found.get_newest()["main"].exited
        assert newest is not None and newest.signal == signal.SIGKILL, "how it ended is recorded all the same"
        assert not found.alive and found.list_lost() == []
        await shims.supervisor.remove("u")
        assert shims.supervisor.list_uids() == []

    run(tmp_path, test)


def test_an_attempt_is_never_begun_twice(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        spec = make_spec(tmp_path, "echo ran >> runs")
        await shims.create("u", spec)
        await shims.wait_ended("u")
        await shims.create("u", spec)
        await shims.supervisor.start("u", spec)
        with pytest.raises(ShimError, match="was begun before"):
            await shims.supervisor.request("u", "start", container="main", attempt=0)
        await shims.supervisor.close("u")
        await shims.create("u", spec)
        await shims.supervisor.start("u", make_spec(tmp_path, "echo again >> runs", attempt=1))
        await shims.wait_ended("u", attempt=1)
        assert (tmp_path / "runs").read_text() == "ran\nagain\n"

    run(tmp_path, test)


def test_a_shim_of_before_is_not_asked_to_mount_a_sub_path(tmp_path: Path) -> None:
    """It would look the path up by name, which another Pod of the volume may be changing."""

    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        identity = Path(shims.supervisor.get_paths("u").identity)
        said = json.loads(identity.read_bytes())
        assert said["version"] == VERSION
        with identity.open("r+") as file:  # it is locked: the file must stay the same
            file.write(json.dumps({**said, "version": 1}))
            file.truncate()
        spec = make_spec(tmp_path, "true", attempt=1, mounts=(Mount("/data", str(tmp_path), sub_path="a"),))
        with pytest.raises(SupervisorError, match="delete the Pod, and it starts anew"):
            await shims.supervisor.start("u", spec)
        await shims.supervisor.close("u")

    run(tmp_path, test)


def test_a_second_attempt_waits_for_the_end_of_the_first(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        await shims.wait_began("u")
        await shims.supervisor.start("u", make_spec(tmp_path, "true", attempt=1))
        assert not (await shims.supervisor.adopt("u")).get_newest()["main"].begun

    run(tmp_path, test)


def test_two_creators_make_one_shim_and_one_process(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        async with supervising(tmp_path, close=False) as second:
            spec = make_spec(tmp_path, "echo ran >> runs; echo up; sleep 1000")
            await asyncio.gather(shims.create("u", spec), second.create("u", spec))
            await shims.wait_for_log("u", "up")
        assert (tmp_path / "runs").read_text() == "ran\n"

    run(tmp_path, test)


def test_a_creator_hears_the_end_that_an_earlier_one_caused(tmp_path: Path) -> None:
    """The zygote had carried out the request of a control plane that was killed, when the next one asked again."""

    async def test(shims: Shims) -> None:
        ended = await shims.run("u", "exit 3")
        async with supervising(tmp_path, close=False) as later:
            await later.create("u", make_spec(tmp_path, "exit 3"))
            assert (await later.wait_ended("u")).exited == ended.exited

    run(tmp_path, test)


def test_a_sandbox_that_cannot_be_built_is_an_error_of_the_pod(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        pod = SandboxSpec("u", "u", "default", "host", level="unheard-of")
        with pytest.raises(SupervisorError, match="level unheard-of"):
            await shims.supervisor.create("u", pod, [make_spec(tmp_path, "true")])
        assert not (await shims.supervisor.adopt("u")).get_newest()["main"].begun

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("script", "fields", "want"),
    [
        pytest.param("echo done > run/main.0.message; exit 1", {}, "done\n", id="what it wrote"),
        pytest.param("echo Traceback >&2; exit 1", {"message_from_logs": True}, "Traceback\n", id="the end of its log"),
        pytest.param("echo fine", {"message_from_logs": True}, "", id="nothing when it succeeded"),
    ],
)
def test_the_termination_message_is_recorded(tmp_path: Path, script: str, fields: dict[str, bool], want: str) -> None:
    async def test(shims: Shims) -> None:
        directory = shims.supervisor.get_paths("u").directory
        assert (await shims.run("u", script, directory=directory, **fields)).exited.message == want

    run(tmp_path, test)


def test_a_program_run_inside_a_container_has_its_environment_and_reports_its_code(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000", env={"PATH": os.defpath, "OWN": "own"}))
        await shims.wait_began("u")
        reader, writer = os.pipe()
        silence = os.open(os.devnull, os.O_RDWR)
        argv = ["/bin/sh", "-c", 'echo "$OWN $MORE"; exit 6']
        answer, _ = await shims.supervisor.request(
            "u", "exec", [silence, writer, silence], container="main", argv=argv, env={"MORE": "more"}
        )
        os.close(writer)
        assert await shims.supervisor.get_exec_exit("u", answer["exec_id"]) == 6
        assert os.read(reader, 100) == b"own more\n"
        with pytest.raises(ShimError, match="executable file not found"):
            await shims.supervisor.request("u", "exec", [silence] * 3, container="main", argv=["no-such-program"])
        os.close(reader)
        os.close(silence)

    run(tmp_path, test)


def test_a_program_with_a_terminal_sees_its_size(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        await shims.wait_began("u")
        ours, theirs = os.openpty()
        answer, _ = await shims.supervisor.request(
            "u", "exec", [theirs], container="main", argv=["/bin/sh", "-c", "read x; stty size; tty -s"], tty=True
        )
        session = answer["exec_id"]
        await shims.supervisor.request("u", "resize", exec_id=session, rows=33, cols=77)
        os.write(ours, b"\n")
        assert await shims.supervisor.get_exec_exit("u", session) == 0
        assert b"33 77" in os.read(ours, 1000)
        os.close(ours)
        os.close(theirs)

    run(tmp_path, test)


def test_attaching_gives_its_input_once_and_a_copy_of_its_output(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        spec = make_spec(tmp_path, "echo ready; cat; echo end", stdin=True, stdin_once=True)
        await shims.create("u", spec)
        await shims.wait_for_log("u", "ready")
        answer, fds = await shims.supervisor.request("u", "attach", container="main", streams=["stdin", "stdout"])
        assert answer["streams"] == ["stdin", "stdout"]
        assert os.read(fds[1], 1000) == b"ready\n", "what it printed before the first client came"
        os.write(fds[0], b"typed ")
        wire.close_all(fds)
        # As if the control plane had died: the input does not end, and another client goes on.
        _, fds = await shims.supervisor.request("u", "attach", container="main", streams=["stdin", "stdout"])
        os.write(fds[0], b"on\n")
        os.close(fds[0])
        await shims.supervisor.request("u", "close_input", container="main")
        await shims.wait_ended("u")
        assert os.read(fds[1], 1000).endswith(b"on\nend\n")
        assert shims.read_log("u") == "ready\ntyped on\nend\n"
        os.close(fds[1])

    run(tmp_path, test)


def test_a_container_with_a_terminal_can_be_talked_to(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, 'tty -s && read x && echo "got $x"', stdin=True, tty=True))
        await shims.wait_began("u")
        _, fds = await shims.supervisor.request("u", "attach", container="main", streams=["stdin"])
        os.write(fds[0], b"word\n")
        assert (await shims.wait_ended("u")).exited.code == 0
        assert "got word" in shims.read_log("u")
        wire.close_all(fds)

    run(tmp_path, test)


def test_sockets_of_the_pod_are_handed_out(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        answer, fds = await shims.supervisor.request("u", "listen", port=0)
        with socket.socket(fileno=fds[0]) as listener:
            _, made = await shims.supervisor.request("u", "connect", port=answer["port"])
            with socket.socket(fileno=made[0]) as client, listener.accept()[0] as server:
                client.setblocking(True)
                client.sendall(b"through")
                assert server.recv(10) == b"through"
        with pytest.raises(ShimError, match=r"connection refused"):
            await shims.supervisor.request("u", "connect", port=answer["port"])

    run(tmp_path, test)


@pytest.mark.parametrize("bound", [True, False])
def test_a_program_of_a_client_ends_with_the_control_plane_and_a_hook_does_not(tmp_path: Path, bound: bool) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "echo up; exec sleep 1000"))
        await shims.wait_for_log("u", "up")
        silence = os.open(os.devnull, os.O_RDWR)
        argv = ["/bin/sh", "-c", "exec sleep 1000"]
        answer, _ = await shims.supervisor.request("u", "exec", [silence] * 3, container="main", argv=argv, bound=bound)
        os.close(silence)
        async with Shims(tmp_path).supervisor as other:
            await other.adopt("u")
            shims.supervisor._forget("u")  # as when the control plane is killed
            ended = other.get_exec_exit("u", answer["exec_id"])
            if bound:
                assert await asyncio.wait_for(ended, 30) == 137
            else:
                await other.request("u", "stats")
                assert not ended.done() and os.path.exists(f"/proc/{answer['pid']}")

    run(tmp_path, test)


def test_usage_counts_the_tree_of_the_pod(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000 & echo up; wait"))
        await shims.wait_for_log("u", "up")
        stats, _ = await shims.supervisor.request("u", "stats")
        assert stats["pids"] == 2
        assert stats["rss_bytes"] > 100_000

    run(tmp_path, test)


NONSENSE: list[tuple[str, dict[str, Any]]] = [
    ("fly", {}),
    ("start", {}),
    ("signal", {"container": "main", "signal": "x"}),
    ("exec", {}),
]


def test_a_shim_survives_nonsense(tmp_path: Path) -> None:
    async def test(shims: Shims) -> None:
        await shims.create("u", make_spec(tmp_path, "sleep 1000"))
        directory = shims.supervisor.get_paths("u").directory
        for nonsense in (b"{", b"[]", b"\0" * 1000, b"x" * 150_000):
            with wire.connect_in(directory, "shim.sock") as link:
                link.send(nonsense)
        for op, fields in NONSENSE:
            with pytest.raises(ShimError):
                await shims.supervisor.request("u", op, **fields)
        await shims.supervisor.signal("u", "main", signal.SIGKILL)
        exited = (await shims.wait_ended("u")).exited
        assert exited == Exited(137, exited.at, 9, memory=exited.memory)
        assert exited.memory > 1 << 20, "the largest resident size"

    run(tmp_path, test)


def test_an_ordinary_user_runs_plain_pods_that_leave_nothing_behind() -> None:
    async def test(pods: Sandboxes) -> None:
        pod = pods.make_pod("j", 0, 3, network=HOST_NETWORK, cgroup="")
        script = "id -u; setsid sleep 300 & (setsid sleep 300 &); echo err >&2; exit 3"
        await pods.start(pod, make_spec(pods.root, script))
        assert (await pods.wait_ended(pod.uid)).exited.code == 3
        assert sorted(pods.read_log(pod.uid).split()) == [str(ORDINARY), "err"]
        other = pods.make_pod("j", 1, 3, network=HOST_NETWORK, cgroup="")
        await pods.start(other, make_spec(pods.root, "setsid sleep 300 & echo up; wait"))
        await pods.wait_for_log(other.uid, "up")
        os.kill(pods.read_shim(other.uid).pid, 9)
        await pods.wait_lost(other.uid)
        third = pods.make_pod("j", 2, 3, network=HOST_NETWORK, cgroup="")
        await pods.start(third, make_spec(pods.root, "true", run_as_user=1))
        assert "runAsUser 1 needs a server that runs as root" in (await pods.wait_ended(third.uid)).exited.error

    with tempfile.TemporaryDirectory(prefix="tm-") as folder:  # pytest's own is closed to other users
        os.chmod(folder, 0o755)
        run_sandboxed(Path(folder), PLAIN, f"t{uuid4().hex[:10]}", test)
