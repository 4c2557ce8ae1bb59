"""The Kubeflow SDK, unmodified, against a running server: every call of its TrainerClient, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.support.clients import Raw
from tests.support.environments import find_or_skip
from tests.support.sdk import Sdk, find_sdk_or_skip
from tools.frameworks import TOOL

pytestmark = pytest.mark.e2e

TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
EXAMPLES = ROOT / "examples" / "sdk"
TRAINJOBS = f"{TRAINER}/namespaces/default/trainjobs"


def write_rules(raw: Raw, environments: dict[str, Path], rules: dict[str, str]) -> None:
    """Which environment stands in for which image, as an administrator says it."""
    table = {
        "environments": {name: {"path": str(path)} for name, path in environments.items()},
        "rules": [{"image": image, "environment": name} for image, name in rules.items()],
    }
    body = {"metadata": {"name": "image-rules"}, "data": {"rules.yaml": json.dumps(table)}}
    path = "/api/v1/namespaces/kubeflow-system/configmaps"
    if raw.exists(f"{path}/image-rules"):
        raw.delete(f"{path}/image-rules")
    raw.create(path, body)


def make_runtime(name: str, *, restarts: int = 0, job: dict[str, object] | None = None) -> dict[str, object]:
    """A namespaced one, for a command on every node."""
    container = {"name": "node", "image": "python:3.11"}
    spec = {
        "backoffLimit": 0,
        **(job or {}),
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    jobs = [{"name": "node", "template": {"metadata": step, "spec": spec}}]
    jobset = {"failurePolicy": {"maxRestarts": restarts}, "replicatedJobs": jobs}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": jobset}},
    }


def test_the_sdk_reads_every_shipped_runtime_and_the_version_without_a_warning(sdk: Sdk, raw: Raw) -> None:
    names = [runtime["metadata"]["name"] for runtime in raw.get(f"{TRAINER}/clustertrainingruntimes")["items"]]
    assert len(names) > 5
    out = sdk.run(
        "runtimes",
        """
        import io
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        logging.getLogger("kubeflow").addHandler(handler)
        make()
        logging.getLogger("kubeflow").removeHandler(handler)
        assert said.getvalue() == "", said.getvalue()
        for runtime in client.list_runtimes():
            assert client.get_runtime(runtime.name) == runtime, runtime
            print(runtime.name, runtime.trainer.framework, runtime.trainer.command[0])
        """,
    )
    assert [line.split()[0] for line in out.splitlines()] == sorted(names)
    assert "torch-distributed torch bash" in out and "deepspeed-distributed deepspeed mpirun" in out


def write_index(folder: Path) -> None:
    """A package index in a directory: one package of a few lines."""
    (folder / "greeting").mkdir(parents=True)
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(folder / "greeting" / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", "WORD = 'hello from a package'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    link = '<a href="greeting-1.0-py3-none-any.whl">greeting-1.0-py3-none-any.whl</a>'
    (folder / "greeting" / "index.html").write_text(link)


def test_a_function_trains_on_two_nodes_with_packages_and_is_followed(sdk: Sdk, raw: Raw, tmp_path: Path) -> None:
    write_index(tmp_path / "index")
    out = sdk.run(
        "two_nodes",
        f"""
        def train(lr, note):
            import os, time, greeting
            print("rank", os.environ["JOB_COMPLETION_INDEX"], os.environ["SHARED"], lr, note, greeting.WORD)
            while not os.path.exists("/index/go"):  # until somebody follows
                time.sleep(0.05)
            print("end")

        index = PodSpecPatch(
            volumes=[{{"name": "index", "hostPath": {{"path": {str(tmp_path / "index")!r}}}}}],
            containers=[ContainerPatch(name="node", volume_mounts=[{{"name": "index", "mountPath": "/index"}}])],
        )
        template = JobTemplatePatch(spec=JobSpecPatch(template=PodTemplatePatch(spec=index)))
        jobset = JobSetSpecPatch(replicated_jobs=[ReplicatedJobPatch(name="node", template=template)])
        patch = RuntimePatch(TrainingRuntimeSpecPatch(template=JobSetTemplatePatch(
            metadata={{"labels": {{"team": "a"}}}}, spec=jobset)))
        trainer = CustomTrainer(func=train, func_args={{"lr": 0.1, "note": "it's"}}, num_nodes=2,
            env={{"SHARED": "yes"}}, packages_to_install=["greeting==1.0"], pip_index_urls=["file:///index"],
            resources_per_node={{"cpu": "0.5", "memory": "200Mi"}})
        name = client.train("plain", trainer=trainer, options=[patch, Labels({{"l": "1"}}), Annotations({{"a": "2"}})])
        import re
        assert re.fullmatch("[a-z][0-9a-f]{{11}}", name)
        seen = []
        job = client.wait_for_job_status(name, status={{"Running", "Failed"}}, timeout=100, polling_interval=0.2,
            callbacks=[lambda job: seen.append(job.status)])
        assert job.status == "Running" == seen[-1] and job.num_nodes == 2, job
        lines = []
        for line in client.get_job_logs(name, follow=True):
            lines.append(line)
            if "rank 0" in line:
                open({str(tmp_path / "index" / "go")!r}, "w").close()
        job = wait(name)
        assert lines == list(client.get_job_logs(name)), lines
        print(*lines, sep="\\n")
        print("other", *client.get_job_logs(name, step="node-1"))
        assert sorted(step.name for step in job.steps) == ["node-0", "node-1"], job
        assert {{(step.status, step.device) for step in job.steps}} == {{("Succeeded", "cpu")}}, job
        kinds = {{event.involved_object_kind for event in client.get_job_events(name)}}
        assert {{"Pod", "JobSet"}} <= kinds, kinds
        assert name in [job.name for job in client.list_jobs()]
        assert [job.name for job in client.list_jobs(client.get_runtime("jax-distributed"))] == []
        print("name", name)
        """,
    )
    lines = out.splitlines()
    assert lines[0] == "Successfully installed Python packages (system-wide): greeting==1.0"
    assert lines[1:3] == ["rank 0 yes 0.1 it's hello from a package", "end"], out
    assert "rank 1 yes" in lines[3]
    job = raw.get(f"{TRAINJOBS}/{lines[-1].split()[1]}")
    assert (job["metadata"]["labels"], job["metadata"]["annotations"]["a"]) == ({"l": "1"}, "2")
    (patch,) = job["spec"]["runtimePatches"]
    assert patch["manager"] == "trainer.kubeflow.org/kubeflow-sdk"
    assert patch["trainingRuntimeSpec"]["template"]["metadata"]["labels"] == {"team": "a"}


def test_a_container_runs_a_command_until_its_deadline_and_waiting_says_that_it_failed(sdk: Sdk) -> None:
    sdk.run(
        "deadline",
        """
        container = CustomTrainerContainer(image="python:3.12", env={"A": "b"}, resources_per_node={"cpu": 1})  # 1.0
        command = [TrainerCommand(["sh", "-c"]), TrainerArgs(["echo $A; exec sleep 600"])]
        client.train("plain", trainer=container, options=[Name("open"), *command])
        job = wait("open", "Running")
        assert float(job.steps[0].device_count) == 1, job.steps
        line = next(iter(client.get_job_logs("open", follow=True)))
        assert line == "b", line
        client.delete_job("open")
        client.train("plain", trainer=container, options=[Name("late"), *command, ActiveDeadlineSeconds(1)])
        try:
            wait("late")
        except RuntimeError as error:
            assert str(error) == "TrainJob late is Failed"
        else:
            raise AssertionError("the job is not Failed")
        assert wait("late", "Failed").status == "Failed"
        assert "DeadlineExceeded" in {event.reason for event in client.get_job_events("late")}
        client.delete_job("late")
        try:
            client.get_job("late")
        except RuntimeError as error:
            assert error.__cause__.status == 404
        else:
            raise AssertionError("the job is still there")
        """,
    )


def test_after_a_restart_the_newest_attempt_is_followed(sdk: Sdk, raw: Raw, tmp_path: Path) -> None:
    raw.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    runtimes = f"{TRAINER}/namespaces/team/trainingruntimes"
    # It has the name of a shipped one, and goes before it in its namespace.
    raw.create(runtimes, make_runtime("torch-distributed", restarts=1))
    ignored = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}
    raw.create(runtimes, make_runtime("patient", job={"podFailurePolicy": {"rules": [ignored]}}))
    sdk.run(
        "restarts",
        """
        team = make("team")
        assert team.get_runtime("torch-distributed").kind == RuntimeKind.TRAINING_RUNTIME
        found = [one for one in team.list_runtimes() if one.name == "torch-distributed"]
        assert [one.kind for one in found] == [RuntimeKind.TRAINING_RUNTIME], found

        def gang():
            import os, sys, time
            print("attempt", os.environ["TRAINMASTER_ATTEMPT"], flush=True)
            if os.environ["TRAINMASTER_ATTEMPT"] == "0":
                sys.exit(3)
            time.sleep(600)

        def pod():
            import os, sys, time
            marker = os.environ["TRAINMASTER_OUTPUT_DIR"] + "/tries"
            tries = os.path.getsize(marker) if os.path.exists(marker) else 0
            open(marker, "a").write(".")
            print("attempt", tries, flush=True)
            if tries < 1:
                sys.exit(3)
            time.sleep(600)

        team.train(trainer=CustomTrainer(func=gang), options=[Name("gang")])
        team.train("patient", trainer=CustomTrainer(func=pod), options=[Name("pod")])

        import time
        def first_line(name, want):
            for _ in range(500):  # the old Pods may still be there, or go before they are read, or the new ones wait
                try:
                    line = next(iter(team.get_job_logs(name, follow=True)), "")
                except RuntimeError:
                    line = ""
                if line == want:
                    return line
                time.sleep(0.2)
            raise AssertionError(team.get_job(name))

        first_line("gang", "attempt 1")
        first_line("pod", "attempt 1")
        for name in ("gang", "pod"):
            job = wait(name, "Running", client=team)
            assert [step.status for step in job.steps] == ["Running"], job
            team.delete_job(name)
        """,
    )


def test_what_does_not_exist_and_what_is_refused_is_said(sdk: Sdk, raw: Raw) -> None:
    raw.create(f"{TRAINER}/namespaces/default/trainingruntimes", make_runtime("short"))
    held = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "held"}}
    runtime = {"name": "short", "kind": "TrainingRuntime"}
    raw.create(TRAINJOBS, {**held, "spec": {"suspend": True, "runtimeRef": runtime}})
    out = sdk.run(
        "errors",
        """
        def fails():
            raise SystemExit(7)

        def message(call, *arguments, **named):
            try:
                call(*arguments, **named)
            except (RuntimeError, ConnectionError, ValueError) as error:
                print(error)
            else:
                raise AssertionError(f"{call} worked")

        held = client.get_job("held")
        assert (held.status, held.steps) == ("Created", []) and list(client.get_job_logs("held", follow=True)) == []
        message(ours.train, "short", trainer=CustomTrainer(func=fails), options=[Name("Not_A_Name")])
        message(client.get_runtime, "nonsense")
        message(ours.train, "nonsense", trainer=CustomTrainer(func=fails))
        message(client.train, "torchtune-llama3.2-1b", trainer=CustomTrainer(func=fails))
        message(trainmaster.connect, namespace="nowhere")
        message(trainmaster.connect, home="/nowhere/at/all")
        client.train("short", trainer=CustomTrainer(func=fails), options=[Name("failing")])
        message(wait, "failing")
        """,
    )
    lines = out.splitlines()
    assert lines[0].startswith("Failed to create TrainJob: default/Not_A_Name: ") and "RFC 1123" in lines[0]
    assert lines[1] == "Failed to get Runtime: nonsense (checked both namespaced and cluster scope)"
    assert lines[2].startswith(lines[1] + ": ") and "not found" in lines[2]
    assert lines[3].startswith("CustomTrainer can't be used with")
    assert "there is no namespace nowhere" in lines[4] and "create namespace nowhere" in lines[4]
    assert lines[5].endswith("start it with `trainmaster up --detach --home /nowhere/at/all`")
    assert lines[6:] == ["TrainJob failing is Failed"]
    # The SDK cannot list a namespace with a job whose runtime is gone.
    code, answer = raw.call("DELETE", f"{TRAINER}/namespaces/default/trainingruntimes/short")
    assert code == 403 and "held" in answer["message"]
    # Other modules use the same server, and the notebook lists its runtimes.
    for name in ("held", "failing"):
        raw.delete(f"{TRAINJOBS}/{name}")
    raw.delete(f"{TRAINER}/namespaces/default/trainingruntimes/short")


def test_the_client_of_connect_sends_code_as_it_is_and_follows_from_before_the_start_through_restarts(
    sdk: Sdk, raw: Raw
) -> None:
    raw.create(f"{TRAINER}/namespaces/default/trainingruntimes", make_runtime("once-more", restarts=1))
    out = sdk.run(
        "followed",
        """
        def train():
            import os, sys, time
            print("attempt", os.environ["TRAINMASTER_ATTEMPT"], "$HOME `date` \\\\t", flush=True)
            while not os.path.exists(os.environ["TRAINMASTER_OUTPUT_DIR"] + "/seen"):
                time.sleep(0.05)
            sys.exit(3 * (os.environ["TRAINMASTER_ATTEMPT"] == "0"))

        runtime = ours.get_runtime("once-more")
        command = runtime.trainer.command
        name = ours.train(runtime, trainer=CustomTrainer(func=train))
        place = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs", name)
        uid = ours.backend.custom_api.get_namespaced_custom_object(*place)["metadata"]["uid"]
        for line in ours.get_job_logs(name, follow=True):
            print(line)
            open(f"{os.environ['TRAINMASTER_HOME']}/history/results/{uid}/outputs/seen", "w").close()
        assert ours.get_job(name).status == "Complete" and runtime.trainer.command == command
        assert list(ours.get_job_logs(name)) == list(client.get_job_logs(name)) != []
        ours.delete_job(name)
        try:
            list(ours.get_job_logs(name, follow=True))
        except RuntimeError as error:
            assert error.__cause__.status == 404
        else:
            raise AssertionError("a job that is gone was followed")
        """,
    )
    assert out.splitlines() == ["attempt 0 $HOME `date` \\t", "attempt 1 $HOME `date` \\t"]
    raw.delete(f"{TRAINER}/namespaces/default/trainingruntimes/once-more")


def test_connecting_leaves_alone_what_others_share_and_needs_no_proxy(sdk: Sdk) -> None:
    out = sdk.run(
        "manners",
        """
        from kubernetes import client as kubernetes_client
        kubernetes_client.Configuration.set_default(None)
        proxies = ("HTTP_PROXY", "HTTPS_PROXY")
        os.environ.update({name: "http://127.0.0.1:9" for name in proxies})
        try:
            before = os.listdir(os.path.expanduser("~"))
            found = trainmaster.connect()
            assert len(found.list_runtimes()) > 5 and isinstance(found, TrainerClient)
            assert kubernetes_client.Configuration._default is None
            assert os.listdir(os.path.expanduser("~")) == before
            # The SDK's own way: it does go to the proxy, and the error names it.
            config = KubernetesBackendConfig(config_file=os.environ["TRAINMASTER_HOME"] + "/kubeconfig")
            try:
                TrainerClient(config).list_runtimes()
            except RuntimeError as error:
                print(error.__cause__)
        finally:
            for name in proxies:
                del os.environ[name]
            kubernetes_client.Configuration.set_default(None)
        """,
    )
    assert "ProxyError" in out


def test_somebody_with_rights_in_one_namespace_trains_there(sdk: Sdk, raw: Raw) -> None:
    raw.create("/api/v1/namespaces", {"metadata": {"name": "lab"}})
    raw.create("/api/v1/namespaces/lab/serviceaccounts", {"metadata": {"name": "ann"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "ann", "namespace": "lab"}
    binding = {"metadata": {"name": "ann"}, "roleRef": role, "subjects": [subject]}
    raw.create("/apis/rbac.authorization.k8s.io/v1/namespaces/lab/rolebindings", binding)
    token = raw.create("/api/v1/namespaces/lab/serviceaccounts/ann/token", {"spec": {}})["status"]["token"]
    sdk.run(
        "guest",
        f"""
        import copy, io
        configuration = copy.copy(client.backend.core_api.api_client.configuration)
        configuration.api_key = {{"authorization": "Bearer {token}"}}
        configuration.refresh_api_key_hook = None
        said = io.StringIO()
        handler = logging.StreamHandler(said)
        logging.getLogger("kubeflow").addHandler(handler)
        guest = TrainerClient(KubernetesBackendConfig(namespace="lab", client_configuration=configuration))
        logging.getLogger("kubeflow").removeHandler(handler)
        assert said.getvalue() == "", said.getvalue()

        def hello():
            print("hello from the lab")

        name = guest.train("plain", trainer=CustomTrainer(func=hello))
        wait(name, client=guest)
        assert list(guest.get_job_logs(name)) == ["hello from the lab"]
        elsewhere = TrainerClient(KubernetesBackendConfig(namespace="default", client_configuration=configuration))
        try:
            elsewhere.list_jobs()
        except RuntimeError as error:
            assert error.__cause__.status == 403
        else:
            raise AssertionError("a guest reads the jobs of others")
        """,
    )


def test_a_hundred_jobs_are_listed(sdk: Sdk, raw: Raw) -> None:
    raw.create("/api/v1/namespaces", {"metadata": {"name": "many"}})
    spec = {"suspend": True, "runtimeRef": {"name": "plain"}}
    head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    for number in range(100):
        job = {**head, "metadata": {"name": f"job-{number}"}, "spec": spec}
        raw.create(f"{TRAINER}/namespaces/many/trainjobs", job)
    out = sdk.run(
        "many",
        """
        jobs = make("many").list_jobs()
        print(len(jobs), {job.status for job in jobs})
        """,
    )
    assert out == "100 {'Created'}\n"


def test_packages_of_a_runtime_are_printed_by_a_job_of_its_own(sdk: Sdk) -> None:
    out = sdk.run("packages", 'client.get_runtime_packages(client.get_runtime("plain"))')
    assert out.startswith("Python: 3.") and "orjson" in out


def test_functions_run_under_torchrun_and_mpirun(sdk: Sdk, raw: Raw) -> None:
    images = {"*pytorch/pytorch*": "frameworks", "*/trainer/deepspeed-runtime*": "frameworks"}
    write_rules(raw, {"frameworks": find_or_skip(TOOL)}, images)
    sdk.run(
        "mpi",
        """
        def mpi():
            from mpi4py import MPI
            print(f"mpi {MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1)}", flush=True)

        client.train("deepspeed-distributed", trainer=CustomTrainer(func=mpi, num_nodes=2), options=[Name("mpi")])
        """,
    )
    out = sdk.run("torch_ddp", (EXAMPLES / "torch_ddp.py").read_text())
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("rank 0 of 2 step")]
    assert len(losses) == 4 and losses[-1] < losses[0], out
    out = sdk.run("mpi_end", 'wait("mpi"); print(*client.get_job_logs("mpi"))')
    assert out.count("mpi 3") == 2, out


def make_stand_in(folder: Path) -> Path:
    """An environment whose `tune` only says how it was called: torchtune itself needs a model's weights."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    program = "import os, sys; print(*sys.argv[1:], sep='\\n'); print(*sorted(os.listdir('/workspace')))"
    (folder / "bin" / "tune").write_text(f"#!{folder}/bin/python3\n{program}\n")
    (folder / "bin" / "tune").chmod(0o755)
    return folder


