"""Tenants of a real API server through REST, with exactly the roles of `deploy/rest/`: who gets what answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.house.tree import ROOT
from tests.kube.cluster import KubeCluster
from tests.seam.rest_site import DEPLOY, RestSite, eventually, read_claims, running_site
from tests.support.rest_routes import ROUTES
from tests.unit.rest.oidc_provider import AUDIENCE, ISSUER, describe, make_rsa, sign

pytestmark = pytest.mark.kube

CODE = "print(1)\n"
ANN, BOB = "rest-ann", "rest-bob"
KEY = make_rsa()


def order(user: str, namespace: str) -> dict[str, Any]:
    config = {"num_nodes": 1, "cpu_per_node": "100m", "memory_per_node": "64Mi"}
    return {"user_id": user, "namespace": namespace, "framework": "pytorch", "training_code": CODE, "config": config}


@pytest.fixture(scope="module")
def site(trainer_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestSite]:
    trainer_cluster.apply((ROOT / "trainmaster/manifests/pytorch/runtime.yaml").read_text())
    folder = tmp_path_factory.mktemp("rest")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [describe(KEY, "k")]}))
    issuer = {"TRAINMASTER_REST_OIDC_ISSUER": ISSUER, "TRAINMASTER_REST_OIDC_AUDIENCE": AUDIENCE}
    environ = {**issuer, "TRAINMASTER_REST_OIDC_JWKS": str(keys), "TRAINMASTER_REST_SIGN_UP": "true"}
    # One test tries again and again until the cluster has seen a binding.
    environ["TRAINMASTER_REST_SIGN_UPS_PER_HOUR_PER_ADDRESS"] = "10000"
    with running_site(trainer_cluster, folder, environ) as site:
        site.add(ANN, "--jobs", "3")
        # Nobody has used it yet, so no cache of the API server knows it.
        site.revoked = site.add(BOB)
        site.tokens[BOB] = site.tenant("rotate", BOB)["token"]
        yield site
        for name in site.tokens:
            site.tenant("delete", name, "--yes")


def create(site: RestSite, tenant: str) -> str:
    code, made = site.call("POST", "/api/trainjob/create", order(tenant, tenant), token=site.tokens[tenant])
    assert code == 200, made
    name: str = made["trainjob_name"]
    return name


def test_the_server_takes_every_manifest(trainer_cluster: KubeCluster) -> None:
    trainer_cluster.apply((DEPLOY / "base.yaml").read_text())
    for path in sorted(DEPLOY.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            trainer_cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    rendered = trainer_cluster.kubectl("kustomize", str(DEPLOY))
    kinds = [item["kind"] for item in yaml.safe_load_all(rendered)]
    assert {"Deployment", "Service", "ServiceAccount", "ConfigMap", "ClusterRole"} <= set(kinds)


def test_the_rest_api_itself_may_do_nothing_beyond_the_guides_rules(site: RestSite) -> None:
    account = "--as=system:serviceaccount:trainmaster-system:trainmaster-rest"
    rules = site.cluster.kubectl("auth", "can-i", "--list", account, "-n", ANN)
    assert "tokenreviews.authentication.k8s.io" in rules
    for forbidden in ("secrets", "rolebindings", "namespaces", "serviceaccounts", "impersonate", "pods/exec"):
        assert forbidden not in rules, rules


# Route, body, and the answers to: its own tenant, another tenant, an administrator.
MATRIX = [
    ("GET", "/api/trainjob/{job}/status?namespace={ns}", None, 200, 403, 200),
    ("GET", "/api/trainjob/{job}/logs?namespace={ns}", None, {200, 409, 502}, 403, {200, 409, 502}),
    ("POST", "/api/trainjob/create", "order", 200, 403, 200),
    ("DELETE", "/api/trainjob/{made}?namespace={ns}", None, 200, 403, 200),
    ("GET", "/api/v1/me", None, 200, 200, 200),
    ("GET", "/api/v1/tenants", None, 403, 403, 200),
    ("GET", "/api/v1/tenants/{ns}", None, 403, 403, 200),
    ("POST", "/api/v1/tenants", {"name": "rest-eve"}, 403, 403, 201),
    ("POST", "/api/v1/tenants/{ns}/rotate", {}, 403, 403, None),
    ("POST", "/api/v1/tenants/{ns}/disable", None, 403, 403, None),
    ("DELETE", "/api/v1/tenants/rest-eve", None, 403, 403, 200),
    ("PUT", "/api/v1/tenants/rest-fay", {}, 403, 403, 200),
    ("POST", "/api/v1/tenants/rest-fay/login-link", {}, 403, 403, 201),
    ("DELETE", "/api/v1/tenants/rest-fay", None, 403, 403, 200),
    ("GET", "/api/v1/settings", None, 403, 403, 200),
    ("GET", "/api/v1/doctor", None, 403, 403, 200),
    ("GET", "/api/v1/jobs/{job}/doctor?namespace={ns}", None, 200, 403, 200),
    ("GET", "/api/v1/runtimes/pytorch-simple?namespace={ns}", None, 200, 403, 200),
]


def test_the_isolation_matrix_of_the_guides_routes_and_tenants(site: RestSite) -> None:
    """Bob's things; a code of None is left out because it would end the token under test."""
    job = create(site, BOB)
    expired = site.expire(site.tokens[BOB])
    elsewhere = site.cluster.kubectl("create", "token", "tenant", "--audience=elsewhere", "-n", BOB).strip()
    nobody = {
        "none": "",
        "revoked": site.revoked,
        "forged": site.tokens[BOB][:-4] + "AAAA",
        "expired": expired,
        "elsewhere": elsewhere,
    }
    for method, path, body, own, other, administrator in MATRIX:
        callers = {"own": (site.tokens[BOB], own), "other": (site.tokens[ANN], other)}
        callers["administrator"] = (site.cluster.token, administrator)
        callers |= {who: (token, 401) for who, token in nobody.items()}
        for who, (token, expected) in callers.items():
            if expected is None:
                continue
            sent = order(BOB, BOB) if body == "order" else body
            made = create(site, BOB) if "{made}" in path and expected == 200 else job
            code, answer = site.call(method, path.format(job=job, ns=BOB, made=made), sent, token=token)
            allowed = expected if isinstance(expected, set) else {expected}
            assert code in allowed, f"{method} {path} by {who}: {code} {answer}"
            if code >= 400 and code != 502:
                assert "Traceback" not in str(answer) and BOB not in str(answer.get("errors", "")), answer
    assert site.call("GET", f"/api/trainjob/{job}/status?namespace={BOB}", token=site.tokens[BOB])[0] == 200


