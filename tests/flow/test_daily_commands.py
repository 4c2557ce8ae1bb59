"""The daily commands on a control plane in this process: what is typed, what is printed, what the exit code says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.flow.plant import ScriptedNode
from tests.support.inprocess import Shell, running_shell
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS
from trainmaster.cli import exits
from trainmaster.client.contract import Client, PatchType
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordedDeletion, RecordSources, build_record

pytestmark = pytest.mark.flow


def decide(pod: Object, run: int) -> int:
    """By the name of the job: `good-...` ends well, `bad-...` fails, others run on."""
    name = pod["metadata"]["name"]
    return 0 if name.startswith("good") else 3 if name.startswith("bad") else -1


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_shell(str(tmp_path_factory.mktemp("home")), ScriptedNode(decide, seconds=0.05)) as shell:
        yield shell


@pytest.fixture
def shell(plant: Shell) -> Iterator[Shell]:
    """One plant for all tests; what one left is deleted after it."""
    yield plant

    async def clear(client: Client) -> None:
        await client.delete_collection(TRAIN_JOBS, "default")

    plant.do(clear)
    plant.do(wait_until_empty)


async def wait_until_empty(client: Client) -> None:
    while (await client.list(TRAIN_JOBS)).items:
        await asyncio.sleep(0.01)


def make(name: str, *, nodes: int = 1, runtime: str = "plain", **metadata: object) -> str:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, **metadata},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes, "command": ["true"]}},
    }
    return json.dumps(job)


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: once}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              backoffLimit: 0
              template: {spec: {restartPolicy: Never, containers: [{name: node, image: i}]}}
"""
BAD = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: bad-one}
spec: {runtimeRef: {name: once, kind: TrainingRuntime}, trainer: {command: ["false"]}}
"""


def test_submit_waits_for_a_good_end(shell: Shell) -> None:
    assert shell.must("submit", "-f", "-", "--wait", stdin=make("good-one", nodes=2)) == (
        "trainjob.trainer.kubeflow.org/good-one created\n"
    )
    row = shell.must("list").splitlines()[1].split()
    assert row[:4] == ["good-one", "Complete", "2", "-"]
    assert shell.must("get", "good-one", "-o", "name") == "trainjob.trainer.kubeflow.org/good-one\n"
    assert json.loads(shell.must("get", "good-one", "-o", "json"))["kind"] == "TrainJob"


def test_the_number_of_nodes_is_the_runtimes_if_the_job_has_none(shell: Shell, tmp_path: Path) -> None:
    runtime = RUNTIME.replace("once", "thrice").replace("numNodes: 1", "numNodes: 3")
    job = BAD.replace("bad-one", "good-three").replace("once", "thrice")
    (tmp_path / "b.yaml").write_text(job + "---" + runtime)
    shell.must("submit", "-f", str(tmp_path), "--wait")
    for command in (("list",), ("get", "good-three")):
        assert shell.must(*command).splitlines()[1].split()[:3] == ["good-three", "Complete", "3"]
    assert "3 (set by the runtime)" in shell.must("describe", "good-three")


def test_submit_makes_the_runtime_first_and_tells_a_failure(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(BAD + "---" + RUNTIME)
    assert shell("submit", "-f", str(tmp_path), "--wait") == exits.FAILED
    assert [line.split()[0].partition(".")[0] for line in shell.out.splitlines()] == ["trainingruntime", "trainjob"]
    assert "bad-one has ended: Failed" in shell.err
    page = shell.must("describe", "bad-one")
    assert "TrainJob default/bad-one: Failed" in page
    assert "ValueError: run 0" in page
    assert "trainmaster restart bad-one" in page
    row = next(line for line in page.splitlines() if line.strip().startswith("node 0"))
    assert row.split()[2:4] == ["Failed", "3"] or row.split()[3] == "3"
    assert shell("submit", "-f", str(tmp_path)) == exits.FAILED
    assert "already exists" in shell.err
    assert "trainmaster delete bad-one" in shell.err
    used = shell.must("runtimes", "once").splitlines()[1]
    assert used.endswith("1 ended")


def test_a_refused_field_is_shown_with_its_path_and_its_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(make("a", nodes=0) + "\n")
    assert shell("submit", "-f", str(file)) == exits.FAILED
    assert f'{file}: TrainJob "a" was refused' in shell.err
    assert "  spec.trainer.numNodes: " in shell.err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a: [1", "line 1: not YAML"),
        ("- 1", "not an object: it needs apiVersion"),
        ("kind: TrainJob", "apiVersion is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "metadata.name is missing"),
        ("", "there are no objects in there"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod", "line 5: apiVersion is missing"),
    ],
    ids=["no YAML", "a list", "no version", "no name", "empty", "second document"],
)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_sent(
    shell: Shell, tmp_path: Path, content: str, text: str
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(content)
    assert shell("submit", "-f", str(file)) == exits.USAGE
    assert text in shell.err
    assert str(file) in shell.err
    assert shell("submit", "-f", str(tmp_path / "absent.yaml")) == exits.USAGE
    assert "there is no such file" in shell.err


def test_a_dry_run_stores_nothing(shell: Shell) -> None:
    assert "created (dry run)" in shell.must("submit", "-f", "-", "--dry-run", stdin=make("good-dry"))
    assert shell("get", "good-dry") == exits.NOT_FOUND


def test_a_name_that_does_not_exist_brings_near_names(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("good-vision"))
    for command in ("get", "describe", "logs", "wait", "suspend", "resume", "restart", "delete", "explain", "top"):
        assert shell(command, "good-visoin") == exits.NOT_FOUND, command
        assert "did you mean good-vision?" in shell.err
    assert shell("get", "good-vision", "-n", "kube-system") == exits.NOT_FOUND
    assert "add `-n default`" in shell.err
    assert shell("get", "zzz") == exits.NOT_FOUND
    assert "trainmaster history list" in shell.err
    assert shell("outputs", "list", "good-visoin") == exits.NOT_FOUND


def test_a_deleted_job_is_not_taken_for_another_of_a_similar_name(shell: Shell) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-sound-2"))
    gone = json.loads(shell.must("get", "good-sound-2", "-o", "json"))
    gone["metadata"] |= {"name": "good-sound", "uid": "u-1"}
    archive = Archive.open(Path(shell.environ["TRAINMASTER_HOME"]) / "history")
    archive.put([build_record(RecordSources(gone), RecordedDeletion("2026-01-01T00:00:00Z"))])
    archive.close()
    for command in ("get", "describe", "wait", "suspend", "resume", "restart", "delete", "explain", "top"):
        assert shell(command, "good-sound") == exits.NOT_FOUND, command
        assert "default/good-sound was deleted at 2026-01-01T00:00:00Z (Complete); its record is kept" in shell.err
        assert "`trainmaster history get good-sound` shows how it ended" in shell.err
        assert "did you mean" not in shell.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--rank", "7"), "good-x has no rank 7: it has ranks 0 and 1"),
        (("--attempt", "9"), "good-x has no attempt 9: it has only attempt 0"),
        (("--step", "launcher"), "good-x has no step launcher: it has only step node"),
        (("-c", "sidecar"), "good-x has no container sidecar: it has only container node"),
        (("--rank", "7", "-f"), "good-x has no rank 7"),
    ],
)
def test_logs_of_what_a_job_does_not_have_are_refused(shell: Shell, flags: tuple[str, ...], words: str) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-x", nodes=2))
    assert shell("logs", "good-x", *flags) == exits.NOT_FOUND
    assert words in shell.err


def test_suspend_and_resume_wait_until_it_is_so(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("long"))
    shell.must("wait", "long", "--for", "running")
    assert shell.must("suspend", "long", "--wait") == "long suspended\n"
    assert shell.must("list", "--state", "Suspended").splitlines()[1].startswith("long")
    assert shell.must("suspend", "long") == "long suspended already\n"
    assert shell.must("resume", "long", "--wait") == "long resumed\n"
    shell.must("wait", "long", "--for", "running")


def test_what_has_ended_cannot_be_suspended(shell: Shell) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-two"))
    assert shell("suspend", "good-two") == exits.FAILED
    assert "has ended (Complete)" in shell.err
    assert shell("resume", "good-two") == exits.FAILED
    assert "trainmaster restart good-two" in shell.err


def test_the_exit_code_of_wait_tells_how_it_went(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("good-three"))
    shell.must("submit", "-f", "-", stdin=make("long-two"))
    assert shell("wait", "good-three") == exits.OK
    assert shell("wait", "good-three", "--for", "failed") == exits.FAILED
    assert shell("wait", "good-three", "long-two", "--for", "finished", "--timeout", "0s") == exits.TIMED_OUT
    assert "trainmaster list" in shell.err
    assert shell("wait", "long-two", "--timeout", "soon") == exits.USAGE


def test_delete_takes_all_with_it_and_says_what(shell: Shell) -> None:
    for name in ("long-a", "long-b", "long-c"):
        shell.must("submit", "-f", "-", stdin=make(name, labels={"team": "x" if name != "long-c" else "y"}))
        shell.must("wait", name, "--for", "running")
    assert "would be deleted" in shell.must("delete", "-l", "team=x", "--dry-run")
    shell.must("delete", "-l", "team=x", "--wait")
    assert [line.split()[0] for line in shell.out.splitlines()] == [
        "trainjob.trainer.kubeflow.org/long-a",
        "trainjob.trainer.kubeflow.org/long-b",
    ]
    assert "its Pods are stopped" in shell.out
    assert "trainmaster history list" in shell.err
    assert [line.split()[0] for line in shell.must("list").splitlines()[1:]] == ["long-c"]
    assert shell("delete") == exits.USAGE


def test_labels_select_in_all_namespaces_and_names_in_one(shell: Shell) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-l", labels={"team": "z"}))
    assert "would be deleted" in shell.must("delete", "-l", "team=z", "-A", "--dry-run")
    assert shell("delete", "good-l", "-A") == exits.USAGE
    assert "-n" in shell.err


def test_cleanup_deletes_only_what_somebody_agreed_to(shell: Shell) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-c"))
    assert shell("cleanup", "-A") == exits.FAILED
    assert "good-c" in shell.out
    assert "nobody to ask; add --yes" in shell.err
    assert shell("cleanup", "-A", stdin="no\n", terminal=True) == exits.FAILED
    assert "good-c" in shell.must("list")
    assert shell("cleanup", "-A", stdin="yes\n", terminal=True) == exits.OK
    assert shell.must("list") == ""
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-d"))
    assert shell("cleanup", "--yes", "-n", "default") == exits.OK
    assert shell.must("list") == ""
    assert shell("cleanup") == exits.OK, "there is nothing to ask about"


@pytest.mark.parametrize("action", [("get",), ("rotate",), ("disable",), ("enable",), ("delete", "--yes")])
def test_a_tenant_that_does_not_exist_ends_with_7(shell: Shell, action: tuple[str, ...]) -> None:
    assert shell("tenant", action[0], "nosuch", *action[1:]) == exits.NOT_FOUND
    assert "there is no tenant nosuch" in shell.err


def test_list_shows_progress_and_namespaces(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("long-p"))
    shell.must("wait", "long-p", "--for", "running")

    async def report(client: Client) -> None:
        status = {
            "trainerStatus": {
                "progressPercentage": 40,
                "estimatedRemainingSeconds": 200,
                "lastUpdatedTime": "2026-01-01T00:05:00Z",
            }
        }
        body = {"status": status}
        await client.patch(TRAIN_JOBS, "long-p", PatchType.MERGE, body, "default", subresource="status")

    shell.do(report)
    header, row = shell.must("list", "-A", "-o", "wide").splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["default", "long-p"]
    assert "40%" in row
    assert "3m20s" in row
    listed = yaml.safe_load(shell.must("list", "-o", "yaml"))
    assert listed["kind"] == "List"
    assert "managedFields" not in listed["items"][0]["metadata"]


def test_an_empty_list_says_how_to_begin(shell: Shell) -> None:
    assert shell.must("list") == ""
    assert "trainmaster submit -f FILE" in shell.err
    assert json.loads(shell.must("list", "-o", "json"))["items"] == []


def test_runtimes_and_nodes_are_listed_and_found_by_name(shell: Shell) -> None:
    rows = {line.split()[0]: line.split() for line in shell.must("runtimes").splitlines()[1:]}
    assert rows["torch-distributed"][1:4] == ["(all)", "torch", "1"]
    assert yaml.safe_load(shell.must("runtimes", "plain", "-o", "yaml"))["kind"] == "ClusterTrainingRuntime"
    assert shell("runtimes", "torch-distribute") == exits.NOT_FOUND
    assert "did you mean torch-distributed" in shell.err
    assert shell.must("nodes").splitlines()[1].split()[0] == "local"
    assert shell("nodes", "locall") == exits.NOT_FOUND
    assert "did you mean local?" in shell.err


def find_jobset(shell: Shell, name: str) -> Object:
    async def find(client: Client) -> Object:
        return await client.get(JOB_SETS, name, "default")

    found: Object = shell.do(find)
    return found


def test_a_running_job_is_restarted_under_its_name_and_attempts_are_counted_on(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("long-r", nodes=2))
    shell.must("wait", "long-r", "--for", "running")
    before = find_jobset(shell, "long-r")
    assert shell.must("restart", "long-r", "--wait").endswith("restarted: attempt 1\n")
    after = find_jobset(shell, "long-r")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["trainmaster.dev/first-attempt"] == "1"
    shell.must("wait", "long-r", "--for", "running")
    rows = [line.split() for line in shell.must("describe", "long-r").splitlines() if line.startswith("  node ")]
    assert [(row[1], row[2], row[5]) for row in rows] == [("0", "Running", "1"), ("1", "Running", "1")]
    assert shell.must("restart", "long-r", "--wait").endswith("restarted: attempt 2\n")


def test_a_job_that_has_ended_is_submitted_again_under_a_new_name(shell: Shell) -> None:
    shell.must("submit", "-f", "-", "--wait", stdin=make("good-r", labels={"team": "x"}))
    first = json.loads(shell.must("get", "good-r", "-o", "json"))
    assert "trainjob.trainer.kubeflow.org/good-r-2 created" in shell.must("restart", "good-r")
    assert "trainjob.trainer.kubeflow.org/good-r-3 created" in shell.must("restart", "good-r")
    again = json.loads(shell.must("get", "good-r-2", "-o", "json"))
    assert again["metadata"]["annotations"]["trainmaster.dev/rerun-of"] == f"good-r {first['metadata']['uid']}"
    assert (again["spec"], again["metadata"]["labels"]) == (first["spec"], {"team": "x"})
    shell.must("wait", "good-r-2")
    assert "good-r-4 created" in shell.must("restart", "good-r-2")
    assert shell("restart", "good-r", "--name", "good-r-2") == exits.FAILED
    assert "--name" in shell.err
    assert "Rerun of:" in shell.must("describe", "good-r-2")


def test_what_cannot_be_restarted_says_what_to_do(shell: Shell) -> None:
    shell.must("submit", "-f", "-", stdin=make("long-s"))
    shell.must("suspend", "long-s", "--wait")
    assert shell("restart", "long-s") == exits.FAILED
    assert "trainmaster resume long-s" in shell.err
    shell.must("resume", "long-s", "--wait")
    assert shell("restart", "long-s", "--name", "other") == exits.USAGE
    patched = make("long-t", annotations={"trainmaster.dev/restart": "soon"})
    assert shell("submit", "-f", "-", stdin=patched) == exits.FAILED
    assert "must be a number of an attempt" in shell.err