def test_a_builtin_trainer_gets_data_and_model_and_the_command_of_torchtune(sdk: Sdk, raw: Raw, tmp_path: Path) -> None:
    write_rules(raw, {"tune": make_stand_in(tmp_path / "tune")}, {"*/trainer/torchtune-trainer*": "tune"})
    for name in ("data", "model"):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / "part.json").write_text("{}")
    out = sdk.run(
        "builtin",
        f"""
        def see_files(job):
            volumes = [{{"name": "files", "hostPath": {{"path": {str(tmp_path / "files")!r}}}}}]
            mount = ContainerPatch(name=job, volume_mounts=[{{"name": "files", "mountPath": "/files"}}])
            pod = PodTemplatePatch(spec=PodSpecPatch(volumes=volumes, containers=[mount]))
            return ReplicatedJobPatch(name=job, template=JobTemplatePatch(spec=JobSpecPatch(template=pod)))

        jobs = [see_files("dataset-initializer"), see_files("model-initializer")]
        spec = JobSetTemplatePatch(spec=JobSetSpecPatch(replicated_jobs=jobs))
        patch = RuntimePatch(TrainingRuntimeSpecPatch(template=spec))
        config = TorchTuneConfig(dtype=DataType.BF16, batch_size=2, epochs=1, resources_per_node={{"cpu": 1, "gpu": 0}},
            peft_config=LoraConfig(lora_rank=8), dataset_preprocess_config=TorchTuneInstructDataset(split="train[:5%]"))
        initializer = Initializer(
            dataset=HuggingFaceDatasetInitializer("file:///files/data"),
            model=HuggingFaceModelInitializer("file:///files/model"),
        )
        name = client.train("torchtune-llama3.2-1b", initializer, BuiltinTrainer(config), [patch])
        job = wait(name)
        steps = sorted(step.name for step in job.steps)
        assert steps == ["dataset-initializer", "model-initializer", "node-0"], job
        print(*client.get_job_logs(name), sep="\\n")
        for step in steps[:2]:
            assert list(client.get_job_logs(name, step=step)), step
        """,
    )
    model = "/workspace/model"
    assert out.splitlines() == [
        *("run", "lora_finetune_single_device", "--config", "llama3_2/1B_lora_single_device"),
        *("output_dir=/workspace/output", f"tokenizer.path={model}/original/tokenizer.model"),
        *(f"checkpointer.checkpoint_dir={model}", "dtype=bf16", "batch_size=2", "epochs=1"),
        *("dataset.data_dir=/workspace/dataset/data", "model.lora_rank=8"),
        "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
        *("dataset=torchtune.datasets.instruct_dataset", "dataset.split=train[:5%]"),
        "dataset model",
    ]


