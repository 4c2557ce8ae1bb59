"""Scheduler: Pods go to the one node, or say why not."""

from __future__ import annotations

import pytest

from tests.unit.controllers.world import World
from trainmaster.api import tenancy
from trainmaster.api.patches import merge
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS
from trainmaster.controllers.scheduler.placement import list_obstacles
from trainmaster.controllers.scheduler.reconciler import BIND, CONTROLLER, map_node
from trainmaster.controllers.waiting import find_annotated
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod

pytestmark = pytest.mark.unit


def make_world(*, node: bool = True, **spec: object) -> World:
    world = World()
    if node:
        status = {"allocatable": {"cpu": "2", "memory": "1Gi"}}
        world.add(NODES, {"metadata": {"name": "local", "labels": {"zone": "here"}}, "status": status})
    world.add(PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [], **spec}})
    return world


def require(key: str, operator: str, *values: str) -> dict[str, object]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def get_message(world: World) -> str:
    condition = world.get(PODS, "p")["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    return str(condition["message"])


def test_a_pod_is_bound_to_the_local_node_once() -> None:
    world = make_world(nodeSelector={"zone": "here"})
    plan = world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"
    assert [note.message for note in plan.notes] == ["Successfully assigned default/p to local"]
    assert world.run(CONTROLLER, "p").all_writes == ()


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"nodeSelector": {"zone": "there"}}, "didn't match Pod's node affinity/selector", id="selector"),
        pytest.param(
            {"affinity": require("zone", "NotIn", "here")}, "didn't match Pod's node affinity/selector", id="affinity"
        ),
        pytest.param(
            {"tolerations": [{"key": "other", "operator": "Exists"}]},
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="a taint",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack"}]},
            "didn't match pod topology spread constraints (missing required label)",
            id="spreading over a label that is not there",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "does not carry out spec.affinity.podAffinity",
            id="affinity to other Pods",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            id="a device that is not there",
        ),
    ],
)
def test_a_pod_that_does_not_fit_says_why_once(spec: dict[str, object], want: str) -> None:
    world = make_world(**spec)  # type: ignore[arg-type]  # keyword arguments pass through
    if "taint" in want:
        world.merge(NODES, "local", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "")
    world.run(CONTROLLER, "p")
    assert want in get_message(world)
    assert world.run(CONTROLLER, "p").all_writes == ()


@pytest.mark.parametrize(
    ("key", "operator", "values", "suits"),
    [
        ("zone", "In", ["there", "here"], True),
        ("zone", "In", ["there"], False),
        ("zone", "NotIn", ["there"], True),
        ("zone", "Exists", [], True),
        ("zone", "DoesNotExist", [], False),
        ("rank", "Gt", ["6"], True),
        ("rank", "Lt", ["7"], False),
        ("absent", "NotIn", ["x"], True),
        ("absent", "Gt", ["1"], False),
        ("rank", "Gt", ["six"], False),
        ("rank", "Lt", ["9" * 5000], False),
        ("rank", "Gt", [], False),
        ("rank", "Near", ["7"], False),
    ],
)
def test_required_node_affinity_is_heeded(key: str, operator: str, values: list[str], suits: bool) -> None:
    world = make_world(affinity=require(key, operator, *values))
    node = world.get(NODES, "local", "")
    world.add(NODES, {**node, "metadata": {**node["metadata"], "labels": {"zone": "here", "rank": "7"}}})
    world.run(CONTROLLER, "p")
    assert (world.get(PODS, "p")["spec"].get("nodeName") == "local") == suits


