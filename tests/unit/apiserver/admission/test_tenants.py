"""Pods in a tenant's namespace run as its user and ask for nothing outside; Pods elsewhere are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api import tenancy
from trainmaster.api.resources import NAMESPACES, PODS
from trainmaster.api.status import StatusError
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

USER = 611_007


def create(spec: dict[str, Any], annotations: dict[str, str] | None = None, namespace: str = "ann") -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with running_cluster() as cluster:
            await cluster.client.create(NAMESPACES, tenancy.build_namespace("ann", USER))
            await cluster.settle()
            meta: dict[str, Any] = {"name": "p", "annotations": annotations or {}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container()], **spec}}
            return await cluster.client.create(PODS, pod, namespace)

    return run_virtual(main())


def container(**context: Any) -> dict[str, Any]:
    return {"name": "c", "image": "python", "command": ["true"], **({"securityContext": context} if context else {})}


def test_a_pod_that_says_nothing_runs_as_the_tenants_user() -> None:
    context = create({})["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (USER, USER, USER)


def test_naming_the_tenants_own_user_is_fine() -> None:
    create(
        {
            "securityContext": {"runAsUser": USER, "supplementalGroups": [USER]},
            "containers": [container(runAsUser=USER)],
        }
    )


def test_pods_of_other_namespaces_are_left_alone() -> None:
    pod = create({"hostNetwork": True, "containers": [container(runAsUser=0)]}, namespace="default")
    assert "runAsUser" not in (pod["spec"].get("securityContext") or {})


HOST_PATH = {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"containers": [container(runAsUser=0)]}, "container c: securityContext.runAsUser is 0 and must be 611007"),
        ({"containers": [container(runAsGroup=0)]}, "runAsGroup is 0"),
        ({"containers": [container(privileged=True)]}, "must not ask for privileges"),
        ({"containers": [container(allowPrivilegeEscalation=True)]}, "must not ask for privileges"),
        ({"containers": [container(capabilities={"add": ["SYS_ADMIN"]})]}, "capabilities.add is not allowed"),
        ({"initContainers": [{**container(runAsUser=0), "name": "i"}]}, "container i: securityContext.runAsUser is 0"),
        ({"securityContext": {"runAsUser": 0}}, "spec.securityContext.runAsUser is 0"),
        ({"securityContext": {"fsGroup": 0}}, "spec.securityContext.fsGroup is 0"),
        ({"securityContext": {"supplementalGroups": [0]}}, "supplementalGroups may name 611007 only"),
        ({"hostNetwork": True}, "spec.hostNetwork is not allowed"),
        ({"nodeName": "local"}, "spec.nodeName is the scheduler's"),
        ({"priorityClassName": "system-node-critical"}, "spec.priorityClassName system-node-critical is for parts"),
        ({"hostPID": True}, "spec.hostPID is not allowed"),
        ({"hostIPC": True}, "spec.hostIPC is not allowed"),
        (HOST_PATH, "volume v is a hostPath"),
    ],
)  # fmt: skip
def test_what_leads_outside_is_refused_with_its_reason(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(StatusError) as refused:
        create(spec)
    assert refused.value.code == 403
    assert reason in refused.value.message


def test_all_reasons_are_said_at_once() -> None:
    with pytest.raises(StatusError) as refused:
        create({**HOST_PATH, "hostNetwork": True, "containers": [container(privileged=True)]})
    assert refused.value.message.count(";") >= 2


def test_nobody_passes_for_a_part_of_the_control_plane() -> None:
    with pytest.raises(StatusError, match="parts of the control plane"):
        create({}, {"kubernetes.io/config.mirror": "x"})


@pytest.mark.parametrize("name", ["a\n9.9.9.9 b", "a b", "", "A"])
def test_names_of_hosts_add_no_lines_to_the_hosts_file(name: str) -> None:
    with pytest.raises(StatusError, match=r"hostAliases\[0\].hostnames\[0\]"):
        create({"hostAliases": [{"ip": "1.2.3.4", "hostnames": [name]}]}, namespace="default")


def test_nobody_takes_a_gpu_by_writing_down_that_he_has_it() -> None:
    with pytest.raises(StatusError, match="is the scheduler's"):
        create({}, {"trainmaster.dev/devices": "{}"})
