"""The SDK of training-operator (kubeflow-training), unmodified, against a running server: all calls of its
TrainingClient, and the end-to-end tests that its package contains. Tests are named after the lines S of the conformance
checklist (`test_lines_table.py`).

Short programs in a Python environment replace what images would contain, because the tests are about the SDK and the
server. Real training is tested elsewhere.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.clients import Raw, Target
from tests.support.sdk import Sdk, build_environ, find_training_sdk_or_skip, running_training_sdk
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.e2e

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
SITE = """
import os, sys, time

time.sleep = lambda seconds: None  # what its tests train takes ten seconds
words = sys.orig_argv[1:]
if any(word.startswith(("entrypoint", "/var/tf_mnist", "paddle.")) for word in words):
    print("ran python", *words, flush=True)
    os._exit(0)
"""
"""A container without a command, and programs that only exist in images, print how they were called."""
PROGRAMS = {"torchrun": 'exec python -u "$@"', "mpirun": 'echo "ran mpirun $*"'}
PLUGIN = """
import time

sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.2))
"""
"""Its tests look at a job every 15 seconds."""


@pytest.fixture(scope="module")
def training_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("training")
    # Its tests request 2.4 CPUs.
    with start_server(folder / "home", environ={"TRAINMASTER_NODE_CPUS": "4"}) as server:
        write_rules(server, make_programs(folder / "programs"))
        yield server


@pytest.fixture(scope="module")
def training_sdk(training_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sdk]:
    with running_training_sdk(tmp_path_factory.mktemp("work"), training_server.home) as sdk:
        yield sdk


def make_programs(prefix: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    (site,) = prefix.glob("lib/python*/site-packages")
    # Not sitecustomize.py: Debian's Python has one of its own, which comes first.
    (site / "programs_site.py").write_text(SITE)
    (site / "programs.pth").write_text("import programs_site\n")
    for name, line in PROGRAMS.items():
        program = prefix / "bin" / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    return prefix


def connect(server: ServerProcess) -> Raw:
    def issue(user: str, groups: tuple[str, ...], folder: Path) -> tuple[Path, Path]:
        raise AssertionError("these tests are the owner")

    return Target("ours", server.kubeconfig, issue).raw()


def write_rules(server: ServerProcess, prefix: Path) -> None:
    rule = {"image": "*", "environment": "programs", "command": ["python", "entrypoint"]}
    table = {"environments": {"programs": {"path": str(prefix)}}, "rules": [rule]}
    raw = connect(server)
    body = {"metadata": {"name": "image-rules"}, "data": {"rules.yaml": json.dumps(table)}}
    raw.create("/api/v1/namespaces/kubeflow-system/configmaps", body)
    raw.close()


@pytest.mark.parametrize(
    ("scheduler", "result"),
    [
        # One job of each kind; from functions, images and objects; other managers.
        pytest.param("", "9 passed, 6 skipped", id="plain"),
        # One job of each kind that wants to start with ten Pods, until it is patched.
        pytest.param("volcano", "6 passed, 9 skipped", id="gang"),
    ],
)
def test_s06_s07_s08_s09_the_end_to_end_tests_in_its_package_pass(
    training_server: ServerProcess, tmp_path: Path, scheduler: str, result: str
) -> None:
    prefix = find_training_sdk_or_skip()
    (tests,) = prefix.glob("lib/python*/site-packages/test/e2e")
    (tmp_path / "hasty.py").write_text(PLUGIN)
    home = training_server.home
    settings = {"KUBECONFIG": str(home / "kubeconfig"), "PYTHONPATH": str(tmp_path), "GANG_SCHEDULER_NAME": scheduler}
    environ = build_environ(tmp_path, home, **settings)
    options = ["-q", "-p", "hasty", "-p", "no:cacheprovider", "--log-level=WARNING", "--tb=short"]
    command = [
        str(prefix / "bin" / "python"),
        "-B",
        "-m",
        "pytest",
        *options,
        f"--confcutdir={tests.parent}",
        str(tests),
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert f"\n{result}" in done.stdout, done.stdout[-6000:] + done.stderr


def test_s01_s03_s05_a_function_runs_on_three_nodes_and_is_followed(
    training_sdk: Sdk, training_server: ServerProcess, tmp_path: Path
) -> None:
    out = training_sdk.run(
        "function",
        f"""
        def train(parameters):
            import os
            print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.environ["SHARED"], parameters)
            while not os.path.exists("/signal/go"):  # until somebody follows
                os.sched_yield()
            print("end")

        client.create_job(
            name="function", train_func=train, parameters={{"lr": 0.1}}, num_workers=3, env_vars={{"SHARED": "yes"}},
            labels={{"team": "a"}}, annotations={{"note": "b"}}, queue_name="nosuch",
            resources_per_worker={{"cpu": 1, "memory": "200Mi"}},
            volumes=[V1Volume(name="signal", host_path=V1HostPathVolumeSource(path={str(tmp_path)!r}))],
            volume_mounts=[V1VolumeMount(name="signal", mount_path="/signal")],
        )
        job = wait("function", "Running")
        assert client.is_job_created(job=job) and client.is_job_running("function")
        assert not client.is_job_succeeded("function") and not client.is_job_failed("function")
        everyone = ["function-master-0", "function-worker-0", "function-worker-1"]
        assert client.get_job_pod_names("function") == everyone
        assert client.get_job_pod_names("function", is_master=True) == everyone[:1]
        assert client.get_job_pod_names("function", replica_type="worker") == everyone[1:]
        assert client.get_job_pod_names("function", replica_type="worker", replica_index=1) == everyone[2:]
        try:
            client.get_job_pod_names("function", replica_type="Worker")
            raise AssertionError("types are in lower case")
        except ValueError:
            pass
        until(lambda: [pod.status.phase for pod in client.get_job_pods("function")] == ["Running"] * 3)

        import builtins
        shown = print
        def show(line):  # the SDK prints what it follows
            shown(line)
            if "rank 0" in line:
                open({str(tmp_path / "go")!r}, "w").close()

        builtins.print = show
        try:
            followed, _ = client.get_job_logs("function", is_master=False, follow=True)
        finally:
            builtins.print = shown
        assert sorted(followed) == everyone, followed
        for rank, pod in enumerate(everyone):
            assert followed[pod] == f"rank {{rank}} of 3 yes {{{{'lr': 0.1}}}}end", followed
        wait("function")
        logs, events = client.get_job_logs("function", verbose=True)
        print(logs["function-master-0"], end="")
        assert list(logs) == everyone[:1]
        assert any("Created pod: function-worker-1" in line for line in events["pytorchjob/function"]), events
        assert events["pod/function-master-0"]
        """,
    )
    assert out.splitlines()[-2:] == ["rank 0 of 3 yes {'lr': 0.1}", "end"]
    raw = connect(training_server)
    job = raw.get(f"{JOBS}/function")
    raw.close()
    assert job["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "nosuch"}
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "200Mi"


def test_s02_s04_s09_objects_are_read_updated_and_deleted_and_errors_say_why(training_sdk: Sdk) -> None:
    training_sdk.run(
        "objects",
        """
        def make(name, command, **policy):
            container = V1Container(name="pytorch", image="example", command=["python", "-c", command])
            template = V1PodTemplateSpec(spec=V1PodSpec(containers=[container]))
            replica = KubeflowOrgV1ReplicaSpec(replicas=1, restart_policy="Never", template=template)
            return KubeflowOrgV1PyTorchJob(
                api_version="kubeflow.org/v1", kind="PyTorchJob", metadata=V1ObjectMeta(name=name),
                spec=KubeflowOrgV1PyTorchJobSpec(
                    run_policy=KubeflowOrgV1RunPolicy(**policy), pytorch_replica_specs={"Master": replica}))

        client.create_job(make("waits", "print('done')",
            scheduling_policy=KubeflowOrgV1SchedulingPolicy(min_available=10)))
        seen = []
        try:
            client.wait_for_job_conditions("waits", wait_timeout=1, polling_interval=0.2, callback=seen.append)
            raise AssertionError("it starts with ten Pods and has one")
        except TimeoutError:
            assert len(seen) == 5 and seen[0].metadata.name == "waits"
        assert client.is_job_created("waits") and not client.is_job_running("waits")
        # The object as it was read: with its version, uid, status and times.
        job = client.get_job("waits")
        job.spec.run_policy.scheduling_policy.min_available = 1
        client.update_job(job, "waits")
        assert wait("waits").spec.run_policy.scheduling_policy.min_available == 1
        assert client.get_job_logs("waits")[0] == {"waits-master-0": "done\\n"}

        client.create_job(make("fails", "raise SystemExit(3)"))
        try:
            wait("fails")
            raise AssertionError("it fails")
        except RuntimeError as error:
            assert "is Failed" in str(error)
        assert client.is_job_failed(job=wait("fails", "Failed"))
        names = [job.metadata.name for job in client.list_jobs()]
        assert {"waits", "fails"} <= set(names), names

        def check(call, *arguments, **options):
            try:
                call(*arguments, **options)
                raise AssertionError(f"accepted: {options}")
            except ValueError:
                pass

        image = {"name": "nosuch", "base_image": "example"}
        check(client.create_job, job=make("nosuch", "pass"), num_workers=2, base_image="example")
        check(client.create_job, **image, job_kind="TrainJob")
        check(client.create_job, base_image="example", num_workers=1)
        check(client.create_job, name="nosuch", train_func="train.py")
        check(client.create_job, **image, num_workers=0)
        check(client.create_job, **image, job_kind="TFJob", num_workers=1, num_procs_per_worker=2)
        check(client.create_job, **image, num_workers=1, num_chief_replicas=1)
        check(client.create_job, **image, job_kind="PaddleJob", num_workers=1)
        check(client.create_job, job=type("Job", (), {"kind": "PyTorchJob"})())
        check(client.wait_for_job_conditions, "waits", expected_conditions={"Suspended"})
        assert "nosuch" not in [job.metadata.name for job in client.list_jobs()]

        def refuse(code, text, call, *arguments, **options):
            try:
                call(*arguments, **options)
                raise AssertionError("not refused")
            except RuntimeError as error:
                assert error.__cause__.status == code and text in error.__cause__.body, error.__cause__

        refuse(409, "already exists", client.create_job, make("fails", "pass"))
        refuse(404, "not found", client.get_job, "nosuch")
        refuse(404, "not found", client.delete_job, "nosuch")
        broken = make("broken", "pass", managed_by="nobody")
        refuse(403, "spec.runPolicy.managedBy: Unsupported value", client.create_job, broken)
        client.delete_job("fails", delete_options=V1DeleteOptions(propagation_policy="Foreground"))
        client.delete_job("waits")
        until(lambda: not {"waits", "fails"} & {job.metadata.name for job in client.list_jobs()})
        assert client.get_job_pods("fails") == []
        """,
    )


def test_s01_train_claims_a_volume_and_runs_the_storage_initializer(training_sdk: Sdk) -> None:
    """Stand-ins for transformers and peft (gigabytes with torch), of which `train` takes classes and settings."""
    training_sdk.run(
        "train",
        """
        import sys, types

        class Settings:
            def to_dict(self):
                return {}

        transformers, peft = types.ModuleType("transformers"), types.ModuleType("peft")
        heads = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "CausalLM", "MaskedLM",
            "ImageClassification")
        for head in heads:
            setattr(transformers, f"AutoModelFor{head}", type(f"AutoModelFor{head}", (), {}))
        transformers.TrainingArguments = peft.LoraConfig = Settings
        sys.modules |= {"transformers": transformers, "peft": peft}
        from kubeflow.storage_initializer.hugging_face import (
            HuggingFaceDatasetParams, HuggingFaceModelParams, HuggingFaceTrainerParams)

        def tune():
            client.train(
                name="tune", num_workers=2, resources_per_worker={"cpu": "0.5", "memory": "200Mi"},
                model_provider_parameters=HuggingFaceModelParams("hf://tiny", transformers.AutoModelForCausalLM),
                dataset_provider_parameters=HuggingFaceDatasetParams("lines"),
                trainer_parameters=HuggingFaceTrainerParams())

        tune()
        wait("tune")
        assert client.get_job_pod_names("tune") == ["tune-master-0", "tune-worker-0"]
        trained = client.get_job_logs("tune")[0]["tune-master-0"]
        assert trained.startswith("ran python entrypoint --model_uri hf://tiny"), trained
        said = client.core_api.read_namespaced_pod_log("tune-master-0", "default", container="storage-initializer")
        assert said.startswith("ran python entrypoint --model_provider hf"), said
        claim = client.core_api.read_namespaced_persistent_volume_claim("tune", "default")
        assert claim.status.phase == "Bound" and claim.spec.access_modes == ["ReadWriteOnce", "ReadOnlyMany"], claim
        client.delete_job("tune")
        until(lambda: not client.get_job_pods("tune"))
        tune()  # with the same claim
        wait("tune")
        client.delete_job("tune")
        """,
    )


def test_the_example_of_the_page_runs(training_sdk: Sdk) -> None:
    section = (ROOT / "docs" / "sdk.md").read_text().partition("## The SDK of training-operator")[2]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    out = training_sdk.run("page", block)
    # `print(x)  # y` says what is printed.
    wanted = re.findall(r"print\(.*\)  # (.*)", block)
    assert len(wanted) > 1
    for want in wanted:
        assert want in out, f"{block}\nprinted:\n{out}"
