"""`trainmaster exec` without a server: which Pod, which words are the command's, and the frames on the wire."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import orjson
import pytest

from trainmaster.api import labels
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, PODS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.apiserver.http.streams.websocket import FrameReader, Piece
from trainmaster.cli import exits
from trainmaster.cli.commands import exec as command
from trainmaster.cli.commands.exec import get_pod
from trainmaster.client.http import Unreachable
from trainmaster.client.pod_exec import ERROR, STDERR, STDOUT, V4, V5, ExecSession, build_frame, read_end
from trainmaster.controllers.install import list_manifests, parse_manifest
from trainmaster.testing.cluster import Cluster, running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit


def split(*argv: str) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    options = parser.parse_args(list(argv))
    return options, command._split(options)


@pytest.mark.parametrize(
    "argv",
    [
        ("job", "--rank", "2", "-it", "-n", "team", "--", "ls", "-l"),
        ("--rank", "2", "-it", "-n", "team", "job", "--", "ls", "-l"),
        ("-it", "job", "-n", "team", "--rank", "2", "--", "ls", "-l"),
    ],
)
def test_options_may_stand_before_and_behind_the_job(argv: tuple[str, ...]) -> None:
    options, words = split(*argv)
    assert (options.job, options.rank, options.stdin, options.tty, options.namespace) == ("job", 2, True, True, "team")
    assert words == ["ls", "-l"]


def test_the_command_keeps_its_own_options_and_dashes() -> None:
    assert split("job", "--", "sh", "-c", "x", "--", "-i")[1] == ["sh", "-c", "x", "--", "-i"]
    assert split("job", "ls", "-l")[1] == ["ls", "-l"]


@pytest.mark.parametrize("argv", [("job",), ("job", "--"), ("job", "-it")])
def test_without_a_command_an_example_is_shown(argv: tuple[str, ...]) -> None:
    with pytest.raises(exits.Failure, match="trainmaster exec job -it -- bash") as failure:
        split(*argv)
    assert failure.value.code == exits.USAGE


def make_pod(job: str, rank: int, *, attempt: int = 0, role: str = "node", phase: str = "Running") -> Object:
    marks = {
        labels.JOBSET_NAME: job,
        labels.JOBSET_UID: "u",
        labels.REPLICATED_JOB_NAME: role,
        labels.RESTART_ATTEMPT: str(attempt),
        labels.COMPLETION_INDEX: str(rank),
    }
    meta = {"name": f"{job}-{role}-{rank}-{attempt}", "namespace": "default", "labels": marks}
    return {"metadata": meta, "spec": {"containers": [{"name": "node", "image": "x"}]}, "status": {"phase": phase}}


def make_runtime() -> Object:
    manifests = dict(list_manifests())
    return parse_manifest(manifests["plain"])


def make_trainjob(name: str) -> Object:
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return {**head, "metadata": {"name": name, "namespace": "default"}, "spec": {"runtimeRef": {"name": "plain"}}}


async def fill(cluster: Cluster, *pods: Object) -> None:
    for pod in pods:
        await cluster.client.create(PODS, pod, "default")
        name = pod["metadata"]["name"]
        stored = await cluster.client.get(PODS, name, "default")
        await cluster.client.update(PODS, {**stored, "status": pod["status"]}, "default", subresource="status")


@pytest.mark.parametrize(
    ("rank", "job", "expected"),
    [(None, "", "a-node-0-1"), (1, "", "a-node-1-1"), (0, "launcher", "a-launcher-0-1")],
)
def test_the_pod_of_the_newest_attempt_that_runs_is_chosen(rank: int | None, job: str, expected: str) -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            old = [make_pod("a", 0), make_pod("a", 1, phase="Failed")]
            new = [make_pod("a", 0, attempt=1), make_pod("a", 1, attempt=1)]
            launcher = make_pod("a", 0, attempt=1, role="launcher")
            await fill(cluster, *old, *new, launcher, make_pod("b", 0))
            await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, make_runtime())
            await cluster.client.create(TRAIN_JOBS, make_trainjob("a"), "default")
            found = await get_pod(cluster.client, "default", "a", rank, job)
            assert found["metadata"]["name"] == expected

    run_virtual(main())


def test_a_rank_that_does_not_run_and_a_job_that_is_none_are_told_apart() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            await fill(cluster, make_pod("job", 0))
            with pytest.raises(exits.Failure, match='there is no TrainJob "job"') as failure:
                await get_pod(cluster.client, "default", "job", None)
            assert failure.value.code == exits.NOT_FOUND
            await cluster.client.create(CLUSTER_TRAINING_RUNTIMES, make_runtime())
            await cluster.client.create(TRAIN_JOBS, make_trainjob("job"), "default")
            with pytest.raises(exits.Failure, match=r"no Pod of rank 3 of node runs \(running: node-0\)"):
                await get_pod(cluster.client, "default", "job", 3)
            with pytest.raises(exits.Failure, match="did you mean job"):
                await get_pod(cluster.client, "default", "jbo", None)

    run_virtual(main())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_the_server_understands_our_frames(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    frame = build_frame(2, data[:size], b"\x01\x02\x03\x04")
    pieces = [event for event in FrameReader().feed(frame) if isinstance(event, Piece)]
    assert b"".join(piece.data for piece in pieces) == data[:size]


class Writer:
    def __init__(self) -> None:
        self.sent = b""

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        return None


def serve(*frames: tuple[int, bytes], protocol: str = V5) -> tuple[ExecSession, Writer]:
    reader, writer = asyncio.StreamReader(), Writer()
    for head, data in frames:
        size = bytes((len(data),)) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
        reader.feed_data(bytes((head,)) + size + data)
    reader.feed_eof()
    raw: Any = writer
    return ExecSession(reader, raw, protocol), writer


def test_outputs_pings_pieces_and_the_end_are_told_apart() -> None:
    async def main() -> None:
        failed = orjson.dumps({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}})
        session, writer = serve(
            (0x82, bytes((STDOUT,))),
            (0x02, bytes((STDOUT,)) + b"one "),
            (0x89, b"ping"),
            (0x80, b"two"),
            (0x82, bytes((STDERR,)) + b"bad"),
            (0x82, bytes((ERROR,)) + failed),
            (0x88, b"\x03\xe8"),
        )
        assert [item async for item in session.outputs()] == [(1, b"one "), (1, b"two"), (2, b"bad")]
        assert session.code == 7
        assert writer.sent[0] == 0x8A, "a pong first"

    run_virtual(main())


def test_a_connection_that_breaks_is_no_exit_code() -> None:
    async def main() -> None:
        session, _ = serve((0x82, bytes((STDOUT,)) + b"half"))
        with pytest.raises(Unreachable, match="before the program did"):
            assert [item async for item in session.outputs()] == [(1, b"half")]
        assert session.code is None

    run_virtual(main())


def test_only_the_newer_protocol_can_end_the_input() -> None:
    async def main() -> None:
        assert serve(protocol=V5)[0].close_input()
        session, writer = serve(protocol=V4)
        assert not session.close_input()
        assert writer.sent == b""

    run_virtual(main())


def test_a_masked_frame_of_a_server_is_refused() -> None:
    async def main() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"\x82\x81\x00\x00\x00\x00x")
        raw: Any = Writer()
        with pytest.raises(StatusError, match="no WebSocket"):
            _ = [item async for item in ExecSession(reader, raw, V5).outputs()]

    run_virtual(main())


def test_a_program_that_was_never_there_is_an_error_and_not_a_code() -> None:
    with pytest.raises(StatusError, match="no such file"):
        read_end(orjson.dumps({"status": "Failure", "message": "no such file", "code": 500}))
    with pytest.raises(StatusError, match="no Status"):
        read_end(b"[1]")
    assert read_end(b'{"status": "Success"}') == 0
