"""Rows, pages and lines of the daily commands: what is shown of an object, on a terminal and in a pipe."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from datetime import UTC, datetime

import pytest

from tests.support.logworld import NAMESPACE, LogWorld, V1LogWorld
from tests.unit.cli.test_output import Terminal
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.api.training.failing.failures import summarize_failure
from trainmaster.cli import exits, terminal
from trainmaster.cli.commands.list import Watcher
from trainmaster.cli.commands.logs import Printer, add_arguments, read_wanted
from trainmaster.cli.commands.nodes import build_row as build_node_row
from trainmaster.cli.commands.submit import explain_refusal
from trainmaster.cli.context import CommandContext
from trainmaster.cli.jobpage import JobDetails, build_page, describe_pod
from trainmaster.cli.jobs import add_names, build_row
from trainmaster.cli.servers.flags import apply_kind
from trainmaster.cli.spans import show_span
from trainmaster.cli.waiting import read_goal
from trainmaster.jobs.logs.contract import Line, LogMark
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.submission.ordering import Manifest
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
LONG = "rank 3 of job a-node-0 ended with exit code 1 " + "tick " * 40


def make_job(**status: object) -> Object:
    meta = {"name": "a", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"runtimeRef": {"name": "plain"}}, "status": status}


def make_condition(kind: str, message: str = "m", status: str = "True") -> Object:
    head = {"type": kind, "status": status, "reason": "Because", "message": message}
    return {**head, "lastTransitionTime": "2026-01-01T00:30:00Z"}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({}, "Starting"),
        ({"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}, "Starting"),
        ({"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}, "Running"),
        ({"waiting": {"reason": "Queued", "message": "no room"}}, "Waiting"),
        ({"conditions": [make_condition("Suspended")]}, "Suspended"),
        ({"conditions": [make_condition("Suspended", status="False")], "jobsStatus": [{"ready": 1}]}, "Running"),
        ({"conditions": [make_condition("Suspended", status="False"), make_condition("Failed")]}, "Failed"),
        ({"conditions": [make_condition("Complete")], "waiting": {"reason": "Queued"}}, "Complete"),
    ],
    ids=["new", "pods start", "runs", "waits", "suspended", "resumed", "failed", "complete"],
)
def test_the_state_of_a_job_is_one_word(status: dict[str, object], want: str) -> None:
    assert TrainJob(make_job(**status)).state.word == want


def test_a_row_says_why_how_far_and_how_old() -> None:
    report = {"progressPercentage": 40, "estimatedRemainingSeconds": 75}
    job = make_job(waiting={"reason": "Queued", "message": "no room"}, trainerStatus=report)
    row = build_row(TrainJob(job), NOW, wide=True, all_namespaces=True)
    want = ["default", "a", "Waiting", "-", "40%", "1h", "plain", "1h", "1m15s", "Queued: no room"]
    assert list(row) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (200, "3m20s"), (3599, "59m"), (7500, "2h5m"), (90000, "1d1h"), (1e7, "115d")],
)
def test_spans_are_shown_in_two_units_at_most(seconds: float, want: str) -> None:
    assert show_span(seconds) == want


@pytest.mark.parametrize("width", [80, 60])
def test_no_line_of_a_page_is_wider_than_the_terminal(width: int) -> None:
    event = {"type": "Warning", "reason": "RankFailed", "message": LONG, "count": 3, "metadata": {}}
    events = [{**event, "involvedObject": {"kind": "TrainJob", "name": "a"}, "lastTimestamp": "2026-01-01T00:30:00Z"}]
    labels = {"jobset.sigs.k8s.io/jobset-uid": "u", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    pod = {"metadata": {"name": "a-node-0-0-" + "x" * 40, "labels": labels}, "spec": {"nodeName": "n"}, "status": {}}
    failure = {"message": "Traceback\nValueError", "rank": 0, "replicatedJob": "node", "attempt": 2, "exitCode": 1}
    job = make_job(conditions=[make_condition("Failed", LONG)], failure=failure)
    context = CommandContext({"COLUMNS": str(width), "NO_COLOR": "1"}, Terminal(), io.StringIO())
    lines = list(
        build_page(
            context, JobDetails(TrainJob(job), NOW, pods=[Pod(pod)], events=[ObjectEvent(one) for one in events])
        )
    )
    assert [line for line in lines if len(line) > width] == []
    text = "\n".join(lines)
    assert text.count("tick") == 40, "nothing of a long message is lost"
    assert "node 0, attempt 2, exit code 1" in text
    assert "kept until somebody deletes it" in text


TRACE = """Traceback (most recent call last):
  File "train.py", line 4, in <module>
    load(3)