FOR_ALL = {
    "/api/v1/me": 200,
    "/api/v1/server": 200,
    "/api/v1/namespaces": 200,
    # Only a login of the dashboard can be ended.
    "/api/v1/logout": 400,
}
"""About whoever asks: answers for everybody with a token."""
FOR_ADMINISTRATORS = ("/api/v1/settings", "/api/v1/doctor")
"""Besides nodes and tenants."""
STREAM = "/api/v1/stream"
BODIES = {
    "/api/v1/jobs": {"framework": "pytorch", "code": CODE, "namespace": BOB},
    "/api/trainjob/create": order(ANN, BOB),
}
"""Good ones, for what a bad one would end too early."""


def fill(path: str, job: str) -> str:
    name = BOB if "/tenants/" in path else "pytorch-simple" if "/runtimes/" in path else job
    more = "&topic=jobs" if path == STREAM else "&path=train.py" if path.endswith("/content") else ""
    return path.format(name=name, uid="00000000-0000-0000-0000-000000000000") + f"?namespace={BOB}{more}"


def test_every_route_knows_whose_things_it_is_asked_for(site: RestSite) -> None:
    job = create(site, BOB)
    before = site.cluster.kubectl("get", "trainjobs,configmaps,secrets", "-n", BOB, "-o", "name")
    for method, path in ROUTES:
        for who, token in {"nobody": "", "revoked": site.revoked}.items():
            code, answer = site.call(method, fill(path, job), {}, token=token)
            assert code == 401, f"{method} {path} by {who}: {code} {answer}"
        body = BODIES.get(path)
        if path == STREAM:
            continue  # refuses within the stream, topic by topic
        code, answer = site.call(method, fill(path, job), body or {"name": BOB}, token=site.tokens[ANN])
        allowed = (
            {FOR_ALL[path]} if path in FOR_ALL else {403, 404} if body or method == "GET" else {403, 404, 415, 422}
        )
        assert code in allowed, f"{method} {path} by another tenant: {code} {answer}"
    assert site.cluster.kubectl("get", "trainjobs,configmaps,secrets", "-n", BOB, "-o", "name") == before
    code, told = site.call("GET", fill(STREAM, job), token=site.tokens[ANN])
    assert code == 200 and '"status":403' in told and job not in told, told
    for who, token in {"its own": site.tokens[BOB], "a guest": invite(site, BOB)}.items():
        for method, path in ROUTES:
            # Streams go on, and the fake nodes have no logs.
            if method == "GET" and "tenants" not in path and not path.endswith("/stream") and "/logs" not in path:
                code, answer = site.call(method, fill(path, job), token=token)
                may_be_missing = "history" in path or path.endswith(("/content", "/evidence"))
                others = "/nodes" in path or path in FOR_ADMINISTRATORS
                allowed = {200, 404} if may_be_missing else {403} if others else {200}
                assert code in allowed, f"{method} {path} by {who}: {answer}"
    code, made = site.call("POST", "/api/v1/jobs", BODIES["/api/v1/jobs"], token=site.tokens[BOB])
    assert code == 201, made


