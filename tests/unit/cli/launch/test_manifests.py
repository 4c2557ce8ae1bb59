"""What a wish becomes: public fields of a TrainJob, and a runtime derived for it only where it must be."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
import yaml

from trainmaster.api.meta import Object
from trainmaster.cli.launch.manifests import Code, build_manifests, escape, list_local
from trainmaster.cli.launch.wishes import RequestedMount, RunRequest, SecretVariable
from trainmaster.node.launch.expansion import expand

pytestmark = pytest.mark.unit


def load(name: str) -> Object:
    text = resources.files("trainmaster").joinpath("manifests", f"{name}.yaml").read_text()
    runtime: Object = yaml.safe_load(text)
    return runtime


def make_wish(**fields: Any) -> RunRequest:
    return RunRequest(**{"name": "job", "command": ("python", "t.py"), "max_restarts": 6, **fields})


def test_a_wish_that_the_runtime_fulfils_needs_no_other_runtime() -> None:
    built = build_manifests(make_wish(), load("torch-distributed"))
    assert built.runtime is None
    assert built.trainjob == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "trainer": {"numNodes": 1, "command": ["python"], "args": ["t.py"]},
        },
    }


def test_another_number_of_restarts_derives_a_runtime_called_by_its_content() -> None:
    base = load("torch-distributed")
    first, again = (build_manifests(make_wish(max_restarts=0, name=name), base) for name in ("a", "b"))
    assert first.runtime is not None
    assert first.runtime == again.runtime, "equal wishes share one"
    other = build_manifests(make_wish(max_restarts=1), base)
    assert other.runtime is not None
    assert other.runtime["metadata"]["name"] != first.runtime["metadata"]["name"]
    jobset = first.runtime["spec"]["template"]["spec"]
    assert jobset["failurePolicy"]["maxRestarts"] == 0
    assert jobset["failurePolicy"]["rules"], "a disruption still restarts without counting"
    assert first.runtime["kind"] == "TrainingRuntime"
    assert first.runtime["metadata"]["labels"] == {
        "trainmaster.dev/derived": "true",
        "trainer.kubeflow.org/framework": "torch",
    }
    assert first.trainjob["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert first.objects == (first.runtime, first.trainjob), "the runtime comes first"
    assert base == load("torch-distributed"), "what was given is not changed"


def test_a_runtime_that_restarts_ranks_alone_is_derived_to_restart_the_gang() -> None:
    base = load("plain")
    jobset = base["spec"]["template"]["spec"]
    del jobset["failurePolicy"]
    pod = jobset["replicatedJobs"][0]["template"]["spec"]
    pod["backoffLimit"], pod["template"]["spec"]["restartPolicy"] = 6, "OnFailure"
    runtime = build_manifests(make_wish(max_restarts=2), base).runtime
    assert runtime is not None
    derived = runtime["spec"]["template"]["spec"]
    assert derived["failurePolicy"] == {"maxRestarts": 2}
    assert derived["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0
    assert derived["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_long_or_dotted_name_gives_a_name_that_a_runtime_can_have() -> None:
    base = load("torchtune-llama3.2-1b")
    base["metadata"]["name"] = "a" * 39 + "." + "b" * 30
    runtime = build_manifests(make_wish(max_restarts=0), base).runtime
    assert runtime is not None
    assert len(runtime["metadata"]["name"]) <= 63
    assert ".-" not in runtime["metadata"]["name"]


def test_what_the_command_line_says_stands_in_public_fields() -> None:
    wish = make_wish(
        nodes=2,
        processes="4",
        image="example.com/a:1",
        env={"LR": "0.1"},
        secret_variables=(SecretVariable("keys", "token", "HF_TOKEN"),),
        resources={"nvidia.com/gpu": "1"},
        labels={"team": "ml"},
        ttl_seconds=60,
        deadline_seconds=3600,
    )
    built = build_manifests(wish, load("torch-distributed")).trainjob
    assert built["metadata"]["labels"] == {"team": "ml"}
    assert (built["spec"]["ttlSecondsAfterFinished"], built["spec"]["activeDeadlineSeconds"]) == (60, 3600)
    assert built["spec"]["trainer"] == {
        "numNodes": 2,
        "numProcPerNode": 4,
        "image": "example.com/a:1",
        "command": ["python"],
        "args": ["t.py"],
        "env": [
            {"name": "LR", "value": "0.1"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        ],
        "resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
    }


def test_mounts_packages_and_code_patch_every_job_in_which_the_program_runs() -> None:
    wish = make_wish(
        mounts=(
            RequestedMount("host", "/srv/data", "/data", True),
            RequestedMount("claim", "c", "/c"),
            RequestedMount("secret", "s", "/s", True),
        ),
        packages=("numpy", "pandas"),
    )
    built = build_manifests(wish, load("deepspeed-distributed"), Code("sha256:ab", {"x/code-digest": "sha256:ab"}))
    (patch,) = built.trainjob["spec"]["runtimePatches"]
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["node", "launcher"]
    for job in jobs:
        template = job["template"]["spec"]["template"]
        assert template["metadata"] == {"annotations": {"trainmaster.dev/packages": "numpy\npandas"}}
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["code"]["csi"]["volumeAttributes"] == {"digest": "sha256:ab"}
        assert volumes["host-0"]["hostPath"] == {"path": "/srv/data"}
        assert volumes["claim-1"]["persistentVolumeClaim"] == {"claimName": "c"}
        assert volumes["secret-2"]["secret"] == {"secretName": "s"}
        (container,) = template["spec"]["containers"]
        assert {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]} == {
            "/workspace/code": False,
            "/data": True,
            "/c": False,
            "/s": True,
        }
    assert built.trainjob["metadata"]["annotations"] == {"x/code-digest": "sha256:ab"}
    assert len(list_local(built)) == 3, "code, the path of this machine, packages; each told once"


def test_initializers_get_no_code() -> None:
    built = build_manifests(make_wish(), load("torchtune-llama3.2-1b"), Code("sha256:ab"))
    jobs = built.trainjob["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["node"]


def test_a_job_without_local_parts_is_marked_nowhere() -> None:
    built = build_manifests(make_wish(mounts=(RequestedMount("claim", "c", "/c"),)), load("plain"))
    assert list_local(built) == []


def test_whole_secrets_become_variables_through_the_derived_runtime() -> None:
    runtime = build_manifests(make_wish(secrets=("keys",)), load("plain")).runtime
    assert runtime is not None
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]


@pytest.mark.parametrize("text", ["a", "$", "$$", "kill $$", "$(date)", "$$(x)", "$HOME $((1+2)) $", "$$$", "$a$$b"])
def test_what_is_typed_arrives_as_it_was_typed(text: str) -> None:
    assert expand(escape(text), {"date": "no", "x": "no"}) == text
