"""Checklist G: who may do what, and what kubectl says about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients import JSON, Raw, Target
from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario, with_versions

pytestmark = pytest.mark.wire

FORBIDDEN = (
    'Error from server (Forbidden): pods is forbidden: User "bob" cannot list resource "pods" in API group "" '
    'in the namespace "{ns}"'
)

SCENARIOS = [
    scenario(
        "auth can-i answers for the administrator",
        run("auth can-i create pods", out="yes"),
        run("auth can-i delete trainjobs.trainer.kubeflow.org --all-namespaces", out="yes"),
        run("auth can-i patch pods --subresource=status", out="yes"),
        run("auth can-i get /healthz", out="yes"),
        run(
            "auth can-i --list",
            out="""
            Resources <any> Non-Resource URLs <any> Resource Names <any> Verbs
            ...
            *.* [] [] [*]
            ...
        """,
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "auth can-i answers for somebody else",
        run("auth can-i create pods --as bob", rc=1, out={0: "no", 27: "no"}, err=None),
        run("create role reader --verb=get,list --resource=pods", out=None),
        run("create rolebinding reader --role=reader --user=bob", out=None),
        run("auth can-i list pods --as bob", out="yes"),
        run("auth can-i delete pods --as bob", rc=1, out="no", err=None),
        run("auth can-i list pods --as carol --as-group readers", rc=1, out="no", err=None),
        kube=True,
    ),
    scenario(
        "impersonated users get their own rights",
        run("get pods --as bob", rc=1, err=FORBIDDEN),
        run("get pods --as alice --as-group system:masters", err="No resources found in {ns} namespace."),
        run(
            "get trainjobs -A --as bob",
            rc=1,
            err='Error from server (Forbidden): trainjobs.trainer.kubeflow.org is forbidden: User "bob" cannot list '
            'resource "trainjobs" in API group "trainer.kubeflow.org" at the cluster scope',
        ),
        run(
            "create cm x --as bob",
            rc=1,
            err={
                0: 'Error from server (Forbidden): configmaps is forbidden: User "bob" cannot create resource '
                '"configmaps" in API group "" in the namespace "{ns}"',
                23: 'error: failed to create configmap: configmaps is forbidden: User "bob" cannot create resource '
                '"configmaps" in API group "" in the namespace "{ns}"',
            },
        ),
        run(
            "get cm settings --as bob",
            rc=1,
            err='Error from server (Forbidden): configmaps "settings" is forbidden: User "bob" cannot get resource '
            '"configmaps" in API group "" in the namespace "{ns}"',
        ),
        core=True,
        kube=True,
    ),
    scenario(
        "the built-in roles mean what they mean on a cluster",
        run("create rolebinding v --clusterrole=view --user=vera", out=None),
        run("create rolebinding e --clusterrole=edit --user=edda", out=None),
        run("create rolebinding a --clusterrole=admin --user=adam", out=None),
        run("get cm --as vera -o name -l app"),
        run("auth can-i create configmaps --as vera", rc=1, out="no", err=None),
        run("auth can-i get secrets --as vera", rc=1, out="no", err=None),
        run("auth can-i create configmaps --as edda", out="yes"),
        run("auth can-i get secrets --as edda", out="yes"),
        run("auth can-i create rolebindings --as edda", rc=1, out="no", err=None),
        run("auth can-i create rolebindings --as adam", out="yes"),
        run("auth can-i create configmaps --as edda -n default", rc=1, out="no", err=None),
        run("auth can-i delete namespaces --as adam", rc=1, out=None, err=None),
        kube=True,
    ),
    scenario(
        "auth whoami says who the server takes us for",
        run("auth whoami -o jsonpath={.status.userInfo.groups}", out="[<any>system:masters<any>]", since=28),
        run("auth whoami --as bob -o jsonpath={.status.userInfo.username}", out="bob", since=28),
        since=28,
    ),
    scenario(
        "nobody gives away rights that they do not have",
        run("create rolebinding a --clusterrole=admin --user=adam", out=None),
        run(
            "create role small --verb=get --resource=pods --as adam", out="role.rbac.authorization.k8s.io/small created"
        ),
        run(
            "create role big --verb=get --resource=nodes --as adam",
            rc=1,
            err="<any>is attempting to grant RBAC permissions not currently held<any>\n...",
        ),
        kube=True,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)


@pytest.fixture
def configured(target: Target, kubectl: Kubectl, tmp_path: Path) -> Callable[[JSON], Kubectl]:
    """The same kubectl with another credential and an empty cache."""

    def configure(user: JSON) -> Kubectl:
        return kubectl.bound(kubeconfig=target.write_kubeconfig(tmp_path / "config", user), home=tmp_path / "home")

    return configure


@with_versions("core")
def test_a_wrong_token_is_refused(configured: Callable[[JSON], Kubectl]) -> None:
    stranger = configured({"token": "wrong"})
    for line in ("get pods", "get --raw /api"):
        answer = stranger.run(line)
        assert answer.rc == 1, line
        assert "error: You must be logged in to the server" in answer.err, answer.err
    answer = stranger.run("create -f cm.yaml")
    assert answer.rc == 1
    # Depends on whether kubectl meets the refusal first in discovery or in OpenAPI.
    assert re.search("must be logged in to the server|asked for the client to provide credentials", answer.err)


@with_versions("core")
def test_a_client_certificate_names_user_and_groups(
    configured: Callable[[JSON], Kubectl], target: Target, tmp_path: Path
) -> None:
    certificate, key = target.issue("bob", ("system:masters",), tmp_path)
    owner = configured({"client-certificate": str(certificate), "client-key": str(key)})
    play(
        scenario(
            "",
            run("create -f cm.yaml -f runtime.yaml", out=None),
            run("get cm settings -o jsonpath={.data.color}", out="red"),
            run("apply -f cm-changed.yaml", out="configmap/settings configured", err=None),
            run("auth whoami -o jsonpath={.status.userInfo.username}", out="bob", since=28),
            run("delete cm settings", out='configmap "settings" deleted<any>'),
        ),
        owner,
    )


@with_versions("full")
def test_a_client_certificate_without_rights_is_forbidden(
    configured: Callable[[JSON], Kubectl], target: Target, tmp_path: Path
) -> None:
    certificate, key = target.issue("bob", (), tmp_path)
    bob = configured({"client-certificate": str(certificate), "client-key": str(key)})
    play(scenario("", run("get pods", rc=1, err=FORBIDDEN)), bob)


@with_versions("full")
def test_a_service_account_token_acts_as_the_account(
    configured: Callable[[JSON], Kubectl], kubectl: Kubectl, raw: Raw
) -> None:
    accounts = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts"
    raw.create(accounts, {"metadata": {"name": "robot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = raw.create(f"{accounts}/robot/token", request)["status"]["token"]
    kubectl.must(f"create rolebinding robot --clusterrole=view --serviceaccount={kubectl.namespace}:robot")
    robot = configured({"token": token})
    play(
        scenario(
            "",
            run("get cm -l app -o name"),
            run(
                "delete cm x",
                rc=1,
                err='Error from server (Forbidden): configmaps "x" is forbidden: User '
                '"system:serviceaccount:{ns}:robot" cannot delete resource "configmaps" in API group "" '
                'in the namespace "{ns}"',
            ),
        ),
        robot,
    )


def test_create_token_prints_a_token_of_the_account(kubectl: Kubectl, target: Target) -> None:
    kubectl.must("create serviceaccount robot")
    token = kubectl.must("create token robot --duration=10m").strip()
    robot = target.raw(token)
    review = robot.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    robot.close()
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"


def test_anonymous_gets_health_and_version_only(target: Target) -> None:
    nobody = target.raw("")
    assert [nobody.call("GET", path)[0] for path in ("/healthz", "/livez", "/readyz", "/version")] == [200] * 4
    refused = [nobody.call("GET", path) for path in ("/api/v1/namespaces", "/apis", "/openapi/v2", "/metrics")]
    nobody.close()
    assert {code for code, _ in refused} <= {401, 403}
    assert all(answer["kind"] == "Status" for _, answer in refused)
