"""Conformance lines C-001 to C-031: what the TrainJob controller makes, and what it reports."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
import yaml

from tests.unit.controllers.trainjob.stage import (
    ALL_JOBS,
    COMPLETED,
    FAILED,
    RANK,
    RESOURCES,
    Stage,
    make_full_trainjob,
    make_job,
    make_jobs,
    make_patch,
    make_runtime,
    make_trainjob,
    play,
)
from trainmaster.api.labels import ALLOW_DELETE_IN_USE, FROM_TRAINJOB
from trainmaster.api.meta import Object
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    JOB_SETS,
    SECRETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import Invalid, StatusError
from trainmaster.client.contract import PatchType

pytestmark = pytest.mark.unit

OWNER = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "alpha"}
SUSPENDED = ("Suspended", "True", "Suspended")
RESUMED = ("Suspended", "False", "Resumed")
SNAPSHOT = "alpha-runtime-snapshot"
TRAIN_ENV = [{"name": "TRAIN_JOB", "value": "value"}]


def check_owner(obj: Object, stage: Stage) -> None:
    uid = stage.get(TRAIN_JOBS)["metadata"]["uid"]
    want = {**OWNER, "uid": uid, "controller": True, "blockOwnerDeletion": True}
    assert obj["metadata"]["ownerReferences"] == [want]


def test_c_001_the_whole_jobset_and_its_pod_group() -> None:
    async def test(stage: Stage) -> None:
        runtime = make_runtime(podGroupPolicy={"coscheduling": {"scheduleTimeoutSeconds": 100}})
        trainer = {"image": "test:trainjob", "command": ["trainjob"], "args": ["trainjob"]}
        await stage.start(runtime, make_full_trainjob(trainer={**trainer, "resourcesPerNode": RESOURCES}))
        check_owner(stage.jobset, stage)
        assert stage.jobset["spec"]["suspend"] is True
        marks = {"testingKey": "testingVal"}
        annotations = {**stage.jobset["metadata"]["annotations"]}
        assert annotations.pop(FROM_TRAINJOB), "our own, beside upstream's"
        assert (stage.jobset["metadata"]["labels"], annotations) == (marks, marks)
        for name in ALL_JOBS:
            labels = stage.job(name)["template"]["spec"]["template"]["metadata"]["labels"]
            assert labels == {"scheduling.x-k8s.io/pod-group": "alpha"}
            assert stage.job(name)["replicas"] == 1
        assert [stage.size(name) for name in ALL_JOBS] == [(1, 1), (1, 1), (100, 100)]
        for name, uri in zip(ALL_JOBS, ("hf://trainjob-dataset", "hf://trainjob-model"), strict=False):
            assert stage.container(name)["env"] == [{"name": "STORAGE_URI", "value": uri}]
        node = stage.container()
        assert (node["image"], node["command"], node["args"]) == ("test:trainjob", ["trainjob"], ["trainjob"])
        assert node["resources"] == RESOURCES
        group = stage.get(COSCHEDULING_POD_GROUPS)
        check_owner(group, stage)
        resources = {"cpu": "102", "memory": "408Gi"}
        assert group["spec"] == {"minMember": 102, "minResources": resources, "scheduleTimeoutSeconds": 100}

    play(test)


def test_c_002_a_trainjob_managed_by_another_gets_nothing() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(), make_trainjob(managedBy="kueue.x-k8s.io/multikueue"))
        assert stage.find(JOB_SETS) is None
        assert "status" not in stage.get(TRAIN_JOBS)

    play(test)


def test_c_003_a_patch_of_a_suspended_trainjob_reaches_the_jobset_and_the_image_cannot_change() -> None:
    async def test(stage: Stage) -> None:
        runtime = make_runtime(podGroupPolicy={"coscheduling": {}})
        await stage.start(runtime, make_full_trainjob())
        before, group = stage.jobset["spec"], stage.get(COSCHEDULING_POD_GROUPS)["spec"]
        patch = make_patch(pod={"spec": {"nodeSelector": {"zone": "a"}}})
        await stage.patch(TRAIN_JOBS, {"spec": {"runtimePatches": [patch]}})
        await stage.play()
        assert stage.pod()["nodeSelector"] == {"zone": "a"}
        rest = {**stage.pod()}
        del rest["nodeSelector"]
        assert rest == before["replicatedJobs"][2]["template"]["spec"]["template"]["spec"]
        assert stage.jobset["spec"]["replicatedJobs"][:2] == before["replicatedJobs"][:2]
        assert stage.get(COSCHEDULING_POD_GROUPS)["spec"] == group
        with pytest.raises(Invalid, match="field is immutable"):
            await stage.patch(TRAIN_JOBS, {"spec": {"trainer": {"image": "other:1"}}})

    play(test)


def test_c_004_a_grace_period_in_a_patch_is_on_the_patched_pods_only() -> None:
    async def test(stage: Stage) -> None:
        patch = make_patch(pod={"spec": {"terminationGracePeriodSeconds": 300}})
        await stage.start(make_runtime(), make_full_trainjob(runtimePatches=[patch]))
        assert stage.pod()["terminationGracePeriodSeconds"] == 300
        assert "terminationGracePeriodSeconds" not in stage.pod("model-initializer")

    play(test)


def test_c_005_torch_variables_in_their_order() -> None:
    async def test(stage: Stage) -> None:
        runtime = make_runtime({"numNodes": 100, "torch": {}})
        await stage.start(runtime, make_trainjob(suspend=False, trainer={"env": TRAIN_ENV}))
        assert stage.container()["env"] == [
            *TRAIN_ENV,
            {"name": "PET_NNODES", "value": "100"},
            {"name": "PET_NPROC_PER_NODE", "value": "1"},
            {"name": "PET_NODE_RANK", "valueFrom": RANK},
            {"name": "PET_MASTER_ADDR", "value": "alpha-node-0-0.alpha"},
            {"name": "PET_MASTER_PORT", "value": "29500"},
        ]
        assert stage.container()["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]
        assert stage.jobset["spec"]["suspend"] is False

    play(test)


POLICIES = {
    "torch": {"numNodes": 1, "torch": {}},
    "jax": {"numNodes": 1, "jax": {}},
    "xgboost": {"numNodes": 1, "xgboost": {}},
    "flux": {"numNodes": 1, "flux": {}},
}


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("torch", id="C-006 torch"),
        pytest.param("jax", id="C-018 jax"),
        pytest.param("xgboost", id="C-021 xgboost"),
        pytest.param("flux", id="C-024 flux"),
    ],
)
def test_suspended_resumed_complete(policy: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(POLICIES[policy]), make_full_trainjob())
        assert stage.conditions == [SUSPENDED]
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        assert stage.conditions == [RESUMED]
        await stage.report({name: {"succeeded": 1} for name in ALL_JOBS}, COMPLETED)
        assert stage.conditions == [RESUMED, ("Complete", "True", "AllJobsCompleted")]
        assert stage.get(TRAIN_JOBS)["status"]["conditions"][1]["message"] == "jobset completed successfully"
        assert stage.counts == {name: {"succeeded": 1} for name in ALL_JOBS}

    play(test)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("torch", id="C-007 torch"),
        pytest.param("jax", id="C-019 jax"),
        pytest.param("xgboost", id="C-022 xgboost"),
        pytest.param("flux", id="C-025 flux"),
    ],
)
def test_resumed_failed(policy: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(POLICIES[policy]), make_full_trainjob())
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        counts = {ALL_JOBS[0]: {"succeeded": 1}, ALL_JOBS[1]: {"succeeded": 1}, "node": {"failed": 1}}
        await stage.report(counts, FAILED)
        assert stage.conditions == [RESUMED, ("Failed", "True", "FailedJobs")]
        assert stage.get(TRAIN_JOBS)["status"]["conditions"][1]["message"] == FAILED[2]
        assert stage.counts == counts

    play(test)


def test_c_008_the_counts_follow_the_jobset_without_a_verdict() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(POLICIES["torch"]), make_trainjob())
        await stage.report({"node": {"ready": 1, "active": 1}}, None)
        assert stage.counts == {"node": {"ready": 1, "active": 1}}
        await stage.report({"node": {"failed": 1}}, None)
        assert stage.counts == {"node": {"failed": 1}}
        assert stage.conditions == []

    play(test)


def test_c_009_a_patch_merges_into_the_pods_and_leaves_the_variables_alone() -> None:
    async def test(stage: Stage) -> None:
        env = [{"name": "INIT_ENV", "value": "original"}, {"name": "DATASET_PATH", "value": "runtime"}]
        jobs = make_jobs(node={"initContainers": [{"name": "prepare", "image": "prepare:1", "env": env}]})
        own = [{"name": "INIT_ENV", "value": "override"}, {"name": "NEW_VALUE", "value": "from-overrides"}]
        marks = {"labels": {"l": "1"}, "annotations": {"a": "2"}}
        spec = {"serviceAccountName": "override", "initContainers": [{"name": "prepare", "env": own}]}
        patch = make_patch(pod={"metadata": marks, "spec": spec})
        trainjob = make_trainjob(trainer={}, runtimePatches=[patch])
        await stage.start(make_runtime(POLICIES["torch"], jobs=jobs), trainjob)
        assert stage.job()["template"]["spec"]["template"]["metadata"] == marks
        assert stage.pod()["serviceAccountName"] == "override"
        assert stage.pod()["initContainers"][0]["env"] == [*own, env[1]]
        names = [entry["name"] for entry in stage.container()["env"]]
        assert (names[0], len(names)) == ("PET_NNODES", 5)

    play(test)


MPI = {"mpiImplementation": "OpenMPI", "numProcPerNode": 8, "sshAuthMountPath": "/root/.ssh"}


def make_mpi_runtime(**policy: Any) -> Object:
    launcher = {**make_job("launcher"), "dependsOn": [{"name": "node", "status": "Ready"}]}
    jobs = [make_job("node", label="trainer"), launcher]
    return make_runtime({"numNodes": 1, "mpi": {**MPI, "runLauncherAsNode": False, **policy}}, jobs=jobs)


def test_c_010_mpi_objects_volumes_and_variables() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_mpi_runtime(), make_trainjob(trainer={"numNodes": 2, "env": TRAIN_ENV}))
        assert stage.job("launcher")["dependsOn"] == [{"name": "node", "status": "Ready"}]
        items = [
            {"key": "ssh-privatekey", "mode": 0o640, "path": "id_rsa"},
            {"key": "ssh-publickey", "mode": 0o644, "path": "id_rsa.pub"},
            {"key": "ssh-publickey", "mode": 0o644, "path": "authorized_keys"},
        ]
        secret = {"secretName": "alpha-mpi-ssh-auth", "defaultMode": 0o400, "items": items}
        for name in ("launcher", "node"):
            assert {"name": "mpi-ssh-auth", "secret": secret} in stage.pod(name)["volumes"]
            assert {"name": "mpi-ssh-auth", "mountPath": "/root/.ssh"} in stage.container(name)["volumeMounts"]
        hostfile = {"name": "alpha-mpi-hostfile", "items": [{"key": "hostfile", "mode": 0o444, "path": "hostfile"}]}
        assert {"name": "mpi-hostfile", "configMap": hostfile} in stage.pod("launcher")["volumes"]
        assert {"name": "mpi-hostfile", "mountPath": "/etc/mpi"} in stage.container("launcher")["volumeMounts"]
        assert "mpi-hostfile" not in [volume["name"] for volume in stage.pod("node")["volumes"]]
        assert stage.container("launcher")["env"] == [
            {"name": "OMPI_MCA_orte_default_hostfile", "value": "/etc/mpi/hostfile"},
            {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
            {"name": "OMPI_MCA_orte_set_default_slots", "value": "8"},
            {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
        ]
        assert stage.container("node")["env"] == TRAIN_ENV
        assert (stage.size("node"), stage.size("launcher")) == ((2, 2), (1, 1))
        want = "alpha-node-0-0.alpha slots=8\nalpha-node-0-1.alpha slots=8\n"
        assert stage.get(CONFIG_MAPS, "alpha-mpi-hostfile")["data"] == {"hostfile": want}
        keys = stage.get(SECRETS, "alpha-mpi-ssh-auth")
        check_owner(keys, stage)
        assert (keys["type"], keys["immutable"]) == ("kubernetes.io/ssh-auth", True)
        assert b64decode(keys["data"]["ssh-privatekey"]).startswith(b"-----BEGIN EC PRIVATE KEY-----")
        assert b64decode(keys["data"]["ssh-publickey"]).startswith(b"ecdsa-sha2-nistp521 ")

    play(test)


@pytest.mark.parametrize(
    ("verdict", "counts", "want"),
    [
        pytest.param(
            COMPLETED, {"node": {}, "launcher": {"succeeded": 1}}, ("Complete", "True", "AllJobsCompleted"), id="C-011"
        ),
        pytest.param(FAILED, {"node": {}, "launcher": {"failed": 1}}, ("Failed", "True", "FailedJobs"), id="C-012"),
    ],
)
def test_the_end_of_an_mpi_job(verdict: Any, counts: Any, want: tuple[str, str, str]) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_mpi_runtime(), make_trainjob(suspend=True, trainer={"numNodes": 2}))
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        await stage.report(counts, verdict)
        assert stage.conditions == [RESUMED, want]
        assert stage.counts == counts

    play(test)


def make_unlabelled() -> Object:
    return make_runtime(jobs=[make_job("node")])


def test_c_013_a_deadline_fails_the_trainjob_and_removes_the_jobset() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_unlabelled(), make_trainjob(activeDeadlineSeconds=1))
        assert stage.find(JOB_SETS) is not None
        stage.clock.advance(2)
        await stage.play()
        condition = stage.get(TRAIN_JOBS)["status"]["conditions"][0]
        assert stage.conditions == [("Failed", "True", "DeadlineExceeded")]
        assert condition["message"] == "TrainJob exceeded its active deadline"
        assert stage.find(JOB_SETS) is None
        assert "DeadlineExceeded" in stage.notes

    play(test)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"activeDeadlineSeconds": 3600}, id="C-014 far away"),
        pytest.param({"activeDeadlineSeconds": 1, "suspend": True}, id="C-015 suspended"),
    ],
)
def test_a_deadline_that_is_not_due(spec: Object) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_unlabelled(), make_trainjob(**spec))
        stage.clock.advance(5)
        await stage.play()
        assert all(reason != "DeadlineExceeded" for _, _, reason in stage.conditions)
        assert stage.find(JOB_SETS) is not None

    play(test)


def test_c_016_a_resumed_trainjob_has_a_fresh_window() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_unlabelled(), make_trainjob(activeDeadlineSeconds=2, suspend=True))
        stage.clock.advance(60)
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        assert stage.conditions == [RESUMED]
        assert (await stage.step()).requeue_after == pytest.approx(2.0, abs=1)
        stage.clock.advance(3)
        await stage.play()
        assert stage.conditions == [RESUMED, ("Failed", "True", "DeadlineExceeded")]
        assert stage.find(JOB_SETS) is None

    play(test)


def test_c_017_jax_variables() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(POLICIES["jax"]), make_trainjob(trainer={"numNodes": 2}))
        assert stage.size() == (2, 2)
        assert stage.container()["env"] == [
            {"name": "JAX_NUM_PROCESSES", "value": "2"},
            {"name": "JAX_PROCESS_ID", "valueFrom": RANK},
            {"name": "JAX_COORDINATOR_ADDRESS", "value": "alpha-node-0-0.alpha:29500"},
        ]
        assert stage.container()["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]

    play(test)


def test_c_020_xgboost_variables() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(POLICIES["xgboost"]), make_trainjob(trainer={"numNodes": 2}))
        assert stage.size() == (2, 2)
        assert stage.container()["env"] == [
            {"name": "DMLC_TRACKER_URI", "value": "alpha-node-0-0.alpha"},
            {"name": "DMLC_TRACKER_PORT", "value": "29500"},
            {"name": "DMLC_TASK_ID", "valueFrom": RANK},
            {"name": "DMLC_NUM_WORKER", "value": "2"},
        ]
        assert stage.container()["ports"] == [{"containerPort": 29500, "protocol": "TCP"}]

    play(test)


def test_c_023_flux_pods_scripts_and_certificate() -> None:
    async def test(stage: Stage) -> None:
        trainer = {"numNodes": 2, "image": "test:trainjob", "command": ["trainjob"], "args": ["trainjob"]}
        await stage.start(make_runtime(POLICIES["flux"]), make_trainjob(trainer=trainer))
        assert stage.size() == (2, 2)
        (installer,) = stage.pod()["initContainers"]
        assert (installer["name"], installer["command"]) == (
            "flux-installer",
            ["/bin/bash", "/etc/flux-config/init.sh"],
        )
        assert installer["image"] == "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"
        mounts = {(m["mountPath"], m.get("readOnly", False)) for m in installer["volumeMounts"]}
        assert mounts == {("/mnt/flux", False), ("/etc/flux-config", True)}
        volumes = {volume["name"]: volume for volume in stage.pod()["volumes"]}
        assert volumes["spack-install"]["emptyDir"] == volumes["flux-install"]["emptyDir"] == {}
        assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory"}
        assert volumes["alpha-flux-entrypoint"]["configMap"] == {"name": "alpha-flux-entrypoint", "defaultMode": 0o755}
        assert volumes["flux-curve"]["secret"] == {"secretName": "alpha-flux-curve", "defaultMode": 0o400}
        node = stage.container()
        assert node["image"] == "test:trainjob"
        assert node["command"] == ["/bin/bash", "/etc/flux-config/entrypoint.sh", "trainjob trainjob"]
        assert "args" not in node
        assert [(m["mountPath"], m.get("readOnly", False)) for m in node["volumeMounts"][1:]] == [
            ("/mnt/flux", False),
            ("/opt/software", False),
            ("/etc/flux-config", True),
            ("/curve", True),
            ("/dev/shm", True),
        ]
        scripts = stage.get(CONFIG_MAPS, "alpha-flux-entrypoint")["data"]
        assert sorted(scripts) == ["entrypoint.sh", "init.sh"]
        assert "alpha-node-0-[0-1]" in scripts["entrypoint.sh"]
        certificate = b64decode(stage.get(SECRETS, "alpha-flux-curve")["data"]["curve.cert"]).decode()
        assert "public-key" in certificate and "secret-key" in certificate

    play(test)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("TrainingRuntime", id="C-026"), pytest.param("ClusterTrainingRuntime", id="C-027")],
)
def test_the_snapshot_of_the_runtime(kind: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(kind=kind), make_trainjob(kind=kind))
        snapshot = stage.get(CONFIG_MAPS, SNAPSHOT)
        check_owner(snapshot, stage)
        text = snapshot["data"]["runtime"]
        assert f"kind: {kind}\n" in text and "  name: alpha\n" in text
        gvr = TRAINING_RUNTIMES if kind == "TrainingRuntime" else CLUSTER_TRAINING_RUNTIMES
        namespace = "default" if kind == "TrainingRuntime" else ""
        runtime = stage.cluster.view.find(gvr, namespace, "alpha")
        assert runtime is not None
        assert yaml.safe_load(text)["metadata"]["uid"] == runtime["metadata"]["uid"]

    play(test)


def test_c_028_editing_the_runtime_does_not_reach_a_trainjob_that_has_its_snapshot() -> None:
    async def test(stage: Stage) -> None:
        runtime = make_runtime()
        runtime["spec"]["template"]["metadata"] = {"labels": {"version": "old"}}
        await stage.start(runtime, make_trainjob(suspend=True))
        before = stage.get(CONFIG_MAPS, SNAPSHOT)["data"]
        await stage.patch(TRAINING_RUNTIMES, {"spec": {"template": {"metadata": {"labels": {"version": "new"}}}}})
        await stage.patch(TRAIN_JOBS, {"spec": {"suspend": False}})
        await stage.play()
        assert stage.jobset["spec"]["suspend"] is False
        assert stage.jobset["metadata"]["labels"] == {"version": "old"}
        assert stage.get(CONFIG_MAPS, SNAPSHOT)["data"] == before

    play(test)


def test_c_029_a_deleted_snapshot_is_taken_again() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(), make_trainjob())
        await stage.cluster.client.delete(CONFIG_MAPS, SNAPSHOT, "default")
        await stage.play()
        check_owner(stage.get(CONFIG_MAPS, SNAPSHOT), stage)

    play(test)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("ClusterTrainingRuntime", id="C-030"), pytest.param("TrainingRuntime", id="C-031")],
)
def test_a_runtime_carries_no_finalizer_while_a_trainjob_uses_it(kind: str) -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_runtime(kind=kind), make_trainjob(kind=kind))
        gvr = TRAINING_RUNTIMES if kind == "TrainingRuntime" else CLUSTER_TRAINING_RUNTIMES
        namespace = "default" if kind == "TrainingRuntime" else ""
        runtime = stage.cluster.view.find(gvr, namespace, "alpha")
        assert runtime is not None and "finalizers" not in runtime["metadata"]
        with pytest.raises(StatusError, match="in use by TrainJob default/alpha"):
            await stage.cluster.client.delete(gvr, "alpha", namespace)
        allowed = {"metadata": {"annotations": {ALLOW_DELETE_IN_USE: "true"}}}
        await stage.cluster.client.patch(gvr, "alpha", PatchType.MERGE, allowed, namespace)
        await stage.cluster.client.delete(gvr, "alpha", namespace)
        assert stage.cluster.view.find(gvr, namespace, "alpha") is None

    play(test)