def invite(site: RestSite, namespace: str) -> str:
    """The token of somebody who is no tenant, with the roles that deploy/rest/ has for them."""
    kubectl = site.cluster.kubectl
    kubectl("create", "serviceaccount", "guest", "-n", namespace)
    for role in ("trainmaster-rest", "trainmaster-rest-v1"):
        subject = f"--serviceaccount={namespace}:guest"
        kubectl("create", "rolebinding", f"guest-{role}", f"--clusterrole={role}", subject, "-n", namespace)
    site.await_right(f"{namespace}:guest", namespace)
    site.await_right(f"{namespace}:guest", namespace, "watch", "pods")
    return kubectl("create", "token", "guest", "-n", namespace).strip()


def test_the_role_that_manages_tenants_is_enough_for_that_and_not_for_more(site: RestSite) -> None:
    """As a person with this role alone, through REST."""
    name, system = "rest-made", "trainmaster-system"
    kubectl = site.cluster.kubectl
    kubectl("create", "serviceaccount", "manager", "-n", system)
    subject = f"--serviceaccount={system}:manager"
    kubectl("create", "clusterrolebinding", "rest-manager", "--clusterrole=trainmaster-tenant-manager", subject)
    site.await_right(f"{system}:manager", "", "create", "namespaces")
    token = kubectl("create", "token", "manager", "-n", system).strip()
    try:
        made = site.call("POST", "/api/v1/tenants", {"name": name, "allowance": {"cpu": "4"}}, token=token)
        assert made[0] == 201, made
        site.await_right(f"{name}:tenant", name)
        assert site.call("GET", "/api/v1/me", token=made[1]["token"])[1]["tenant"] == name
        for method, path in (("POST", "rotate"), ("POST", "disable"), ("POST", "enable"), ("GET", "")):
            where = f"/api/v1/tenants/{name}/{path}".rstrip("/")
            code, answer = site.call(method, where, {} if method == "POST" else None, token=token)
            assert code == 200, f"{where}: {answer}"
        rbac = "rbac.authorization.k8s.io"
        role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": "mine"}, "roleRef": role}
        subjects = [{"kind": "ServiceAccount", "name": "manager", "namespace": system}]
        path = f"/apis/{rbac}/v1/namespaces/{name}/rolebindings"
        assert site.ask_kube("POST", path, {**binding, "subjects": subjects}, token=token)[0] == 403
        assert site.call("DELETE", f"/api/v1/tenants/{name}", token=token)[0] == 200
    finally:
        kubectl("delete", "clusterrolebinding", "rest-manager")
        kubectl("delete", "serviceaccount", "manager", "-n", system)


