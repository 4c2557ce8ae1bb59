"""A TrainJob for another server: fields that it does not have, and code that is in the home of this machine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jobs.compose.test_compose import CODE, load, make_request
from trainmaster.api.code import build_volume
from trainmaster.api.meta import Object
from trainmaster.api.training.steps import find_container, get_template_spec, list_jobs
from trainmaster.cli.launch.manifests import SHAPE
from trainmaster.jobs.compose.carried import wrap
from trainmaster.jobs.compose.moving import MovedJob, MoveError, adapt_fields, find_code, move_code
from trainmaster.jobs.compose.trainjob import SupportedFields, compose

pytestmark = pytest.mark.unit

SPEC = ("runtimeRef", "trainer", "initializer", "suspend")
OLD = SupportedFields("m", frozenset({*SPEC, "podTemplateOverrides"}))
NEW = SupportedFields("m", frozenset({*SPEC, "runtimePatches"}))
DIGEST = f"sha256:{'a' * 64}"


def compose_job(runtime: str = "torch-distributed", **fields: Any) -> Object:
    return compose(make_request(code=CODE, **fields), load(runtime), SHAPE).trainjob


def test_terms_that_are_no_fields_there_become_annotations() -> None:
    job = compose_job(ttl_seconds=60, deadline_seconds=5)
    adapted, changes, missing = adapt_fields(job, NEW)
    assert "ttlSecondsAfterFinished" not in adapted["spec"]
    assert adapted["metadata"]["annotations"]["trainmaster.dev/ttl-seconds-after-finished"] == "60"
    assert adapted["metadata"]["annotations"]["trainmaster.dev/active-deadline-seconds"] == "5"
    assert [text.partition(" is no")[0] for text in changes] == [
        "spec.ttlSecondsAfterFinished",
        "spec.activeDeadlineSeconds",
    ]
    assert missing == []
    assert job["spec"]["ttlSecondsAfterFinished"] == 60, "what was given is not changed"
    assert adapt_fields(job, SHAPE)[0]["spec"] == {**job["spec"]}


def test_older_overrides_are_written_in_the_newer_form_and_not_the_other_way() -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}
    job = {"metadata": {"name": "j"}, "spec": {"runtimeRef": {"name": "r"}, "podTemplateOverrides": [override]}}
    adapted, changes, missing = adapt_fields(job, NEW)
    (patch,) = adapted["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["template"]["spec"]["template"]["spec"] == {"nodeSelector": {"a": "b"}}
    assert changes == ["spec.podTemplateOverrides is written as spec.runtimePatches"]
    assert missing == []
    assert adapt_fields(adapted, OLD)[2] == ["runtimePatches"]


def move(job: Object, runtime: Object) -> MovedJob:
    return move_code(job, runtime, "job-code-x")


def test_code_of_this_machine_is_unpacked_from_a_config_map() -> None:
    job, runtime = compose_job(), load("torch-distributed")
    moved = move(job, runtime)
    assert moved.runtime is None
    want = wrap(["python", "t.py"])
    trainer = moved.trainjob["spec"]["trainer"]
    assert [*trainer["command"], *trainer["args"]] == list(want)
    (patch,) = moved.trainjob["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "code", "emptyDir": {}},
        {"name": "code-packed", "configMap": {"name": "job-code-x"}},
    ]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "code", "mountPath": "/workspace/code"},
        {"name": "code-packed", "mountPath": "/workspace/.code", "readOnly": True},
    ]
    assert moved.trainjob["metadata"]["annotations"]["trainmaster.dev/code-config-map"] == "job-code-x"
    assert find_code(moved.trainjob, runtime) == ""


def test_what_runs_composed_for_a_cluster_and_what_is_moved_there_is_the_same() -> None:
    """Both ways to a cluster meet, also for MPI, whose workers need a derived runtime."""
    from trainmaster.jobs.compose.carried import carry

    for name in ("torch-distributed", "deepspeed-distributed"):
        base = load(name)
        code = carry(b"", "job-code-x", "job", "default", CODE.annotations)
        want = compose(make_request(code=code, nodes=2), base, SHAPE)
        moved = move(compose_job(name, nodes=2), base)
        assert moved.trainjob == want.trainjob
        assert moved.runtime == want.runtime


def test_the_runtime_may_mount_the_code_and_have_the_command() -> None:
    runtime = load("torch-distributed")
    pod = list_jobs(get_template_spec(runtime))[0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [build_volume(DIGEST, "src")]
    pod["containers"][0] |= {
        "command": ["python", "a.py"],
        "workingDir": "/src/pkg",
        "volumeMounts": [{"name": "src", "mountPath": "/src", "readOnly": True}],
    }
    job: Object = {"metadata": {"name": "j", "namespace": "n"}, "spec": {"runtimeRef": {}, "trainer": {"numNodes": 2}}}
    assert find_code(job, runtime) == DIGEST
    moved = move(job, runtime)
    trainer = moved.trainjob["spec"]["trainer"]
    assert [*trainer["command"], *trainer["args"]] == list(wrap(["python", "a.py"], "/src", enters=False))
    assert moved.runtime is not None
    assert moved.trainjob["spec"]["runtimeRef"]["name"] == moved.runtime["metadata"]["name"]
    node = find_container(list_jobs(get_template_spec(moved.runtime))[0], "node")
    assert node is not None
    assert {"name": "src", "mountPath": "/src"} in node["volumeMounts"], "it can be written to"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"subPath": "pkg"}, "mounted whole, at one path"),
        ({"mountPath": "/other"}, "mounted whole, at one path"),
    ],
    ids=["a part", "another path"],
)
def test_code_that_is_mounted_in_another_way_is_refused(change: Object, text: str) -> None:
    job = compose_job("deepspeed-distributed", nodes=2)
    (patch,) = job["spec"]["runtimePatches"]
    replicated = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    replicated["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0].update(change)
    with pytest.raises(MoveError, match=text):
        move(job, load("deepspeed-distributed"))


def test_a_command_that_cannot_unpack_is_refused() -> None:
    job = compose_job()
    job["spec"]["trainer"]["command"] = ["tune", "run"]
    with pytest.raises(MoveError, match="completed by the controller"):
        move(job, load("torch-distributed"))
    del job["spec"]["trainer"]["command"]
    with pytest.raises(MoveError, match="runs the entrypoint of its image"):
        move(job, load("torch-distributed"))


def test_two_bundles_are_refused() -> None:
    volumes = [build_volume(DIGEST), build_volume(f"sha256:{'b' * 64}")]
    with pytest.raises(MoveError, match="several code volumes"):
        find_code({"spec": {"volumes": volumes}})
