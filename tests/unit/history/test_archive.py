"""The archive on a real disk: records come back, twice is once, trouble is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.history import logs
from trainmaster.history.archive import FILE, Archive, ArchiveError, Filter
from trainmaster.history.record import DELETED, JobRecord, RecordedDeletion, RecordSources, build_record, merge
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.logs.lines import MAX_TEXT
from trainmaster.jobs.models.ranks import PodPlace, parse_place
from trainmaster.shim.log_sink import STDOUT, LogSink

pytestmark = pytest.mark.unit


def make_trainjob(uid: str = "u1", name: str = "a", end: str = "Complete") -> dict[str, Any]:
    conditions = [{"type": end, "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z"}] if end else []
    return {
        "metadata": {
            "uid": uid,
            "name": name,
            "namespace": "ns",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{}],
        },
        "spec": {"runtimeRef": {"name": "torch"}},
        "status": {"conditions": conditions},
    }


def make_record(
    uid: str = "u1", name: str = "a", end: str = "Complete", deletion: RecordedDeletion | None = None
) -> JobRecord:
    return build_record(RecordSources(make_trainjob(uid, name, end)), deletion)


GONE = RecordedDeletion("2026-01-01T01:00:00Z", "kubernetes-admin", "kubectl delete")


def test_a_record_comes_back_as_it_was_also_after_reopening(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    record = make_record()
    archive.put([record])
    archive.put([record])
    archive.close()
    again = Archive.open(tmp_path, read_only=True)
    assert again.find("u1") == record
    assert [line.uid for line in again.select()] == ["u1"]
    assert again.find("other") is None
    assert "managedFields" not in record.document["trainjob"]["metadata"]


def test_records_are_found_by_namespace_name_state_and_whether_they_are_gone(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.put([make_record("u1"), make_record("u2", "b", "Failed", GONE), make_record("u3", "a", "", GONE)])

    def find(**wanted: Any) -> list[str]:
        return sorted(line.uid for line in archive.select(Filter(**wanted)))

    assert find(name="a") == ["u1", "u3"]
    assert find(namespace="other") == []
    assert find(state="Failed") == ["u2"]
    assert find(deleted=True) == ["u2", "u3"]
    assert find(before="2026-01-01T00:30:00Z") == ["u1", "u2"]
    assert archive.list_kept() == {"u1"}
    archive.remove(["u2"])
    assert archive.measure()[0] == 2


def test_records_know_the_kind_of_their_job(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    other = {**make_trainjob("u2"), "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {}}}
    archive.put([make_record("u1"), build_record(RecordSources(other))])
    assert {line.uid: line.kind for line in archive.select()} == {"u1": "TrainJob", "u2": "PyTorchJob"}
    assert [line.uid for line in archive.select(Filter("ns", "a", kind="PyTorchJob"))] == ["u2"]
    assert [line.uid for line in archive.select(Filter("ns", "a", kind="TrainJob"))] == ["u1"]
    archive.remove(["u2"])
    archive._connection.execute("DROP TABLE kinds")  # as in an archive of an earlier version
    archive.close()
    old = Archive.open(tmp_path, read_only=True)
    assert [line.kind for line in old.select(Filter(kind="TrainJob"))] == ["TrainJob"]
    assert old.select(Filter(kind="PyTorchJob")) == []


def test_what_was_seen_is_remembered_until_its_record_says_that_it_is_gone(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.note({"u1": b'{"a":1}', "u2": b'{"a":2}'}, {"js1": "u1"})
    archive.put([make_record("u1")])
    assert set(archive.list_open()) == {"u1", "u2"}
    archive.put([make_record("u1", deletion=GONE)])
    assert archive.list_open() == {"u2": {"a": 2}}
    assert archive.list_jobsets("u1") == ["js1"]


def test_a_later_record_keeps_what_only_the_first_one_saw() -> None:
    pod = {"metadata": {"uid": "p", "name": "p"}, "status": {"phase": "Succeeded"}}
    event = {"metadata": {"uid": "e"}, "reason": "Created", "message": "m", "firstTimestamp": "t"}
    snapshot = {"data": {"runtime": "spec: {}"}}
    first = build_record(RecordSources(make_trainjob(), snapshot, pods=[pod], events=[event]))
    second = build_record(RecordSources(make_trainjob(end="")), GONE, ["a gap"])
    merged = merge(first, second)
    assert (merged.state, merged.finished, merged.deletion) == ("Complete", "2026-01-01T00:10:00Z", GONE)
    assert merged.document["runtime"] == "spec: {}"
    assert [entry["name"] for entry in merged.document["pods"]] == ["p"]
    assert [entry["reason"] for entry in merged.document["events"]] == ["Created"]
    assert merged.document["gaps"] == ["a gap"]
    assert merge(second, second) == second
    assert second.state == DELETED


def test_an_archive_of_a_newer_version_or_a_missing_one_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot open"):
        Archive.open(tmp_path / "none", read_only=True)
    archive = Archive.open(tmp_path)
    archive._connection.pragma("user_version", 99)
    archive.close()
    with pytest.raises(ArchiveError, match="newer version"):
        Archive.open(tmp_path)


def test_a_full_disk_is_said_and_leaves_the_archive_as_it_was(tmp_path: Path) -> None:
    archive = Archive.open(tmp_path)
    archive.put([make_record("u1")])
    archive._connection.pragma("max_page_count", archive._connection.pragma("page_count"))
    large = make_record("u2")
    large.document["noise"] = [str(hash(str(number))) for number in range(20_000)]
    with pytest.raises(ArchiveError, match="no space is left on the disk"):
        archive.put([large])
    assert archive.find("u2") is None
    assert archive.find("u1") is not None
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


PLACE = PodPlace("js", 2, "node", 0, 1, "a-node-0-1-x")


def test_the_place_of_a_pod_says_all_that_a_reader_selects_by() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-uid": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": "2",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    assert find_place({"metadata": {"name": "a-node-0-1-x", "labels": labels}}) == PLACE
    assert parse_place(str(PLACE)) == PLACE
    assert find_place({"metadata": {"name": "alone"}}) is None


def test_logs_are_kept_without_copying_and_survive_the_pod_directory(tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    folder = pod / "logs" / "node"
    folder.mkdir(parents=True)
    (folder / "0.log.1").write_bytes(b"2026-01-01T00:00:00Z stdout F one\n")
    (folder / "0.log").write_bytes(b"2026-01-01T00:00:01Z stdout P tw\n2026-01-01T00:00:01Z stdout F o\n")
    assert logs.keep(tmp_path / "archive", str(PLACE), pod) == 2
    assert logs.keep(tmp_path / "archive", str(PLACE), pod) == 0
    with (folder / "0.log").open("ab") as file:
        file.write(b"2026-01-01T00:00:02Z stderr F three\n")
    for file_ in folder.iterdir():
        file_.unlink()
    (log,) = logs.list_logs(tmp_path / "archive", ["js", "unknown"])
    assert (log.place, log.container, log.restart) == (PLACE, "node", 0)
    assert [text for _, text in logs.read_lines(log)] == [b"one", b"two", b"three"]
    logs.remove(tmp_path / "archive", ["js"])
    assert logs.list_logs(tmp_path / "archive", ["js"]) == []


def test_a_kept_log_says_what_rotation_dropped_and_returns_a_long_line_in_parts(tmp_path: Path) -> None:
    folder = tmp_path / "pod" / "logs" / "node"
    folder.mkdir(parents=True)
    sink = LogSink(str(folder / "0.log"), 3 << 20, 1)
    sink.feed(STDOUT, b"lost\n")
    for _ in range(6):
        sink.feed(STDOUT, b"x" * (1 << 20))
    sink.feed(STDOUT, b"end\nlast\n")
    sink.close()
    logs.keep(tmp_path / "archive", str(PLACE), tmp_path / "pod")
    (log,) = logs.list_logs(tmp_path / "archive", ["js"])
    (_, gap), *long, (_, last) = logs.read_lines(log)
    dropped = int(gap.removeprefix(b"trainmaster: the first ").split()[0])
    assert dropped + sum(len(text) for _, text in long) == len(b"lost\n") + (6 << 20) + len(b"end")
    assert last == b"last"
    assert {len(text) for _, text in long[:-1]} == {MAX_TEXT} and long[-1][1] == b"end"
    assert len({time for time, _ in long}) == 1, "all parts have the time of their line"
