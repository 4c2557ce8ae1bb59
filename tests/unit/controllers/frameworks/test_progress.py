"""Where training code is told to report, and what becomes of its words when the gang starts anew."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.test_verdict import Stage as Pods
from tests.unit.controllers.trainjob.stage import Stage, make_jobs, make_trainjob, play
from tests.unit.controllers.trainjob.stage import make_runtime as make_full_runtime
from tests.unit.controllers.world import NOW
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, TRAIN_JOBS
from trainmaster.client.contract import DeleteOptions
from trainmaster.controllers.frameworks.contract import FrameworkContext, ProgressServer
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit

CA = "-----BEGIN CERTIFICATE-----\n"
CLUSTER = FrameworkContext(on_cluster=True, progress=ProgressServer("https://trainer.kubeflow-system.svc:10443", CA))
EMBEDDED = FrameworkContext(progress=ProgressServer("https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"))
PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/alpha/status"
FOLDER = "/var/run/secrets/kubeflow/trainer"


def build_env(url: str) -> list[Object]:
    return [
        {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": url + PATH},
        {"name": "KUBEFLOW_TRAINER_SERVER_CA_CERT", "value": f"{FOLDER}/ca.crt"},
        {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": f"{FOLDER}/token"},
    ]


def build_volume(config_map: str) -> Object:
    token = {"audience": PATH.removeprefix("/apis/"), "expirationSeconds": 3600, "path": "token"}
    ca = {"name": config_map, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return {
        "name": "kubeflow-trainer-token",
        "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": ca}]},
    }


def list_told(container: Object) -> list[Object]:
    return [entry for entry in container["env"] if entry["name"].startswith("KUBEFLOW_")]


def strip_defaults(volume: Object) -> Object:
    volume = deepcopy(volume)
    volume["projected"].pop("defaultMode", None)
    return volume


def test_every_container_of_the_trainer_gets_what_upstreams_plugin_gives() -> None:
    """Variables, mount, volume and ConfigMap are those of upstream's TrainJobStatus; other jobs get nothing."""

    async def test(stage: Stage) -> None:
        jobs = make_jobs()
        pod = jobs[-1]["template"]["spec"]["template"]["spec"]
        pod["containers"].append({"name": "sidecar", "image": "s"})
        pod["initContainers"] = [{"name": "first", "image": "f"}]
        await stage.start(make_full_runtime(jobs=jobs), make_trainjob(trainer={"env": [{"name": "A", "value": "1"}]}))
        mount = {"name": "kubeflow-trainer-token", "mountPath": FOLDER, "readOnly": True}
        for name in ("node", "sidecar"):
            container = stage.container("node", name)
            assert list_told(container) == build_env("https://trainer.kubeflow-system.svc:10443")
            assert container["volumeMounts"][-1] == mount
        assert strip_defaults(stage.pod()["volumes"][-1]) == build_volume("alpha-tls-config")
        assert "env" not in stage.pod()["initContainers"][0]
        for job in ("dataset-initializer", "model-initializer"):
            assert "KUBEFLOW" not in str(stage.pod(job))
        made = stage.get(CONFIG_MAPS, "alpha-tls-config")
        assert made["data"] == {"ca.crt": CA}
        owner = made["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["controller"]) == ("TrainJob", True)

    play(test, context=CLUSTER)


def test_a_config_map_that_somebody_deleted_comes_back() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_full_runtime(), make_trainjob())
        await stage.cluster.client.delete(CONFIG_MAPS, "alpha-tls-config", "default", DeleteOptions())
        await stage.cluster.settle()
        await stage.play()
        assert stage.get(CONFIG_MAPS, "alpha-tls-config")["data"] == {"ca.crt": CA}

    play(test, context=CLUSTER)


def test_on_one_machine_the_certificates_are_those_that_the_namespace_has() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_full_runtime(), make_trainjob())
        url = "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"
        assert list_told(stage.container()) == build_env(url)
        assert strip_defaults(stage.pod()["volumes"][-1]) == build_volume("kube-root-ca.crt")
        assert stage.find(CONFIG_MAPS, "alpha-tls-config") is None

    play(test, context=EMBEDDED)


def test_the_jobs_own_variable_has_the_last_word() -> None:
    async def test(stage: Stage) -> None:
        own = {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "http://mine"}
        await stage.start(make_full_runtime(), make_trainjob(trainer={"env": [own]}))
        assert [e for e in stage.container()["env"] if e["name"] == own["name"]] == [own]

    play(test, context=EMBEDDED)


def test_without_a_server_and_without_a_trainer_nothing_is_added() -> None:
    async def test(stage: Stage) -> None:
        await stage.start(make_full_runtime(jobs=make_jobs()[:2]), make_trainjob())
        assert "KUBEFLOW" not in str(stage.jobset)

    async def test_off(stage: Stage) -> None:
        await stage.start(make_full_runtime(), make_trainjob())
        assert "KUBEFLOW" not in str(stage.jobset)

    play(test, context=CLUSTER)
    play(test_off, context=FrameworkContext(on_cluster=True))


# ---- what is left of an attempt -----------------------------------------------


def at(seconds: int) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def say(pods: Pods, seconds: int) -> Object:
    said = {"progressPercentage": 40, "lastUpdatedTime": at(seconds)}
    pods.merge(TRAIN_JOBS, "tj", {"status": {"trainerStatus": said}})
    return said


def restart(pods: Pods, seconds: int, restarts: int = 1) -> None:
    """The JobSet controller counts, and makes the Jobs of the next round."""
    pods.merge(JOB_SETS, "tj", {"status": {"restarts": restarts}})
    pods.look()
    labels = {"jobset.sigs.k8s.io/restart-attempt": str(restarts)}
    pods.merge(JOBS, "tj-node-0", {"metadata": {"labels": labels, "creationTimestamp": at(seconds)}})


def test_what_the_present_attempt_says_stays() -> None:
    pods = Pods()
    said = say(pods, 1)
    assert not pods.look().all_writes
    restart(pods, 5)
    pods.look()
    said = say(pods, 6)
    assert not pods.look().all_writes
    assert pods.status["trainerStatus"] == said


def test_a_restart_of_the_gang_takes_away_what_was_said_before() -> None:
    pods = Pods()
    said = say(pods, 5)
    pods.look()
    pods.merge(JOB_SETS, "tj", {"status": {"restarts": 1}})
    pods.look()
    assert pods.status["trainerStatus"] == said, "the Jobs of the next attempt are not there yet"
    restart(pods, 5)
    pods.look()
    assert "trainerStatus" not in pods.status
    assert not pods.look().all_writes


def test_a_jobset_that_is_made_anew_takes_it_away_too() -> None:
    pods = Pods()
    say(pods, 5)
    pods.merge(JOB_SETS, "tj", {"metadata": {"creationTimestamp": at(60)}})
    pods.look()
    assert "trainerStatus" not in pods.status


@pytest.mark.parametrize("kind", ["Completed", "Failed"])
def test_the_end_keeps_the_last_word(kind: str) -> None:
    pods = Pods()
    said = say(pods, 5)
    condition: dict[str, Any] = {"type": kind, "status": "True", "reason": "r", "message": "m"}
    pods.merge(JOB_SETS, "tj", {"status": {"conditions": [{**condition, "lastTransitionTime": at(6)}]}})
    pods.look(seconds=60)
    pods.merge(JOB_SETS, "tj", {"metadata": {"creationTimestamp": at(60)}})
    pods.look(seconds=60)
    assert pods.status["trainerStatus"] == said
