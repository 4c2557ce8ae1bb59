"""What a job that waits says about others: their names, or how many they are where a tenant reads it."""

from __future__ import annotations

import pytest

from tests.unit.controllers.scheduler.stage import Stage
from trainmaster.api import tenancy
from trainmaster.api.devices import Device
from trainmaster.api.resources import NAMESPACES, PODS
from trainmaster.controllers.scheduler.sentences import join
from trainmaster.controllers.waiting import find_annotated

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("labels", "apart", "text"),
    [
        (["n/a"], "", "n/a"),
        (["n/a", "m/b"], "", "n/a and m/b"),
        (["n/a", "n/b", "n/c", "n/d"], "", "n/a, n/b, n/c and 1 other"),
        (["m/a"], "n", "1 job of another user"),
        (["m/a", "m/b"], "n", "2 jobs of other users"),
        (["n/a", "m/b"], "n", "n/a and 1 job of another user"),
        (["n/a", "n/b", "n/c", "n/d", "m/e", "m/f"], "n", "n/a, n/b, n/c, 1 other and 2 jobs of other users"),
        (["nn/a"], "n", "1 job of another user"),
    ],
)
def test_strangers_are_counted(labels: list[str], apart: str, text: str) -> None:
    assert join(labels, apart) == text


def add_pod(stage: Stage, namespace: str, name: str, cpu: str) -> None:
    meta = {"name": name, "namespace": namespace, "creationTimestamp": stage._tick()}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    stage.add(PODS, {"metadata": meta, "spec": {"containers": [container]}})


def get_sentence(stage: Stage, namespace: str, name: str) -> str:
    mark = find_annotated(stage.objects[PODS, namespace, name])
    assert mark is not None
    return str(mark["message"])


def make_stage() -> Stage:
    stage = Stage(cpu="8")
    for name in ("ann", "bob"):
        stage.add(NAMESPACES, tenancy.build_namespace(name, 611_000))
    stage.add(NAMESPACES, {"metadata": {"name": "team"}})
    add_pod(stage, "bob", "secret-merger", "8")
    return stage


def test_a_tenant_is_not_told_who_else_runs_or_waits() -> None:
    stage = make_stage()
    add_pod(stage, "bob", "secret-next", "8")
    add_pod(stage, "ann", "mine", "8")
    stage.look()
    stage.report()
    assert get_sentence(stage, "ann", "mine") == (
        "waiting for 8 CPUs: 0 of 8 free; second in the queue behind 1 job of another user; "
        "starts after 1 job of another user, once enough has ended"
    )


def test_a_tenant_is_told_its_own_jobs() -> None:
    stage = make_stage()
    add_pod(stage, "bob", "secret-next", "8")
    stage.look()
    stage.report()
    assert get_sentence(stage, "bob", "secret-next").endswith("starts when bob/secret-merger ends")


def test_the_owners_jobs_are_told_names() -> None:
    stage = make_stage()
    add_pod(stage, "team", "mine", "8")
    stage.look()
    stage.report()
    assert get_sentence(stage, "team", "mine").endswith("starts when bob/secret-merger ends")


def test_a_tenant_is_not_told_which_process_of_the_machine_uses_a_gpu() -> None:
    stage = Stage(
        devices=[Device(0, "GPU-0", held="is used by process 4711 (python) of root, which belongs to no job")]
    )
    stage.add(NAMESPACES, tenancy.build_namespace("ann", 611_000))
    meta = {"name": "mine", "namespace": "ann", "creationTimestamp": stage._tick()}
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    stage.add(PODS, {"metadata": meta, "spec": {"containers": [container]}})
    stage.look()
    stage.report()
    sentence = get_sentence(stage, "ann", "mine")
    assert "GPU 0 is used outside this namespace" in sentence
    assert "4711" not in sentence