ValueError: broken data in shard 3"""


def test_people_read_who_failed_how_and_the_last_words_once() -> None:
    who = "rank 1 of job a-node-0 (Pod a-node-0-1-x, container node) ended with exit code 1"
    message = f"jobset failed (first failed job: a-node-0); first failure: {who}; its last words:\n{TRACE}"
    failure = {"message": TRACE, "rank": 1, "replicatedJob": "node", "attempt": 0, "exitCode": 1, "reason": "Error"}
    job = make_job(conditions=[make_condition("Failed", message)], failure=failure)
    event = {"type": "Warning", "reason": "RankFailed", "message": f"first failure: {who}; its last words:\n{TRACE}"}
    events = [{**event, "metadata": {}, "involvedObject": {"kind": "TrainJob", "name": "a"}}]
    want = "rank 1: ValueError: broken data in shard 3, at train.py:4"
    assert build_row(TrainJob(job), NOW, wide=False, all_namespaces=False)[-1] == want
    story = JobDetails(TrainJob(job), NOW, events=[ObjectEvent(one) for one in events])
    page = "\n".join(build_page(CommandContext({}, io.StringIO(), io.StringIO()), story))
    assert page.startswith(f"TrainJob default/a: Failed\n  {want}\n")
    assert page.count("Traceback") == 1
    assert "jobset failed (first failed job: a-node-0)\n" in page
    assert TrainJob(job).state.message == message, "programs read all of it"


def test_reasons_are_as_short_as_they_can_be() -> None:
    message = 'job "a-node-0": waiting for 1 CPU: 0 of 2 free'
    waiting = TrainJob(make_job(waiting={"reason": "Queued", "message": message})).state
    assert (waiting.message, waiting.sentence) == (message, "Queued: waiting for 1 CPU: 0 of 2 free")
    kept = TrainJob(make_job(waiting={"reason": "FailedCreate", "message": 'job "a-node-0": exceeded quota'})).state
    assert kept.sentence == 'FailedCreate: job "a-node-0": exceeded quota'
    assert TrainJob(make_job(conditions=[make_condition("Complete")])).state.sentence == ""


def test_a_refused_runtime_is_told_without_the_webhook_and_with_what_helps() -> None:
    why = 'spec.RuntimeRef: Invalid value: "x": ClusterTrainingRuntime "x" not found'
    error = StatusError(403, "Forbidden", f'admission webhook "v.trainer" denied the request: {why}')
    obj = {"kind": "TrainJob", "metadata": {"name": "a"}}
    text = str(explain_refusal(Manifest(obj, "a.yaml"), error, []))
    assert text == f'a.yaml: TrainJob "a" was refused: {why}\n  `trainmaster runtimes` lists those that exist'


def test_a_deadline_is_told_whatever_rank_failed_before() -> None:
    condition = {**make_condition("Failed", "took too long"), "reason": "DeadlineExceeded"}
    job = make_job(conditions=[condition], failure={"rank": 0, "exitCode": 1})
    assert TrainJob(job).state.sentence == "DeadlineExceeded: took too long"


@pytest.mark.parametrize(
    ("failure", "want"),
    [
        ({"rank": 0, "exitCode": 3, "message": "bye"}, "rank 0: exit code 3: bye"),
        ({"rank": 0, "exitCode": 1, "message": "bye"}, "rank 0: exit code 1: bye"),
        (
            {"rank": 0, "exitCode": 2, "message": TRACE},
            "rank 0: exit code 2: ValueError: broken data in shard 3, at train.py:4",
        ),
        ({"rank": 0, "exitCode": 1, "message": f"KeyError: {'x' * 900}"}, f"rank 0: KeyError: {'x' * 147}..."),
        ({"rank": 2, "exitCode": 137, "signal": 9, "reason": "OOMKilled"}, "rank 2: SIGKILL (OOMKilled)"),
        ({"replicatedJob": "launcher", "rank": 0, "exitCode": 1}, "launcher 0: exit code 1"),
        ({"pod": "a-0", "reason": "Evicted", "message": "disk pressure"}, "Pod a-0: Evicted: disk pressure"),
    ],
    ids=["exit code", "not an exception", "another exit code", "long", "signal", "launcher", "evicted"],
)
def test_a_failure_is_summed_up_in_one_line(failure: Object, want: str) -> None:
    assert summarize_failure(failure) == want


def make_pod_status(phase: str, state: Object, **more: object) -> Object:
    return {"phase": phase, "containerStatuses": [{"state": state, **more}]}


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (make_pod_status("Running", {"running": {}}), ("Running", "-")),
        (make_pod_status("Pending", {"waiting": {"reason": "ImagePull"}}), ("ImagePull", "-")),
        (make_pod_status("Failed", {"terminated": {"exitCode": 3}}), ("Failed", "3")),
        (make_pod_status("Failed", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), ("OOMKilled", "137")),
        ({"phase": "Failed", "reason": "Evicted"}, ("Evicted", "-")),
        (make_pod_status("Running", {"running": {}}, lastState={"terminated": {"exitCode": 1}}), ("Running", "1")),
        (
            {
                **make_pod_status("Running", {"running": {}}),
                "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}],
            },
            ("Running", "-"),
        ),
    ],
    ids=["runs", "cannot start", "failed", "out of memory", "evicted", "restarted", "init container"],
)
def test_a_rank_shows_how_its_pod_is_and_how_it_ended(status: Object, want: tuple[str, str]) -> None:
    assert describe_pod(Pod({"metadata": {}, "status": status})) == want


@pytest.mark.parametrize(
    ("labels", "amounts", "want"),
    [
        (
            {"node.kubernetes.io/instance-type": "p5.48xlarge", "kubernetes.io/arch": "amd64",
             "kubernetes.io/os": "linux", "karpenter.sh/capacity-type": "spot"},
            {"nvidia.com/gpu": "8", "cpu": "192", "memory": "2097152Mi"},
            ["NotReady", "p5.48xlarge", "amd64", "linux", "8", "spot", "192", "2048.0Gi"],
        ),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, {}, ["NotReady", "-", "-", "-", "0", "on-demand", "-", "-"]),
        ({"cloud.google.com/gke-spot": "true"}, {"amd.com/gpu": "2", "nvidia.com/mig-1g.5gb": "7", "memory": "16Gi"},
         ["NotReady", "-", "-", "-", "9", "spot", "-", "16.0Gi"]),
    ],
    ids=["a GPU machine", "as EKS says it", "as GKE says it"],
)  # fmt: skip
def test_a_node_shows_what_manifests_select_by(
    labels: dict[str, str], amounts: dict[str, str], want: list[str]
) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": amounts}}
    assert build_node_row(node, NOW, wide=True)[1:9] == want


def test_lines_carry_their_rank_and_marks_go_to_standard_error() -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO())
    printer = Printer(context, prefix=True, timestamps=True, live=False)
    time = "2026-01-01T00:00:00.5Z"
    printer.show(Line(0, "node", 1, "node", time, b"a\xff"))
    printer.show(Line(0, "launcher", 0, "node", time, b"b"))
    printer.show(Line(0, "node", 0, "sidecar", time, b"c"))
    printer.show(Line(0, "worker", 1, "pytorch", time, b"d"))
    printer.show(LogMark("attempt", 1, "attempt 1"))
    printer.show(LogMark("gap", 1, "bad\x1b[2J"))
    assert isinstance(context.out, io.StringIO)
    assert isinstance(context.err, io.StringIO)
    assert (
        context.out.getvalue()
        == f"[1] {time} a\ufffd\n[launcher 0] {time} b\n[0 sidecar] {time} c\n[worker 1] {time} d\n"
    )
    assert context.err.getvalue() == "--- attempt 1\n--- gap: bad [2J\n"
    coloured = Printer(CommandContext({}, Terminal(), io.StringIO()), prefix=True, timestamps=False, live=False)
    assert coloured._build_prefix(Line(0, "node", 1, "node", "", b"")) == b"\x1b[35m[1]\x1b[0m "


@pytest.mark.parametrize("words", [("--since", "soon"), ("--tail", "-1"), ("--attempt", "1", "--all-attempts")])
def test_wrong_flags_of_logs_are_refused(words: tuple[str, ...]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(exits.Failure) as failure:
        read_wanted(parser.parse_args(["a", *words]))
    assert failure.value.code == exits.USAGE


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_watched_list_goes_on_with_every_change_that_shows(form: str) -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO())
    options = argparse.Namespace(
        namespace=NAMESPACE, kind="", selector="", state=None, output=form, all_namespaces=False, watch=True
    )

    async def main() -> None:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = LogWorld(cluster)
            await world.submit()
            watching = group.create_task(Watcher(cluster.client, context, options, kinds=False).run())
            await asyncio.sleep(1)
            await world.set_status({"waiting": {"reason": "Queued", "message": "m", "since": "2026-01-01T00:00:00Z"}})
            await asyncio.sleep(1)
            await world.set_status({"waiting": None, "jobsStatus": []})
            await asyncio.sleep(1)
            await cluster.client.delete(TRAIN_JOBS, world.name, NAMESPACE)
            await asyncio.sleep(1)
            watching.cancel()

    run_virtual(main())
    assert isinstance(context.out, io.StringIO)
    lines = context.out.getvalue().splitlines()
    if form == "json":
        assert [json.loads(line)["metadata"]["name"] for line in lines] == ["job"] * 4
        return
    assert lines[0].split()[:2] == ["NAME", "STATE"]
    assert [line.split()[1] for line in lines[1:]] == ["Starting", "Waiting", "Starting", "Deleted"]


def test_a_watched_list_of_several_kinds_is_aligned() -> None:
    """The kinds are listed one after the other, and states become longer."""
    context = CommandContext({}, io.StringIO(), io.StringIO())
    options = argparse.Namespace(
        namespace=NAMESPACE, kind="", selector="", state=None, output="table", all_namespaces=False, watch=True
    )

    async def main() -> None:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = V1LogWorld(cluster, "a-longer-name")
            await world.submit()
            await LogWorld(cluster, "b").submit()
            watching = group.create_task(Watcher(cluster.client, context, options, kinds=True).run())
            await asyncio.sleep(1)
            await world.set_status({"conditions": [{"type": "Suspended", "status": "True", "reason": "x"}]})
            await asyncio.sleep(1)
            watching.cancel()

    run_virtual(main())
    assert isinstance(context.out, io.StringIO)
    header, *rows = context.out.getvalue().splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["PyTorchJob", "a-longer-name"],
        ["TrainJob", "b"],
        ["PyTorchJob", "a-longer-name"],
    ]
    assert [row[header.index("STATE") :].split()[0] for row in rows] == ["Starting", "Starting", "Suspended"]
    assert {row[header.index("NODES") :].split()[0] for row in rows} == {"1", "2"}


def test_a_watched_list_gets_a_column_of_kinds_when_another_kind_appears() -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO())
    options = argparse.Namespace(
        namespace=NAMESPACE, kind="", selector="", state=None, output="table", all_namespaces=False, watch=True
    )

    async def main() -> None:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            await LogWorld(cluster, "first").submit()
            watching = group.create_task(Watcher(cluster.client, context, options, kinds=False).run())
            await asyncio.sleep(1)
            await V1LogWorld(cluster, "second").submit()
            await asyncio.sleep(1)
            watching.cancel()

    run_virtual(main())
    assert isinstance(context.out, io.StringIO)
    lines = [line.split()[:2] for line in context.out.getvalue().splitlines()]
    assert lines[0][0] == "NAME" and lines[1][0] == "first"
    assert lines[2:] == [["KIND", "NAME"], ["PyTorchJob", "second"]]


def test_long_texts_are_wrapped_on_a_terminal_only() -> None:
    assert terminal.wrap(CommandContext({}, io.StringIO()), LONG, 4) == [LONG]
    wrapped = terminal.wrap(CommandContext({"COLUMNS": "40"}, Terminal()), LONG, 4)
    assert max(map(len, wrapped)) <= 36
    assert " ".join(wrapped).split() == LONG.split()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("train", "train"),
        ("trainjob.trainer.kubeflow.org/train", "trainjob/train"),
        ("trainjobs/train", "trainjob/train"),
        ("PyTorchJob/train", "pytorchjob/train"),
        ("pytorchjobs.kubeflow.org/train", "pytorchjob/train"),
    ],
)
def test_a_job_is_named_as_other_commands_print_it(text: str, want: str) -> None:
    parser = argparse.ArgumentParser()
    add_names(parser)
    assert parser.parse_args([text]).names == [want]


@pytest.mark.parametrize("argv", [["-k", "tfjobs", "a", "mpijob/b"], ["a", "mpijob/b", "-k", "TFJob"]])
def test_a_kind_is_for_all_names_that_have_none(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_names(parser)
    options = parser.parse_args(argv)
    apply_kind(options)
    assert options.names == ["tfjob/a", "mpijob/b"]


@pytest.mark.parametrize("argv", [["pod/train"], ["train", "-k", "pod"], ["pytorchjob.trainer.kubeflow.org/train"]])
def test_an_unknown_kind_is_refused_with_the_known_ones(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_names(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(argv)
    assert "is no kind of training job: the kinds are trainjob, pytorchjob, tfjob" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "want"),
    [("complete", "complete"), ("Succeeded", "complete"), ("condition=Failed", "failed"), ("Running", "running")],
)
def test_a_state_may_be_named_like_its_condition(text: str, want: str) -> None:
    assert read_goal(text) == want


def test_lines_of_another_pod_of_the_same_rank_are_told_apart() -> None:
    context = CommandContext({}, io.StringIO(), io.StringIO())
    printer = Printer(context, prefix=True, timestamps=False, live=False)
    for pod, text in (("a-0-x", b"1"), ("a-0-x", b"2"), ("a-0-y", b"3")):
        printer.show(Line(0, "node", 0, "node", "", text, pod=pod))
    printer.show(Line(1, "node", 0, "node", "", b"4", pod="a-0-z"))
    assert isinstance(context.err, io.StringIO)
    assert context.err.getvalue() == "--- node 0 from Pod a-0-y\n", "another attempt has a mark of its own"
