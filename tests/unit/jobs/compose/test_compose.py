"""What a request becomes: public fields of a TrainJob, and a runtime derived for it only where it must be."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from typing import Any

import pytest
import yaml

from trainmaster.api.code import MOUNT_PATH, build_volume
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.api.status import StatusError
from trainmaster.api.training.counts import count_pods
from trainmaster.api.training.steps import find_container, list_jobs
from trainmaster.api.training.template import fill_template
from trainmaster.cli.launch.manifests import SHAPE, list_local
from trainmaster.jobs.compose import names
from trainmaster.jobs.compose.refusals import RefusedPart, is_denied, judge_refusal, list_refused_parts
from trainmaster.jobs.compose.request import JobRequest, MountedCode, RequestedMount, SecretVariable
from trainmaster.jobs.compose.trainjob import OVERRIDES, SupportedFields, complete, compose, escape
from trainmaster.node.launch.expansion import expand

pytestmark = pytest.mark.unit


def load(name: str) -> Object:
    text = resources.files("trainmaster").joinpath("manifests", f"{name}.yaml").read_text()
    runtime: Object = yaml.safe_load(text)
    return runtime


CODE = MountedCode(build_volume("sha256:ab"), MOUNT_PATH, annotations={"x/code-digest": "sha256:ab"})


def make_request(**fields: Any) -> JobRequest:
    return JobRequest(**{"name": "job", "command": ("python", "t.py"), "max_restarts": 6, **fields})


def test_a_request_that_the_runtime_fulfils_needs_no_other_runtime() -> None:
    built = compose(make_request(), load("torch-distributed"), SHAPE)
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
    first, again = (compose(make_request(max_restarts=0, name=name), base, SHAPE) for name in ("a", "b"))
    assert first.runtime is not None
    assert first.runtime == again.runtime, "equal requests share one"
    other = compose(make_request(max_restarts=1), base, SHAPE)
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
    runtime = compose(make_request(max_restarts=2), base, SHAPE).runtime
    assert runtime is not None
    derived = runtime["spec"]["template"]["spec"]
    assert derived["failurePolicy"] == {"maxRestarts": 2}
    assert derived["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0
    assert derived["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_long_or_dotted_name_gives_a_name_that_a_runtime_can_have() -> None:
    base = load("torchtune-llama3.2-1b")
    base["metadata"]["name"] = "a" * 39 + "." + "b" * 30
    runtime = compose(make_request(max_restarts=0), base, SHAPE).runtime
    assert runtime is not None
    assert len(runtime["metadata"]["name"]) <= 63
    assert ".-" not in runtime["metadata"]["name"]


def test_what_the_command_line_says_stands_in_public_fields() -> None:
    request = make_request(
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
    built = compose(request, load("torch-distributed"), SHAPE).trainjob
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


def test_overcommitted_cpus_are_a_limit_and_not_reserved() -> None:
    request = make_request(resources={"cpu": "1", "memory": "1Gi"}, overcommits=True)
    trainer = compose(request, load("torch-distributed"), SHAPE).trainjob["spec"]["trainer"]
    assert trainer["resourcesPerNode"] == {
        "requests": {"cpu": "0", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }


def test_mounts_packages_and_code_patch_every_job_in_which_the_program_runs() -> None:
    request = make_request(
        mounts=(
            RequestedMount("host", "/srv/data", "/data", True),
            RequestedMount("claim", "c", "/c"),
            RequestedMount("secret", "s", "/s", True),
        ),
        packages=("numpy", "pandas"),
        code=CODE,
    )
    built = compose(replace(request, nodes=2), load("deepspeed-distributed"), SHAPE)
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


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "deepspeed-distributed",
        "mlx-distributed",
        "jax-distributed",
        "torch-distributed",
        "torchtune-llama3.2-1b",
        "plain",
    ],
)
def test_a_job_has_the_nodes_and_gpus_that_were_asked_for(name: str, nodes: int) -> None:
    request = make_request(nodes=nodes, resources={"nvidia.com/gpu": "1"}, code=CODE)
    built = compose(request, load(name), SHAPE)
    runtime = built.runtime or load(name)
    filled = fill_template(built.trainjob, runtime)
    counts = count_pods(built.trainjob, runtime, filled)
    gpus = 0
    for job in list_jobs(filled):
        limits = read_fields(find_container(job, "node"), "resources", "limits")
        gpus += counts[job["name"]] * int(limits.get("nvidia.com/gpu", 0))
    assert gpus == nodes


def test_initializers_get_no_code() -> None:
    built = compose(make_request(code=CODE), load("torchtune-llama3.2-1b"), SHAPE)
    jobs = built.trainjob["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["node"]


def test_a_job_without_local_parts_is_marked_nowhere() -> None:
    built = compose(make_request(mounts=(RequestedMount("claim", "c", "/c"),)), load("plain"), SHAPE)
    assert list_local(built) == []


def test_whole_secrets_become_variables_through_the_derived_runtime() -> None:
    runtime = compose(make_request(secrets=("keys",)), load("plain"), SHAPE).runtime
    assert runtime is not None
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]


@pytest.mark.parametrize("text", ["a", "$", "$$", "kill $$", "$(date)", "$$(x)", "$HOME $((1+2)) $", "$$$", "$a$$b"])
def test_what_is_typed_arrives_as_it_was_typed(text: str) -> None:
    assert expand(escape(text), {"date": "no", "x": "no"}) == text


# A template that is a TrainJob already

TRAINER_2_1 = SupportedFields("trainmaster.dev/rest", frozenset({OVERRIDES}))


def make_template() -> Object:
    volumes = [{"name": "script", "configMap": {"name": "job-script"}}, {"name": "tools", "configMap": {"name": "t"}}]
    node = {"name": "node", "volumeMounts": [{"name": "script", "mountPath": "/opt/mine"}]}
    override = {"targetJobs": [{"name": "node"}], "spec": {"volumes": volumes, "containers": [node]}}
    trainer = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    return {"metadata": {"labels": {"team": "ml"}}, "spec": {"trainer": trainer, OVERRIDES: [override]}}


def test_code_takes_the_place_that_a_template_has_for_it() -> None:
    code = MountedCode(build_volume("sha256:ab", "train-script"), "/workspace/scripts", replaces="job-script")
    made = complete(make_request(code=code), make_template(), TRAINER_2_1)
    spec = made["spec"][OVERRIDES][0]["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["script", "tools"]
    assert "csi" in spec["volumes"][0] and "configMap" not in spec["volumes"][0]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "script", "mountPath": "/opt/mine"}]
    other = complete(make_request(code=CODE), make_template(), TRAINER_2_1)["spec"][OVERRIDES][0]["spec"]
    assert [volume["name"] for volume in other["volumes"]] == ["script", "tools", "code"]
    assert other["containers"][0]["volumeMounts"][-1] == {"name": "code", "mountPath": MOUNT_PATH}


def test_a_template_keeps_what_the_request_does_not_replace() -> None:
    made = complete(make_request(env={"B": "$(x)"}, labels={"own": "1"}), make_template(), TRAINER_2_1)
    assert made["spec"]["trainer"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "$$(x)"}]
    assert made["metadata"] == {"name": "job", "namespace": "default", "labels": {"team": "ml", "own": "1"}}


def test_terms_are_annotations_where_the_server_has_no_such_fields() -> None:
    request = make_request(ttl_seconds=60, deadline_seconds=5)
    made = complete(request, make_template(), TRAINER_2_1)
    assert TTL_FIELD not in made["spec"] and DEADLINE_FIELD not in made["spec"]
    assert made["metadata"]["annotations"] == {TTL_ANNOTATION: "60", DEADLINE_ANNOTATION: "5"}


def test_a_request_that_leaves_restarts_to_the_runtime_derives_none() -> None:
    assert compose(make_request(max_restarts=None), load("plain"), SHAPE).runtime is None


# Names and refusals


@pytest.mark.parametrize(("nodes", "longest"), [(1, 48), (10, 48), (11, 47), (100_000, 44)])
def test_the_name_of_every_pod_is_a_dns_label(nodes: int, longest: int) -> None:
    assert names.get_longest(nodes) == longest
    assert len(f"{'a' * longest}-node-0-{nodes - 1}-xxxxx") == 63
    assert names.is_job_name("a" * longest, longest) and not names.is_job_name("a" * (longest + 1), longest)
    assert not any(names.is_job_name(name, longest) for name in ("", "1a", "a-", "A", "a_b", "a.b"))


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("spec.trainer.numNodes", "nodes"),
        ("spec.trainer.resourcesPerNode.limits[cpu]", "resources"),
        ("metadata.annotations[trainmaster.dev/packages]", "packages"),
        ("spec.podTemplateOverrides[0]", ""),
    ],
)
def test_a_refusal_names_the_part_of_the_request(path: str, part: str) -> None:
    error = StatusError(422, "Invalid", "no", details={"causes": [{"field": path, "message": "wrong"}]})
    assert list_refused_parts(error) == [RefusedPart(part, "wrong")]


def test_the_usual_causes_of_a_refusal_are_told_apart() -> None:
    errors = [
        StatusError(409, "AlreadyExists", "there"),
        StatusError(404, "NotFound", 'namespaces "a" not found'),
        StatusError(403, "Forbidden", "exceeded quota: q, requested: cpu=1"),
        StatusError(403, "Forbidden", 'admission webhook "w" denied the request: must be created before the TrainJob'),
        StatusError(403, "Forbidden", 'admission webhook "w" denied the request: no'),
        StatusError(500, "InternalError", "broken"),
        StatusError(
            403, "Forbidden", "it needs 3 CPUs, and the tenant may have 2 CPUs at a time, so it could never start"
        ),
    ]
    found = [judge_refusal(error).value for error in errors]
    assert found == ["exists", "no-namespace", "quota", "no-runtime", "webhook", "other", "too-large"]
    assert [is_denied(error) for error in errors] == [False, False, False, True, True, False, False]


@pytest.mark.parametrize(("runtime", "job"), [("torch-distributed", "node"), ("deepspeed-distributed", "launcher")])
def test_the_program_that_is_talked_to_has_an_input(runtime: str, job: str) -> None:
    for tty, want in ((True, {"stdin": True, "tty": True}), (False, {"stdin": True, "stdinOnce": True})):
        composed = compose(make_request(max_restarts=None, stdin=True, tty=tty), load(runtime), SHAPE)
        assert composed.runtime is not None
        containers = {
            entry["name"]: entry["template"]["spec"]["template"]["spec"]["containers"][0]
            for entry in composed.runtime["spec"]["template"]["spec"]["replicatedJobs"]
        }
        for name, container in containers.items():
            found = {key: value for key, value in container.items() if key in ("stdin", "stdinOnce", "tty")}
            assert found == (want if name == job else {}), name