def test_sign_up_needs_the_setting_and_the_manifest(site: RestSite) -> None:
    body = {"name": "rest-new"}
    code, refused = site.call("POST", "/api/v1/signup", body)
    assert code == 403, refused
    manifest = (DEPLOY / "sign-up.yaml").read_text()
    site.cluster.apply(manifest)
    try:
        eventually(lambda: site.call("POST", "/api/v1/signup", body)[0] in (201, 409), "nobody can sign up", 30)
        assert site.tenant("list")
    finally:
        site.cluster.kubectl("delete", "-f", "-", stdin=manifest)
        site.tenant("delete", "rest-new", "--yes")


def test_nobody_gets_into_anothers_namespace_by_a_trick(site: RestSite) -> None:
    token = site.tokens[ANN]
    job = create(site, BOB)
    tricks: list[tuple[str, str, Any, set[int]]] = [
        ("POST", "/api/trainjob/create", order(BOB, ANN), {403}),
        ("POST", "/api/trainjob/create", order(ANN, BOB), {403}),
        ("POST", "/api/trainjob/create", order(ANN, f"{ANN}/../{BOB}"), {403, 422}),
        ("POST", "/api/trainjob/create", {**order(ANN, ANN), "metadata": {"namespace": BOB}}, {200, 422}),
        ("GET", f"/api/trainjob/{job}/status?namespace={ANN}&namespace={BOB}", None, {403, 404, 422}),
        ("GET", f"/api/trainjob/..%2F..%2F{BOB}%2Ftrainjobs%2F{job}/status?namespace={ANN}", None, {404, 422}),
        ("GET", f"/api/trainjob/{job}/status?namespace={BOB}%00", None, {400, 403, 404, 422}),
        ("GET", f"/api/trainjob/{job}/status?namespace=", None, {403, 404, 422}),
        ("DELETE", f"/api/trainjob/{job}?namespace={ANN}&delete_user_configmap=true", None, {200, 404}),
    ]
    before = site.cluster.kubectl("get", "trainjobs,configmaps", "-n", BOB, "-o", "name")
    for method, path, body, expected in tricks:
        code, answer = site.call(method, path, body, token=token)
        assert code in expected, f"{method} {path}: {code} {answer}"
    assert site.cluster.kubectl("get", "trainjobs,configmaps", "-n", BOB, "-o", "name") == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate_User": "admin", "Impersonate_Group": "system:masters"},
        {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"},
        {"X_Forwarded_User": "admin", "X_Original_URL": "/healthz", "X_HTTP_Method_Override": "GET"},
    ],
)
def test_no_header_makes_a_caller_somebody_else(site: RestSite, headers: dict[str, str]) -> None:
    token = site.tokens[ANN]
    assert site.call("GET", "/api/v1/me", token=token, **headers)[1]["user"] == f"system:serviceaccount:{ANN}:tenant"
    assert site.call("GET", "/api/v1/tenants", token=token, **headers)[0] == 403
    assert site.call("GET", "/api/v1/me", **headers)[0] == 401


def test_calls_to_kubernetes_are_the_callers_own(site: RestSite) -> None:
    """What the field owners and the Kubernetes side of the token say."""
    job = create(site, ANN)
    kinds = "/apis/trainer.kubeflow.org/v1alpha1"
    token = site.tokens[ANN]
    code, found = site.ask_kube("GET", f"{kinds}/namespaces/{ANN}/trainjobs/{job}", token=token)
    assert (code, found["metadata"]["name"]) == (200, job)
    for path in (
        f"{kinds}/namespaces/{BOB}/trainjobs",
        f"{kinds}/trainjobs",
        f"/api/v1/namespaces/{BOB}/configmaps",
        f"/api/v1/namespaces/{BOB}/pods",
        f"/api/v1/namespaces/{ANN}/serviceaccounts/tenant/token",
        "/api/v1/namespaces",
        "/api/v1/nodes",
    ):
        method = "POST" if path.endswith("/token") else "GET"
        code, answer = site.ask_kube(method, path, {} if method == "POST" else None, token=token)
        assert code == 403, f"{path}: {code} {answer}"
    # A right that is taken from the caller is taken from REST, although its own account has it still.
    site.cluster.kubectl("delete", "rolebinding", "tenant", "-n", ANN)
    try:
        path = f"/api/trainjob/{job}/status?namespace={ANN}"
        eventually(lambda: site.call("GET", path, token=token)[0] == 403, "the right is still there")
    finally:
        site.cluster.kubectl(
            "create",
            "rolebinding",
            "tenant",
            "--clusterrole=trainmaster-tenant",
            f"--serviceaccount={ANN}:tenant",
            "-n",
            ANN,
        )
        site.await_right(f"{ANN}:tenant", ANN)