@pytest.mark.parametrize("entry", [{}, {"operator": "In"}, {"key": "zone"}, {"key": "metadata.name", "operator": "Gt"}])
@pytest.mark.parametrize("field", ["matchExpressions", "matchFields"])
def test_requirements_that_no_server_should_have_stored_keep_only_their_own_pod_waiting(
    field: str, entry: dict[str, object]
) -> None:
    terms = {"nodeSelectorTerms": [{field: [entry]}]}
    world = make_world(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    world.add(PODS, {"metadata": {"name": "other", "namespace": "default"}, "spec": {"containers": []}})
    world.run(CONTROLLER, "p")
    world.run(CONTROLLER, "p")
    assert "didn't match Pod's node affinity/selector" in get_message(world)
    obstacle = list_obstacles(Pod(world.get(PODS, "p")), Node(world.get(NODES, "local", "")))[0]
    assert obstacle.text and obstacle.change
    assert world.get(PODS, "other")["spec"]["nodeName"] == "local"


def test_what_would_match_is_said_until_the_pod_is_bound() -> None:
    world = make_world(nodeSelector={"zone": "there", "disk": "ssd"})
    world.run(CONTROLLER, "p")
    waiting = find_annotated(world.get(PODS, "p"))
    assert waiting is not None
    assert waiting["message"] == (
        "Pod p waits: no node has the label zone=there (node local has zone=here); "
        "the label disk=ssd (node local has no label disk); "
        "`kubectl label node local --overwrite disk=ssd zone=there` changes that"
    )
    node = world.get(NODES, "local", "")
    world.add(NODES, {**node, "metadata": {**node["metadata"], "labels": {"zone": "there", "disk": "ssd"}}})
    world.run(CONTROLLER, "p")
    assert find_annotated(world.get(PODS, "p")) is None


def test_a_gated_pod_waits_without_an_event_until_the_gate_is_gone() -> None:
    world = make_world(schedulingGates=[{"name": "example.com/quota"}])
    assert world.run(CONTROLLER, "p").notes == ()
    condition = world.get(PODS, "p")["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    assert world.run(CONTROLLER, "p").all_writes == ()
    pod = world.get(PODS, "p")
    world.add(PODS, {**pod, "spec": {**pod["spec"], "schedulingGates": []}})
    world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"


def test_the_node_wakes_the_pods_that_waited_for_it() -> None:
    world = make_world(node=False)
    world.run(CONTROLLER, "p")
    assert "has not registered" in get_message(world)
    node = world.add(NODES, {"metadata": {"name": "local"}})
    assert BIND in map_node(world, node)
    world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"


@pytest.mark.parametrize(
    ("taint", "toleration", "suits"),
    [
        ({"key": "a", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "value": "1", "effect": "NoExecute"}, {"key": "a", "value": "1", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "1", "effect": "NoSchedule"}, {"key": "a", "value": "2"}, False),
        ({"key": "a", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "a", "effect": "NoSchedule"}, {"operator": "Exists"}, True),
        ({"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "operator": "Exists"}, True),
    ],
)
def test_taints_and_tolerations_are_heeded(taint: dict[str, str], toleration: dict[str, str], suits: bool) -> None:
    world = make_world(tolerations=[toleration])
    world.merge(NODES, "local", {"spec": {"taints": [taint]}}, "")
    world.run(CONTROLLER, "p")
    assert (world.get(PODS, "p")["spec"].get("nodeName") == "local") == suits


def test_a_cordoned_node_takes_no_pods() -> None:
    world = make_world()
    world.merge(NODES, "local", {"spec": {"unschedulable": True}}, "")
    world.run(CONTROLLER, "p")
    assert get_message(world) == "0/1 nodes are available: 1 node(s) were unschedulable."
    waiting = find_annotated(world.get(PODS, "p"))
    assert waiting is not None and "kubectl uncordon local" in waiting["message"]


@pytest.mark.parametrize(("quality", "suits"), [("BestEffort", False), ("Burstable", True)])
def test_when_memory_runs_short_only_pods_without_requests_wait(quality: str, suits: bool) -> None:
    world = make_world()
    world.merge(PODS, "p", {"status": {"qosClass": quality}})
    taint = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
    world.merge(NODES, "local", {"spec": {"taints": [taint]}}, "")
    world.run(CONTROLLER, "p")
    assert (world.get(PODS, "p")["spec"].get("nodeName") == "local") == suits


def test_selectors_that_nothing_meets_are_ignored_where_the_policy_says_so() -> None:
    world = make_world(nodeSelector={"zone": "there"})
    meta = {"name": "trainmaster-node", "namespace": "kubeflow-system"}
    world.add(CONFIG_MAPS, {"metadata": meta, "data": {"selectors": "approximated"}})
    plan = world.run(CONTROLLER, "p")
    assert world.get(PODS, "p")["spec"]["nodeName"] == "local"
    said = [note.message for note in plan.notes if note.reason == "Approximated"]
    assert said == [
        "no node has the label zone=there (node local has zone=here): ignored, as the policy "
        "kubeflow-system/trainmaster-node says"
    ]


def show(world: World) -> str:
    waiting = find_annotated(world.get(PODS, "p"))
    assert waiting is not None
    return str(waiting["message"])


def test_all_obstacles_are_told_and_first_what_requires_another_job() -> None:
    asked = {"resources": {"requests": {"nvidia.com/gpu": "16"}}}
    world = make_world(nodeSelector={"gpu": "h100"}, containers=[{"name": "main", **asked}])
    world.merge(NODES, "local", {"spec": {"unschedulable": True}}, "")
    world.run(CONTROLLER, "p")
    assert get_message(world) == "0/1 nodes are available: 1 node(s) were unschedulable.", "upstream's first"
    assert show(world) == (
        "Pod p waits: it cannot start for 3 reasons: (1) it asks for 16 GPUs, node local has none: leave them out, "
        "or run it on another machine; "
        "(2) node local takes no new Pods; (3) no node has the label gpu=h100 (node local has no label gpu)"
    )


DISK = "the disk of /data/home is nearly full: 510Mi free, 1Gi must stay free (setting node.min_free_disk_mib)"


@pytest.mark.parametrize("is_tenant", [False, True])
def test_a_nearly_full_disk_is_named_with_its_numbers_but_not_to_tenants(is_tenant: bool) -> None:
    world = make_world()
    if is_tenant:
        world.add(NAMESPACES, tenancy.build_namespace("default", 611_000))
    condition = {"type": "DiskPressure", "status": "True", "message": DISK}
    taint = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    world.merge(NODES, "local", {"spec": {"taints": [taint]}, "status": {"conditions": [condition]}}, "")
    world.run(CONTROLLER, "p")
    want = "node local: the disk is nearly full" if is_tenant else f"node local: {DISK}"
    assert show(world) == f"Pod p waits: {want}"


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ({"affinity": require("disk", "In", "ssd", "nvme")}, "kubectl label node local --overwrite disk=ssd"),
        ({"affinity": require("gpu", "Exists")}, "kubectl label node local --overwrite gpu=true"),
        (
            {"nodeSelector": {"a": "b"}, "affinity": require("disk", "In", "ssd")},
            "kubectl label node local --overwrite a=b disk=ssd",
        ),
        ({"affinity": require("zone", "NotIn", "here")}, ""),
        ({"affinity": require("disk", "In", "x; rm -rf ~")}, ""),
        ({"affinity": require("--kubeconfig", "In", "x")}, ""),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack"}]},
            "kubectl label node local --overwrite rack=local",
        ),
    ],
)
def test_labels_that_would_help_are_told_as_a_command(spec: dict[str, object], command: str) -> None:
    world = make_world(**spec)  # type: ignore[arg-type]  # keyword arguments pass through
    pod, node = Pod(world.get(PODS, "p")), Node(world.get(NODES, "local", ""))
    (obstacle,) = list_obstacles(pod, node)
    assert obstacle.change is not None
    if not command:
        assert obstacle.change.policy == {"selectors": "approximated"}
        return
    assert obstacle.change.how == command
    assert list_obstacles(pod, Node(merge.apply(dict(node.raw), dict(obstacle.change.patch)))) == []


@pytest.mark.parametrize("key", ["rack; rm -rf ~", "--kubeconfig"])
def test_no_command_contains_a_label_that_cannot_exist(key: str) -> None:
    world = make_world(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": key}])
    (obstacle,) = list_obstacles(Pod(world.get(PODS, "p")), Node(world.get(NODES, "local", "")))
    assert obstacle.change is None and obstacle.advice
