"""Checklist A: what kubectl learns about the server before it does anything else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions
from tools.toolbox import DEBIAN_KUBECTL, Toolbox

pytestmark = pytest.mark.wire

SCENARIOS = [
    scenario(
        "an unknown kind is named in the error",
        run("get nosuch", rc=1, err='error: the server doesn\'t have a resource type "nosuch"'),
        run(
            "get trainjobs.nosuch.example.org",
            rc=1,
            err='error: the server doesn\'t have a resource type "trainjobs"',
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "kinds are found by plural, singular, kind and short name",
        run("get configmaps,configmap,ConfigMap,cm -o name", out=None),
        run("get trainjobs,trainjob,TrainJob -o name"),
        run("get trainjobs.v1alpha1.trainer.kubeflow.org -o name"),
        run("get trainjob.trainer.kubeflow.org -o name"),
    ),
    scenario(
        "api-versions lists our groups",
        run(
            "api-versions",
            out="""
            ...
            apiextensions.k8s.io/v1
            ...
            apps/v1
            ...
            authentication.k8s.io/v1
            ...
            authorization.k8s.io/v1
            ...
            batch/v1
            ...
            coordination.k8s.io/v1
            ...
            events.k8s.io/v1
            ...
            jobset.x-k8s.io/v1alpha2
            ...
            rbac.authorization.k8s.io/v1
            ...
            scheduling.k8s.io/v1
            ...
            trainer.kubeflow.org/v1alpha1
            ...
            v1
        """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "api-resources shows names, scope and kind",
        run(
            "api-resources --api-group=trainer.kubeflow.org",
            out="""
            NAME                      SHORTNAMES   APIVERSION                      NAMESPACED   KIND
            clustertrainingruntimes   <any> trainer.kubeflow.org/v1alpha1   false        ClusterTrainingRuntime
            trainingruntimes          <any> trainer.kubeflow.org/v1alpha1   true         TrainingRuntime
            trainjobs                 <any> trainer.kubeflow.org/v1alpha1   true         TrainJob
        """,
        ),
        run(
            "api-resources --namespaced=false --api-group=rbac.authorization.k8s.io -o name",
            out="""
            clusterrolebindings.rbac.authorization.k8s.io
            clusterroles.rbac.authorization.k8s.io
        """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "api-resources shows the verbs of each kind",
        run(
            "api-resources --api-group=batch -o wide",
            out={
                0: """
                NAME <any>
                ...
                jobs <any> true  Job <any>[create delete deletecollection get list patch update watch]<any>
            """,
                27: """
                NAME <any>
                ...
                jobs <any> true  Job <any>create,delete,deletecollection,get,list,patch,update,watch<any>
            """,
            },
        ),
    ),
    scenario(
        "explain shows the structure of a custom kind",
        run(
            "explain trainjob.spec",
            out="""
            ...
            KIND: TrainJob
            VERSION: <any>v1alpha1
            ...
            FIELD<any>
            ...
            runtimeRef <Object> -required-
            ...
            suspend <boolean>
            ...
            trainer <Object>
            ...
        """,
        ),
        run(
            "explain trainjob.spec.trainer.numNodes",
            out="""
            ...
            KIND: TrainJob
            ...
            FIELD: numNodes <integer>
            ...
        """,
        ),
        run("explain trainjob.spec.nosuch", rc=1, out=None, err='error: field "nosuch" does not exist'),
        core=True,
        kube=True,
    ),
    scenario(
        "explain --recursive shows every field",
        run(
            "explain trainjob --recursive",
            out="""
            ...
            apiVersion <string>
            ...
            spec <Object>
            ...
            runtimeRef <Object><any>
            ...
            status <Object>
            ...
        """,
        ),
    ),
    scenario(
        "explain shows the structure of a built-in kind",
        run(
            "explain pod.spec.containers.image",
            out="""
            ...
            KIND: Pod
            VERSION: v1
            ...
            FIELD: image <string>
            ...
        """,
        ),
        run(
            "explain job.spec --recursive",
            out="""
            ...
            KIND: Job
            ...
            backoffLimit <integer>
            ...
            template <any>
            ...
        """,
        ),
        core=True,
    ),
    scenario(
        "cluster-info names the server",
        run(
            "cluster-info",
            out="""
            Kubernetes <any> is running at https://127.0.0.1:<int>
            ...
        """,
        ),
    ),
]


_REQUEST = re.compile(r"(?:\] |verb=\")(GET|POST|PUT|PATCH|DELETE)(?: |\" url=\")https://[^/]+([^ ?\"]*)")


def requests(kubectl: Kubectl, line: str) -> list[str]:
    """The requests that a command sends, as it logs them itself."""
    answer = kubectl.run(f"{line} -v=6")
    assert answer.rc == 0, answer.err
    return [f"{verb} {path}" for verb, path in _REQUEST.findall(answer.err)]


@with_versions("core")
def test_a_warm_get_is_one_request(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl.bound(home=tmp_path)
    cold, warm = requests(kubectl, "get cm"), requests(kubectl, "get cm")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    assert warm == [f"GET {path}"]
    assert {"GET /api", "GET /apis"} < set(cold)
    if kubectl.minor >= 30:  # from here on these two say everything
        assert len(cold) == 3


def test_a_warm_apply_asks_for_no_discovery(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl.bound(home=tmp_path)
    requests(kubectl, "apply -f cm.yaml --dry-run=server")
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    sent = [request for request in requests(kubectl, "apply -f cm.yaml") if "/openapi/" not in request]
    assert sent == [f"GET {path}/settings", f"GET /api/v1/namespaces/{kubectl.namespace}", f"POST {path}"]
    sent = requests(kubectl, "apply --server-side --force-conflicts -f two.yaml")
    assert [request for request in sent if "/openapi/" not in request] == [f"PATCH {path}/one", f"PATCH {path}/two"]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


@pytest.mark.parametrize(
    ("version", "tool"), [pytest.param("1.20", DEBIAN_KUBECTL, id="oldest"), pytest.param("", "kubectl", id="newest")]
)
def test_the_promised_kubectls_are_at_hand(version: str, tool: str) -> None:
    """Other versions are used where a machine has them; without these two the tier would prove too little."""
    toolbox = Toolbox()
    found = toolbox.list_kubectls().get(version) if version else toolbox.find_program(tool)
    if found is None:
        pytest.skip(toolbox.why_missing(tool))
    assert found.exists()


@with_versions("core")
def test_version_says_client_and_server(kubectl: Kubectl) -> None:
    answer = kubectl.run("version -o json")
    assert answer.rc == 0, answer.err
    versions = json.loads(answer.out)
    assert int(versions["clientVersion"]["minor"].rstrip("+")) == kubectl.minor
    server = versions["serverVersion"]
    assert server["gitVersion"].startswith(f"v{server['major']}.{server['minor']}.")