def test_the_sdk_reports_progress_from_inside_a_job_and_reaches_the_server_there(sdk: Sdk, raw: Raw) -> None:
    write_rules(raw, {"sdk": find_sdk_or_skip()}, {"with-the-sdk": "sdk"})
    out = sdk.run(
        "progress",
        """
        def train():
            from kubeflow.trainer import TrainerClient, update_trainjob_status
            print(update_trainjob_status(progress_percent=40, estimated_remaining_seconds=9, metrics={"loss": 0.5}))
            inside = TrainerClient().backend  # as the Pod's service account, which may see little
            info = inside.core_api.read_namespaced_config_map("kubeflow-trainer-public", "kubeflow-system")
            print(inside.namespace, *info.data)

        client.train("plain", trainer=CustomTrainer(func=train, image="with-the-sdk"), options=[Name("reporting")])
        wait("reporting")
        print(*client.get_job_logs("reporting"), sep="\\n")
        """,
    )
    assert out == "True\ndefault kubeflow_trainer_version\n"
    said = raw.get(f"{TRAINJOBS}/reporting")["status"]["trainerStatus"]
    assert (said["progressPercentage"], said["estimatedRemainingSeconds"]) == (40, 9)
    assert said["metrics"] == [{"name": "loss", "value": "0.5"}]
