"""The operator's own decisions: what its cache keeps, which news can wait, what it needs from a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from tests.unit.controllers.world import World
from trainmaster.api.lifecycle import policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import (
    CONFIG_MAPS,
    HORIZONTAL_POD_AUTOSCALERS,
    JOB_SETS,
    PODS,
    PRIORITY_CLASSES,
    TRAIN_JOBS,
)
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client
from trainmaster.client.view import View
from trainmaster.client.writes import Applied, Delete, Write
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import MODELS, PyTorchJob
from trainmaster.operator.caching import SharedTexts, drop_content_of_others, drop_ownership
from trainmaster.operator.lifecycle import DeletionRecorder, check_v1_definitions, list_unpublished
from trainmaster.operator.manifests import build_manifests
from trainmaster.operator.mode import (
    OperatorSettings,
    build_operated_controller,
    list_collections,
    list_operated,
)
from trainmaster.operator.rights import Duties, list_cluster_rules, list_job_rules

pytestmark = pytest.mark.unit


keep = partial(drop_content_of_others, SharedTexts())


def make_jobset(**fields: Any) -> Object:
    meta = {"name": "a", "namespace": "default", "uid": "u", **fields.pop("metadata", {})}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": {}, **fields}


def make_config_map(**owner: str) -> Object:
    meta: Object = {"name": "s", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"}}
    if owner:
        meta["ownerReferences"] = [{"uid": "t", "controller": True, "name": "a", **owner}]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**meta, "managedFields": [{}]},
        "data": {"key": "text"},
    }


@pytest.mark.parametrize("owner", [{}, {"kind": "Job"}])
def test_config_maps_of_others_are_kept_without_their_content(owner: dict[str, str]) -> None:
    kept = keep(make_config_map(**owner))
    assert "data" not in kept and kept["metadata"]["name"] == "s"
    assert kept["metadata"].get("ownerReferences") == make_config_map(**owner)["metadata"].get("ownerReferences")


def test_config_maps_of_trainjobs_are_kept_whole_but_for_the_record_of_managers() -> None:
    kept = keep(make_config_map(kind="TrainJob"))
    assert kept["data"] == {"key": "text"} and "managedFields" not in kept["metadata"]
    assert drop_ownership(kept) is kept


@pytest.mark.parametrize(
    ("jobset", "waits"),
    [
        (make_jobset(), True),
        (make_jobset(status={"conditions": [{"type": "Completed", "status": "True"}]}), False),
        (make_jobset(status={"conditions": [{"type": "Failed", "status": "True"}]}), False),
        (make_jobset(status={"conditions": [{"type": "Failed", "status": "False"}]}), True),
        (make_jobset(spec={"suspend": True}), False),
        (make_jobset(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    ],
)
def test_the_counts_of_a_running_jobset_can_wait_and_its_end_cannot(jobset: Object, waits: bool) -> None:
    world, delays = World(), get_delays()
    assert delays[JOB_SETS](world, jobset) == 0.0, "it is gone"
    world.add(JOB_SETS, jobset)
    assert delays[JOB_SETS](world, jobset) == (3.0 if waits else 0.0)


def test_a_child_that_was_made_can_wait_and_one_that_went_cannot() -> None:
    world, delays = World(), get_delays()
    config_map = make_config_map(kind="TrainJob")
    assert delays[CONFIG_MAPS](world, config_map) == 0.0
    world.add(CONFIG_MAPS, config_map)
    assert delays[CONFIG_MAPS](world, config_map) == 3.0


def test_a_trainjob_with_a_new_spec_cannot_wait_and_one_with_a_new_status_can() -> None:
    world, delay = World(), get_delays()[TRAIN_JOBS]
    trainjob: Object = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "generation": 1}}
    world.add(TRAIN_JOBS, trainjob)
    assert [delay(world, trainjob), delay(world, trainjob)] == [0.0, 3.0]
    trainjob["metadata"]["generation"] = 2
    assert [delay(world, trainjob), delay(world, trainjob)] == [0.0, 3.0]
    trainjob["metadata"]["uid"] = "v"
    assert delay(world, trainjob) == 0.0
    world.objects.clear()
    assert [delay(world, trainjob), delay(world, trainjob)] == [0.0, 0.0]


def get_delays() -> dict[GVR, Callable[[View, Object], float]]:
    controller = build_operated_controller(OperatorSettings(counts_delay=3.0))
    return {source.gvr: source.delay for source in controller.sources}


def test_the_manifests_hold_our_kinds_and_no_right_that_is_not_named() -> None:
    items = build_manifests()["items"]
    names = [item["metadata"]["name"] for item in items if item["kind"] == "CustomResourceDefinition"]
    assert names == [
        f"{plural}.trainer.kubeflow.org" for plural in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    ]
    rules = list_job_rules(Duties())
    for rule in rules:
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
    watched = {
        (CONFIG_MAPS.group, CONFIG_MAPS.plural),
        (JOB_SETS.group, JOB_SETS.plural),
    }
    allowed = {
        (group, name)
        for rule in rules
        if "watch" in rule["verbs"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert watched <= allowed


def test_a_companion_may_read_and_delete_and_change_nothing_else() -> None:
    assert [item["kind"] for item in build_manifests(Duties(companion=True))["items"]][:2] == [
        "Namespace",
        "ServiceAccount",
    ]
    changing = {
        (name, verb)
        for rule in list_cluster_rules(Duties(companion=True))
        for name in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch") and name not in ("events", "tokenreviews", "subjectaccessreviews")
    }
    plurals = [model.gvr.plural for model in OperatorSettings(companion=True).models]
    assert changing == {
        (name, verb) for plural in plurals for name, verb in ((plural, "delete"), (f"{plural}/status", "patch"))
    }


def test_a_companion_retains_every_kind_and_runs_none() -> None:
    settings = OperatorSettings(companion=True)
    assert settings.models == (TrainJob, *MODELS)
    found = list_collections((), settings)
    assert {model.gvr for model in settings.models} <= set(found)
    assert set(found) - set(settings.optional) == {CONFIG_MAPS}, "each of the others may not be installed"


def test_the_policy_is_kept_whole_among_the_config_maps_of_others() -> None:
    meta = {"name": policy.NAME, "namespace": policy.NAMESPACE, "uid": "u", "resourceVersion": "1"}
    config_map = {"kind": "ConfigMap", "metadata": meta, "data": {"ttlSecondsAfterFinished": "5"}}
    assert keep(config_map)["data"] == {"ttlSecondsAfterFinished": "5"}


def test_a_gang_scheduler_has_its_priorities_and_every_pytorch_job_its_autoscaler_in_memory() -> None:
    plain, gang = (OperatorSettings(v1_jobs=(PyTorchJob,), gang_scheduler=name) for name in ("", "volcano"))
    assert HORIZONTAL_POD_AUTOSCALERS in list_collections(list_operated(plain, None), plain)
    assert PRIORITY_CLASSES not in list_collections(list_operated(plain, None), plain)
    assert PRIORITY_CLASSES in list_collections(list_operated(gang, None), gang)


def test_in_place_of_training_operator_it_starts_without_jobsets() -> None:
    assert JOB_SETS not in OperatorSettings().optional
    assert JOB_SETS in OperatorSettings(v1_jobs=(PyTorchJob,)).optional


def test_a_companion_keeps_no_pods_in_memory_and_the_operator_does() -> None:
    settings = OperatorSettings()
    assert PODS not in list_collections((), settings)
    assert PODS in list_collections((build_operated_controller(settings),), settings)


def test_the_kinds_of_training_operator_are_touched_only_if_they_are_named() -> None:
    alone, both = OperatorSettings(), OperatorSettings(v1_jobs=(PyTorchJob,))
    assert not any(gvr.group == "kubeflow.org" for gvr in list_collections(list_operated(alone, None), alone))
    found = {gvr.plural for gvr in list_collections(list_operated(both, None), both) if gvr.group == "kubeflow.org"}
    assert found == {"pytorchjobs"}
    rules = [rule for item in build_manifests(Duties(v1_jobs=(PyTorchJob,)))["items"] for rule in item.get("rules", ())]
    named = {(name, verb) for rule in rules for name in rule.get("resources", ()) for verb in rule["verbs"]}
    assert {("pytorchjobs/status", "patch"), ("pods", "create"), ("services", "create")} <= named
    assert {("horizontalpodautoscalers", "create"), ("podgroups", "delete"), ("deployments", "list")} <= named
    assert not any(name.startswith("tfjobs") or name == "roles" for name, _ in named)


@pytest.mark.parametrize("known", [True, False])
def test_definitions_without_our_fields_are_refused_at_start(known: bool) -> None:
    client = Definitions({"restarts": {}} if known else {}, "pytorchjobs.kubeflow.org")
    asked = check_v1_definitions(cast(Client, client), (PyTorchJob,))
    if known:
        asyncio.run(asked)
        return
    with pytest.raises(OSError, match="--without-deployment --v1-jobs"):
        asyncio.run(asked)


class Definitions:
    """A client that has one CRD, or none."""

    def __init__(self, status: Object | None, name: str = "trainjobs.trainer.kubeflow.org") -> None:
        self._status = status
        self._name = name

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        assert name == self._name
        if self._status is None:
            raise StatusError(403, "Forbidden", "no")
        schema = {"openAPIV3Schema": {"properties": {"status": {"properties": self._status}}}}
        return {"spec": {"versions": [{"name": name, "schema": schema} for name in ("v1", "v1alpha1")]}}


@pytest.mark.parametrize(("status", "known"), [({"retention": {}}, True), ({"conditions": {}}, False), (None, False)])
def test_the_time_of_deletion_is_published_where_the_crd_keeps_it(status: Object | None, known: bool) -> None:
    client = cast(Client, Definitions(status))
    assert asyncio.run(list_unpublished(client, (TrainJob,))) == (set() if known else {TRAIN_JOBS})


def test_who_deleted_is_remembered_before_the_answer_comes() -> None:
    seen: list[tuple[str, str] | None] = []

    async def apply(writes: Sequence[Write], field_manager: str) -> Applied:
        seen.append(recorder.find("u"))
        return Applied(None, 0)

    recorder = DeletionRecorder(apply)
    asyncio.run(recorder.apply([Delete(TRAIN_JOBS, "default", "a", "u")], "retention"))
    assert seen == [("system:trainmaster", "its time after the end was over")] and recorder.find("u") is None
