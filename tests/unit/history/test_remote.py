"""History from a cluster: what is asked for, what is copied, and what the record says is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from tests.unit.history.test_archive import make_trainjob
from trainmaster.api.labels import JOBSET_UID, REPLICATED_JOB_NAME
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, EVENTS, JOB_SETS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client, ListOptions, LogOptions, ObjectList
from trainmaster.history.logs import list_logs, read_lines
from trainmaster.history.remote import PODS_GONE, ClientGather

pytestmark = pytest.mark.unit


class Cluster:
    """What a cluster answers."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.logs_of: dict[tuple[str, bool], bytes | StatusError] = {}
        self.asked = 0
        self.controls = True
        """Whether the owner of the JobSet is its controller."""
        self.piece = 1 << 20
        self.ends_early = False
        self.jobset: Object = {}
        """More of the JobSet than its owner."""

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        if gvr == CONFIG_MAPS:
            raise NotFound(404, "NotFound", "no snapshot")
        assert gvr == JOB_SETS
        owner = {"uid": make_trainjob()["metadata"]["uid"], "kind": "TrainJob", "controller": self.controls}
        meta = {"name": name, "namespace": namespace, "uid": "js", "ownerReferences": [owner]}
        return {"metadata": meta, **self.jobset}

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = ListOptions()) -> ObjectList:  # noqa: B008
        if gvr == EVENTS:
            uid = options.field_selector.partition("=")[2]
            return ObjectList([{"metadata": {"uid": f"event-of-{uid}"}}], "1")
        assert options.label_selector == f"{JOBSET_UID}=js"
        return ObjectList(self.pods if gvr == PODS else [], "1")

    async def logs(self, name: str, namespace: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked += 1
        answer = self.logs_of[options.container, options.previous]
        if isinstance(answer, StatusError):
            raise answer
        for place in range(0, len(answer), self.piece):
            yield answer[place : place + self.piece]
        if self.ends_early:
            raise StatusError(500, "InternalError", "the connection broke")


def make_pod(container: str, restarts: int = 0) -> Object:
    labels = {JOBSET_UID: "js", REPLICATED_JOB_NAME: "node"}
    state = {"name": container, "restartCount": restarts, "state": {"terminated": {"exitCode": 0}}}
    meta = {"name": "first-node-0-0-abcde", "namespace": "default", "uid": "p", "labels": labels}
    return {"metadata": meta, "status": {"containerStatuses": [state]}}


def test_logs_are_copied_once_with_the_attempt_before(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pods = [make_pod("trainer", restarts=1)]
    cluster.logs_of = {
        ("trainer", True): b"2026-01-01T00:00:00Z first try\n",
        ("trainer", False): b"2026 a b\n2026 c\n",
    }
    gather = ClientGather(cast(Client, cluster), tmp_path)

    async def main() -> None:
        sources = await gather(make_trainjob(), ())
        assert list(sources.gaps) == [] and len(sources.pods) == 1
        assert {event["metadata"]["uid"] for event in sources.events} >= {"event-of-js", "event-of-p"}
        await gather(make_trainjob(), ("js",))
        assert cluster.asked == 2

    asyncio.run(main())
    logs = list_logs(tmp_path, ["js"])
    assert [[text for _, text in read_lines(log)] for log in logs] == [[b"first try"], [b"a b", b"c"]]


@pytest.mark.parametrize("piece", [1000, 16384, 1 << 20])
def test_a_large_log_is_copied_piece_by_piece(tmp_path: Path, piece: int) -> None:
    texts = [b"first", b"", b"50%\r60%", b"x" * 100_000, b"y" * 16384, b"last"]
    cluster = Cluster()
    cluster.piece = piece
    cluster.pods = [make_pod("trainer")]
    cluster.logs_of = {("trainer", False): b"\n".join(b"2026-01-01T00:00:00Z " + text for text in texts)}
    asyncio.run(ClientGather(cast(Client, cluster), tmp_path)(make_trainjob(), ()))
    (log,) = list_logs(tmp_path, ["js"])
    assert [text for _, text in read_lines(log)] == texts
    assert {moment for moment, _ in read_lines(log)} == {"2026-01-01T00:00:00Z"}
    entries = log.pieces[0].read_bytes().splitlines()
    assert max(map(len, entries)) <= 16384 + len(b"2026-01-01T00:00:00Z stdout P ")


def test_a_log_whose_transfer_breaks_is_a_gap_and_leaves_no_file(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.ends_early = True
    cluster.pods = [make_pod("trainer")]
    cluster.logs_of = {("trainer", False): b"2026-01-01T00:00:00Z beginning\n"}
    sources = asyncio.run(ClientGather(cast(Client, cluster), tmp_path)(make_trainjob(), ()))
    assert "the connection broke" in sources.gaps[0]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    cluster.pods = []
    assert list(asyncio.run(ClientGather(cast(Client, cluster), tmp_path)(make_trainjob(), ())).gaps) == [PODS_GONE]


def test_a_log_that_the_cluster_refuses_is_a_gap_and_one_that_is_unreachable_an_error(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.pods = [make_pod("trainer")]
    gather = ClientGather(cast(Client, cluster), tmp_path)
    cluster.logs_of = {("trainer", False): StatusError(500, "InternalError", "node is away")}
    assert "node is away" in asyncio.run(gather(make_trainjob(), ())).gaps[0]
    cluster.logs_of = {("trainer", False): StatusError(503, "ServiceUnavailable", "later")}
    with pytest.raises(StatusError):
        asyncio.run(gather(make_trainjob(), ()))


def test_pods_that_were_gone_before_are_a_gap(tmp_path: Path) -> None:
    gather = ClientGather(cast(Client, Cluster()), tmp_path)
    assert list(asyncio.run(gather(make_trainjob(), ())).gaps) == [PODS_GONE]


def test_a_jobset_that_another_controls_is_not_part_of_the_record(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.controls = False
    sources = asyncio.run(ClientGather(cast(Client, cluster), tmp_path)(make_trainjob(), ()))
    assert (list(sources.jobsets), list(sources.gaps)) == ([], [])


def test_pods_of_earlier_attempts_and_a_log_that_went_with_its_container_are_gaps(tmp_path: Path) -> None:
    cluster = Cluster()
    job = {
        "name": "node",
        "template": {"spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "trainer"}]}}}},
    }
    cluster.jobset = {"spec": {"replicatedJobs": [job]}, "status": {"restarts": 1}}
    pod = make_pod("trainer")
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = "1"
    cluster.pods = [pod]
    cluster.logs_of = {("trainer", False): b"unable to retrieve container logs for containerd://" + b"0a" * 32}
    gaps = asyncio.run(ClientGather(cast(Client, cluster), tmp_path)(make_trainjob(), ())).gaps
    lost = "its container has been removed, and its log with it"
    assert list(gaps) == [
        f"no log of first-node-0-0-abcde, container trainer, restart 0: {lost}",
        "attempt 0: its 2 Pods are gone, and their logs with them",
        "attempt 1: the Pod of node 1 is gone, and its log with it",
    ]
