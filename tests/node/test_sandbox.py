"""A sandboxed Pod is a machine of its own, and leaves nothing behind; as root, and as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.node.sandboxes import LEVELS, ORDINARY, Sandboxes, run_sandboxed
from trainmaster.shim.protocol import FULL, OVERLAY, USER, Mount, Relay, ResourceLimits
from trainmaster.shim.sandbox import cgroups
from trainmaster.shim.sandbox.etc import rewrite_hosts

pytestmark = [pytest.mark.node, pytest.mark.parametrize("level", LEVELS)]

# Both ranks of a job listen or connect at 29500, sum their numbers and say the result.
RANK = """
import os, socket, time
rank, master = int(os.environ["RANK"]), os.environ["MASTER_ADDR"]
if rank == 0:
    listener = socket.create_server(("", 29500))
    peer, _ = listener.accept()
    total = int(os.environ["NUMBER"]) + int(peer.recv(16))
    peer.sendall(str(total).encode())
else:
    while True:
        try:
            peer = socket.create_connection((master, 29500), 1)
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(os.environ["NUMBER"].encode())
    total = int(peer.recv(16))
print("total", total, socket.gethostname(), socket.getfqdn())
"""
PYTHON = "/usr/bin/python3"


@pytest.fixture
def mark() -> str:
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an ordinary user can reach; that of pytest is the test user's own."""
    with tempfile.TemporaryDirectory(prefix="tm-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_two_jobs_on_the_same_port_meet_only_their_own_ranks(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pods = [(job, it.make_pod(job, rank, 2), rank) for job in ("red", "blue") for rank in (0, 1)]
        for job, pod, rank in pods:
            env = {
                "PATH": os.defpath,
                "RANK": str(rank),
                "MASTER_ADDR": f"{job}-0.{job}",
                "NUMBER": str({"red": 1, "blue": 100}[job] * (rank + 1)),
            }
            await it.start(pod, it.make_container(pod, "", argv=(PYTHON, "-c", RANK), env=env))
        for job, pod, rank in pods:
            ended = await it.wait_ended(pod.uid)
            output = it.read_log(pod.uid)
            assert ended.exited.code == 0, output
            total = {"red": 3, "blue": 300}[job]
            name = f"{job}-{rank}"
            assert output.split() == ["total", str(total), name, f"{name}.{job}.default.svc.cluster.local"]

    run_sandboxed(folder, level, mark, test)


def test_mount_points_that_the_machine_lacks_exist_only_for_the_pod(folder: Path, level: str, mark: str) -> None:
    places = (f"/{mark}/deep", f"/etc/{mark}", f"/usr/share/{mark}/x", f"/var/tmp/{mark}", f"/dev/{mark}")

    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        source = it.root / "volume"
        source.mkdir()
        (source / "file").write_text("content\n")
        (it.root / "single").write_text("one\n")
        mounts = [Mount(place, str(source)) for place in places]
        mounts += [
            Mount(f"/etc/{mark}.conf", str(it.root / "single"), read_only=True),
            Mount(f"{places[0]}/below", str(source), read_only=True),
        ]
        script = "".join(f"cat {place}/file; " for place in (*places, f"{places[0]}/below")) + f"cat /etc/{mark}.conf; "
        script += f"echo new > {places[1]}/new; echo no > {places[0]}/below/no 2>/dev/null || echo sealed; "
        script += f"ls /etc/passwd /usr/bin/env; echo no > /etc/{mark}.conf || echo sealed"
        output = await it.finish(pod, script, mounts=tuple(mounts))
        want = ["content"] * 6 + ["one", "sealed", "/etc/passwd", "/usr/bin/env"]
        assert [line for line in output.splitlines() if "cannot create" not in line] == [*want, "sealed"]
        assert (source / "new").read_text() == "new\n"
        assert not [place for place in (*places, f"/{mark}", f"/etc/{mark}.conf") if os.path.lexists(place)]

    run_sandboxed(folder, level, mark, test)


def test_the_machine_is_read_only_and_the_servers_home_is_empty(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        (it.root / "secret").write_text("token\n")
        pod = it.make_pod("a", 0, hide=(str(it.root), "/usr/share"))
        script = f"""
            ls -A /usr/share | wc -l
            cat {it.root}/secret 2>/dev/null
            for place in /usr /etc /var /opt; do touch $place/{mark} 2>/dev/null && echo wrote $place; done
            for place in /tmp /var/tmp /run /dev/shm /workspace; do
                touch $place/{mark} 2>/dev/null && echo $place $(ls -A $place | grep -v lock)
            done
            ls /proc/1/root 2>/dev/null && echo escaped
            ls -d /proc/[0-9]* | wc -l | tr -d '\\n' | sed 's/^[1-9]$/few/'
        """
        output = await it.finish(pod, script)
        want = ["0", *(f"{place} {mark}" for place in ("/tmp", "/var/tmp"))]
        lines = output.splitlines()
        assert lines[:3] == want
        # /run belongs to root, as everywhere; at the user level that is the Pod's own user.
        assert lines[-3:] == [f"/dev/shm {mark}", f"/workspace {mark}", "few"]
        assert not os.path.exists(f"/tmp/{mark}") and not os.path.exists(f"/dev/shm/{mark}")

    run_sandboxed(folder, level, mark, test)


def test_a_pod_has_its_own_names_and_unknown_ones_fail_at_once(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("job", 1, 3)
        script = """
            hostname; hostname -f; getent hosts job-2 | tr -s ' '; cat /etc/hostname
            timeout 2 getent hosts unknown.example || echo not found $?
            ls /sys/class/net | tr '\\n' ' '
        """
        output = await it.finish(pod, script)
        address = pod.hosts[2][0]
        full = "default.svc.cluster.local"
        assert output.splitlines() == [
            "job-1",
            f"job-1.job.{full}",
            f"{address} job-2.job.{full} job-2.job job-2",
            "job-1",
            "not found 2",
            "eth0 lo ",
        ]

    run_sandboxed(folder, level, mark, test)


def test_shared_memory_has_the_size_that_was_asked_for(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0, shm_bytes=8 << 20)
        script = "df -k /dev/shm | tail -1 | awk '{print $2}'; "
        script += "head -c 9000000 /dev/zero 2>/dev/null > /dev/shm/x || echo full"
        output = await it.finish(pod, script)
        assert output.splitlines()[0] == "8192" and output.splitlines()[-1] == "full"

    run_sandboxed(folder, level, mark, test)


def test_a_writable_layer_takes_changes_and_its_source_stays(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        source = it.root / "environment"
        source.mkdir()
        (source / "old").write_text("old\n")
        script = "cd /env; echo changed > old; echo new > new; cat old new; rm old; ls"
        output = await it.finish(pod, script, mounts=(Mount("/env", str(source), OVERLAY),))
        assert output.split() == ["changed", "new", "new"]
        assert [path.name for path in source.iterdir()] == ["old"] and (source / "old").read_text() == "old\n"

    run_sandboxed(folder, level, mark, test)


def test_run_as_user_is_who_the_program_is(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        script = "id -u; id -g; touch /tmp/x; stat -c %u /tmp/x; grep CapEff /proc/self/status; echo hi > /dev/stdout"
        output = await it.finish(it.make_pod("a", 0), script, run_as_user=4321, run_as_group=8765)
        assert output.split() == ["4321", "8765", "4321", "CapEff:", "0000000000000000", "hi"]
        unset = await it.finish(it.make_pod("b", 0), "id -u")
        assert unset.strip() == str(0 if level == FULL else ORDINARY)
        as_root = await it.finish(
            it.make_pod("c", 0), "id -u; chown 0 /tmp; mount -t tmpfs x /mnt 2>/dev/null || echo no", run_as_user=0
        )
        assert as_root.split() == ["0", "no"]

    run_sandboxed(folder, level, mark, test)


def test_a_read_only_root_leaves_only_volumes_writable(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        script = f"for p in / /tmp /run /var /workspace /dev/shm; do touch $p/{mark} 2>/dev/null && echo $p; done; true"
        output = await it.finish(it.make_pod("a", 0), script, read_only_root=True)
        assert output.split() == ["/workspace", "/dev/shm"]

    run_sandboxed(folder, level, mark, test)


def test_exec_joins_the_container(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        await it.start(pod, it.make_container(pod, "echo kept > /tmp/kept; echo up; exec sleep 1000"))
        await it.wait_for_log(pod.uid, "up")
        reader, writer = os.pipe()
        silence = os.open(os.devnull, os.O_RDONLY)
        try:
            argv = [
                "/bin/sh",
                "-c",
                "cat /tmp/kept; hostname; id -u; grep CapEff /proc/self/status; ip -4 addr | grep -c inet",
            ]
            request = {"container": "main", "argv": argv, "tty": False}
            content, _ = await it.supervisor.request(pod.uid, "exec", fds=[silence, writer, writer], **request)
            code = await it.supervisor.get_exec_exit(pod.uid, content["exec_id"])
        finally:
            os.close(writer)
            os.close(silence)
        with os.fdopen(reader) as stream:
            said = stream.read().split()
        assert code == 0, said
        assert said[:3] == ["kept", "a-0", str(0 if level == FULL else ORDINARY)]
        assert said[4] == ("00000000a00425fb" if level == FULL else "0000000000000000")
        assert said[5] == "2"

    run_sandboxed(folder, level, mark, test)


def test_a_port_of_the_pod_can_be_reached_through_its_shim(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        script = "import socket; s = socket.create_server(('127.0.0.1', 8080)); print('up', flush=True); "
        script += "s.accept()[0].sendall(b'hello')"
        await it.start(pod, it.make_container(pod, "", argv=(PYTHON, "-c", script)))
        await it.wait_for_log(pod.uid, "up")
        _, fds = await it.supervisor.request(pod.uid, "connect", port=8080)
        with socket.socket(fileno=fds[0]) as link:
            link.setblocking(True)
            assert link.recv(16) == b"hello"

    run_sandboxed(folder, level, mark, test)


def test_relays_lead_out_of_the_pods_network(folder: Path, level: str, mark: str) -> None:
    """A forward reaches a server on the machine's loopback; the proxy refuses to lead there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def test(it: Sandboxes) -> None:
            relays = (Relay("10.96.0.1", 443, "127.0.0.1", port), Relay("10.96.0.2", 3128))
            pod = it.make_pod("a", 0, relays=relays)
            script = f"""
import socket
with socket.create_connection(("10.96.0.1", 443), 20) as link:
    link.sendall(b"ping"); print(link.recv(16).decode())
with socket.create_connection(("10.96.0.2", 3128), 20) as link:
    link.sendall(b"CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n"); print(link.recv(4096).decode().split("\\r\\n")[0])
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError as error:
    print(error.strerror)
"""
            await it.start(pod, it.make_container(pod, "", argv=(PYTHON, "-c", script)))
            await it.wait_began(pod.uid)
            loop = asyncio.get_running_loop()
            link, _ = await loop.run_in_executor(None, server.accept)
            with link:
                link.sendall(await loop.run_in_executor(None, link.recv, 16) + b"-pong")
            ended = await it.wait_ended(pod.uid)
            assert ended.exited.code == 0
            assert it.read_log(pod.uid).splitlines() == ["ping-pong", "HTTP/1.1 403 Forbidden", "Connection refused"]

        run_sandboxed(folder, level, mark, test)


def test_memory_beyond_the_limit_ends_as_out_of_memory(folder: Path, level: str, mark: str) -> None:
    """By the kernel as root; as an ordinary user without control groups, by the shim that watches."""

    async def test(it: Sandboxes) -> None:
        limits = ResourceLimits(memory=100 << 20)
        pod = it.make_pod("a", 0, limits=limits)
        script = (
            "import time; data = bytearray(300 << 20)\nfor i in range(0, len(data), 4096): data[i] = 1\ntime.sleep(600)"
        )
        await it.start(pod, it.make_container(pod, "", argv=(PYTHON, "-c", script), limits=limits))
        ended = await it.wait_ended(pod.uid)
        assert (ended.exited.code, ended.exited.oom_killed) == (137, True)
        other = it.make_pod("b", 0, limits=limits)
        await it.start(other, it.make_container(other, "kill -9 $$", limits=limits))
        assert not (await it.wait_ended(other.uid)).exited.oom_killed

    run_sandboxed(folder, level, mark, test)


def test_a_pod_is_frozen_for_a_moment_and_goes_on_or_dies(folder: Path, level: str, mark: str) -> None:
    """An ordinary user without control groups can freeze nothing, and nothing comes of it."""

    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        await it.start(pod, it.make_container(pod, "echo up; exec sleep 1000"))
        await it.wait_for_log(pod.uid, "up")
        await it.supervisor.pause(pod.uid, 1.0)
        if unified := cgroups.read_hierarchies().unified:
            events = Path(unified, cgroups.NODE_GROUP, pod.uid, "cgroup.events")
            await wait_for_text(events, "frozen 1")
            await wait_for_text(events, "frozen 0")
            await it.supervisor.pause(pod.uid, 1.0)
        await it.supervisor.kill(pod.uid, "main")
        assert (await it.wait_ended(pod.uid)).exited.signal == 9

    run_sandboxed(folder, level, mark, test)


async def wait_for_text(path: Path, text: str) -> None:
    async with asyncio.timeout(30):
        while text not in path.read_text():
            await asyncio.sleep(0.01)


def test_everything_goes_with_a_shim_that_is_killed(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0, limits=ResourceLimits(memory=1 << 30))
        await it.start(pod, it.make_container(pod, "(setsid sleep 1000 &) ; echo up; exec sleep 1000"))
        await it.wait_for_log(pod.uid, "up")
        os.kill(it.read_shim(pod.uid).pid, 9)
        await it.wait_lost(pod.uid)

    run_sandboxed(folder, level, mark, test)


def test_a_mount_that_cannot_be_made_says_why(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        directory = it.root / "volume"
        directory.mkdir()
        await it.start(pod, it.make_container(pod, "true", mounts=(Mount("/etc/passwd", str(directory)),)))
        ended = await it.wait_ended(pod.uid)
        assert ended.exited.code == 128
        assert ended.exited.error == "cannot mount a directory on /etc/passwd, which is a file"

    run_sandboxed(folder, level, mark, test)


def test_the_termination_message_is_taken_from_the_pods_own_path(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        await it.finish(pod, "echo done > /dev/termination-log", run_as_user=1000 if level == USER else 77)
        assert (await it.wait_ended(pod.uid)).exited.message == "done\n"

    run_sandboxed(folder, level, mark, test)


def test_trees_die_with_their_container_and_not_with_its_neighbour(folder: Path, level: str, mark: str) -> None:
    async def test(pods: Sandboxes) -> None:
        pod = pods.make_pod("j", 0)
        script = "setsid sleep 300 & sleep 300 & echo up; while [ ! -e {} ]; do sleep 0.02; done"
        one, two = (pods.make_container(pod, script.format(name), name=name) for name in ("one", "two"))
        await pods.start(pod, one, two)
        for name in ("one", "two"):
            await pods.wait_for_log(pod.uid, "up", name)
        before, _ = await pods.supervisor.request(pod.uid, "stats")
        (pods.root / f"work-{pod.uid}" / "one").touch()
        assert (await pods.wait_ended(pod.uid, "one")).exited.code == 0
        after, _ = await pods.supervisor.request(pod.uid, "stats")
        assert (before["pids"] >= 6, 3 <= after["pids"] <= 4) == (True, True), (before, after)
        await pods.supervisor.kill(pod.uid, "two")
        assert (await pods.wait_ended(pod.uid, "two")).exited.signal == 9
        last, _ = await pods.supervisor.request(pod.uid, "stats")
        assert last["pids"] == 0

    run_sandboxed(folder, level, mark, test)


def test_pods_on_different_bridges_reach_each_other(folder: Path, level: str, mark: str) -> None:
    """A bridge takes 1,024 ports: addresses that far apart hang on two of them."""

    async def test(it: Sandboxes) -> None:
        near, far = "10.244.0.9", "10.244.8.9"
        server = it.make_pod("near", 0, address=near)
        script = "import socket; s = socket.create_server(('', 29500)); print('up', flush=True); s.accept()"
        await it.start(server, it.make_container(server, "", argv=(PYTHON, "-c", script)))
        await it.wait_for_log(server.uid, "up")
        client = it.make_pod("far", 0, address=far, hosts=((far, "far"), (near, "near")))
        reach = f"{PYTHON} -c \"import socket; socket.create_connection(('near', 29500), 20); print('met')\""
        assert await it.finish(client, reach) == "met\n"

    run_sandboxed(folder, level, mark, test)


def test_a_new_zygote_finds_the_switch_of_the_old_one(folder: Path, level: str, mark: str) -> None:
    """A Pod that starts after the zygote was killed meets one that has run since before."""

    async def test(it: Sandboxes) -> None:
        first, second = it.make_pod("job", 0, 2), it.make_pod("job", 1, 2)
        script = "import socket; s = socket.create_server(('', 29500)); print('up', flush=True); s.accept()"
        await it.start(first, it.make_container(first, "", argv=(PYTHON, "-c", script)))
        await it.wait_for_log(first.uid, "up")
        await it.replace_zygote()
        reach = f"{PYTHON} -c \"import socket; socket.create_connection(('job-0.job', 29500), 20); print('met')\""
        assert await it.finish(second, reach) == "met\n"

    run_sandboxed(folder, level, mark, test)


def test_hosts_can_change_while_the_pod_runs(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        script = "echo up; until getent hosts late; do sleep 0.02; done"
        await it.start(pod, it.make_container(pod, script))
        await it.wait_for_log(pod.uid, "up")
        rewrite_hosts(it.supervisor.get_paths(pod.uid).directory, [*pod.hosts, ("10.244.9.9", "late")])
        assert (await it.wait_ended(pod.uid)).exited.code == 0
        assert it.read_log(pod.uid).split() == ["up", "10.244.9.9", "late"]

    run_sandboxed(folder, level, mark, test)


def test_containers_of_a_pod_share_network_and_shared_memory_but_not_files(folder: Path, level: str, mark: str) -> None:
    async def test(it: Sandboxes) -> None:
        pod = it.make_pod("a", 0)
        serve = (
            "import socket; s = socket.create_server(('127.0.0.1', 8080)); open('/dev/shm/x', 'w').write('shared'); "
        )
        serve += "open('/tmp/private', 'w').close(); print('up', flush=True); s.accept()"
        await it.start(pod, it.make_container(pod, "", argv=(PYTHON, "-c", serve)))
        await it.wait_for_log(pod.uid, "up")
        look = "import os, socket; socket.create_connection(('127.0.0.1', 8080), 20); print(open('/dev/shm/x').read(), "
        look += "os.path.exists('/tmp/private'), socket.gethostname())"
        await it.supervisor.start(pod.uid, it.make_container(pod, "", name="side", argv=(PYTHON, "-c", look)))
        assert (await it.wait_ended(pod.uid, "side")).exited.code == 0
        assert it.read_log(pod.uid, "side") == "shared False a-0\n"

    run_sandboxed(folder, level, mark, test)