def test_a_tenant_has_no_more_jobs_than_its_quota_says(site: RestSite) -> None:
    name = "rest-few"
    site.add(name, "--jobs", "1")
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{name}/trainjobs"
    create(site, name)
    code, refused = site.call("POST", "/api/trainjob/create", order(name, name), token=site.tokens[name])
    assert (code, "exceeded quota" in refused["detail"]) == (403, True), refused
    assert len(site.ask_kube("GET", path, token=site.tokens[name])[1]["items"]) == 1
    code, refused = site.call(
        "POST", "/api/trainjob/create", {**order(name, name), "training_code": "#" * 3_000_000}, token=site.tokens[name]
    )
    assert code == 413, refused


def test_a_tenants_pods_are_kept_from_the_node(site: RestSite) -> None:
    """Containers are the walls of a cluster, and the cluster keeps holes out of them."""
    spec = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    path = f"/api/v1/namespaces/{ANN}/pods"
    code, refused = site.ask_kube("POST", path, pod, token=site.tokens[ANN])
    assert (code, "PodSecurity" in refused["message"]) == (403, True), refused


def test_deleting_the_secret_rotating_or_disabling_ends_a_token_everywhere(site: RestSite) -> None:
    """The API server remembers for 10 seconds that a token was good, so all are awaited at once."""
    names = ("rest-gone", "rest-turned", "rest-out")
    tokens = [site.add(name) for name in names]

    def ask(token: str, name: str) -> set[int]:
        rest, kube = (
            site.call("GET", "/api/v1/me", token=token),
            site.ask_kube("GET", f"/api/v1/namespaces/{name}/pods", token=token),
        )
        return {rest[0], kube[0]}

    assert [ask(*pair) for pair in zip(tokens, names, strict=True)] == [{200}] * 3
    site.cluster.kubectl("delete", "secret", read_claims(tokens[0])["kubernetes.io"]["secret"]["name"], "-n", names[0])
    renewed = site.tenant("rotate", names[1])["token"]
    site.tenant("disable", names[2])
    # The role is gone before any cache has ended.
    eventually(lambda: ask(tokens[2], names[2]) <= {401, 403}, "a disabled tenant may still read")
    for token, name in zip(tokens, names, strict=True):
        eventually(lambda token=token, name=name: ask(token, name) == {401}, f"the token of {name} still works")
    assert ask(renewed, names[1]) == {200}


def test_users_of_an_identity_provider_are_impersonated_with_the_role_for_it(site: RestSite) -> None:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "eva", "iat": now, "exp": now + 3600, "groups": ["ml"]}
    token = sign(KEY, {"alg": "RS256", "kid": "k"}, claims)
    jobs = f"/api/trainjob/none/status?namespace={ANN}"
    code, refused = site.call("GET", jobs, token=token)
    assert (code, "cannot impersonate" in refused["detail"]) == (403, True), refused
    oidc = (DEPLOY / "oidc.yaml").read_text()
    site.cluster.apply(oidc)
    try:
        eventually(lambda: "impersonate" not in str(site.call("GET", jobs, token=token)[1]), "may not impersonate yet")
        code, refused = site.call("GET", jobs, token=token)
        assert (code, '"oidc:eva" cannot get' in refused["detail"]) == (403, True), refused
        site.cluster.kubectl(
            "create", "rolebinding", "ml", "--clusterrole=trainmaster-rest", "--group=oidc:ml", "-n", ANN
        )
        eventually(lambda: site.call("GET", jobs, token=token)[0] == 404, "the group's role does not count")
        assert site.call("GET", f"/api/trainjob/none/status?namespace={BOB}", token=token)[0] == 403
        assert site.ask_kube("GET", "/api/v1/namespaces", token=token)[0] == 401
    finally:
        site.cluster.kubectl("delete", "-f", "-", stdin=oidc)
