"""Paths, queries, methods and headers nobody sends by accident."""

from __future__ import annotations

import base64
import json

import pytest

from tests.bad_input.raw import Hostile

pytestmark = pytest.mark.bad_input

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/nothing", "/api/v2/pods", "/apis/nothing/v1/things", "/api/v1/namespaces/default",
        "/nothing", "/api/v1/namespaces//pods/x", "//api/v1/pods/x", "/api/v1/namespaces/default/pods/../secrets/x",
        "/api/v1/namespaces/default/pods/%2e%2e/x", "/api/v1/namespaces/default/pods/a%00b",
        "/api/v1/nodes/%F0%9F%92%A3",
        "/api/v1/namespaces/default/pods/x/nothing", "/api/v1/namespaces/default/pods/x/log/extra/more",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/nodes/x", "/openapi/v3/apis/nothing/v1", "/openapi/v4", "/livez/nothing",
        "/api/v1/namespaces/a%2Fb/pods/x", f"/api/v1/namespaces/default/pods/{'a' * 3000}",
    ],
)  # fmt: skip
def test_paths_that_lead_nowhere_are_404(hostile: Hostile, path: str) -> None:
    if path == "/api/v1/namespaces/default":
        path += "/"  # a trailing slash behind a name is the name
        assert hostile.request("GET", path).status == 200
        return
    hostile.request("GET", path).check_refused(404)


@pytest.mark.parametrize("path", ["/api/v1/pods/%ff%fe", "*", "http://evil/api/v1/pods", "/api/v1/pods?limit=%ff"])
def test_targets_that_are_no_paths_are_400(hostile: Hostile, path: str) -> None:
    hostile.request("GET", path).check_refused(400)


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=a%3D%3D%3Db", "labelSelector=a+in+(", "labelSelector=%21%21a", "labelSelector=-a-%3Db",
        "labelSelector=" + "a" * 8000, "fieldSelector=spec.nothing%3Dx", "fieldSelector=metadata.name",
        "limit=abc", "limit=99999999999999999999999", "limit=%D9%A1", "resourceVersion=abc", "resourceVersion=-1",
        "resourceVersionMatch=Exact", "resourceVersion=1&resourceVersionMatch=Sideways",
        "continue=nonsense", "continue=%7B%7D", "watch=1&resourceVersion=abc", "watch=1&timeoutSeconds=soon",
        "watch=1&sendInitialEvents=true", "sendInitialEvents=true", "watch=1&labelSelector=a+in+(",
        "continue=" + base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":"x","start":5}').decode(),
        "&".join(f"a{number}=" for number in range(2001)),
    ],
)  # fmt: skip
def test_broken_queries_are_refused(hostile: Hostile, query: str) -> None:
    hostile.request("GET", f"{PODS}?{query}").check_refused(400, 410, 422)


@pytest.mark.parametrize("revision", ["1", "18446744073709551615", "999999999999"])
def test_watches_from_revisions_that_are_gone_or_not_yet_there_are_refused(hostile: Hostile, revision: str) -> None:
    reply = hostile.request("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={revision}")
    assert reply.status in (200, 400, 410, 504), reply.body


@pytest.mark.parametrize("revision", [-1, 10**12, "five", None])
def test_tampered_continue_tokens_are_refused(hostile: Hostile, revision: object) -> None:
    for number in range(3):
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"page-{number}"}}
        hostile.post(MAPS, obj)
    token = hostile.request("GET", f"{MAPS}?limit=1").json()["metadata"]["continue"]
    raw = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw["rv"] = revision
    tampered = base64.urlsafe_b64encode(json.dumps(raw).encode()).decode().rstrip("=")
    hostile.request("GET", f"{MAPS}?limit=1&continue={tampered}").check_refused(400, 410)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", PODS), ("POST", f"{PODS}/x"), ("PATCH", PODS), ("POST", "/version"), ("DELETE", "/healthz"),
        ("POST", "/api/v1/pods"), ("OPTIONS", PODS), ("TRACE", "/"), ("PROPFIND", PODS), ("DELETE", "/api/v1/pods"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)  # fmt: skip
def test_methods_that_do_not_fit_are_405(hostile: Hostile, method: str, path: str) -> None:
    hostile.request(method, path, b"{}" if method in ("PUT", "POST", "PATCH") else None).check_refused(404, 405)


@pytest.mark.parametrize(
    "accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Nonsense;v=v1;g=x"]
)
def test_forms_that_cannot_be_served_are_406(hostile: Hostile, accept: str) -> None:
    hostile.request("GET", PODS, None, "", f"Accept: {accept}").check_refused(406)


@pytest.mark.parametrize("accept", [",,,;;;", "a/b;q=zzz", "*/*;q=0", ";" * 5000])
def test_broken_accept_headers_are_not_a_server_error(hostile: Hostile, accept: str) -> None:
    assert hostile.request("GET", PODS, None, "", f"Accept: {accept}").status < 500


@pytest.mark.parametrize(
    "token", ["", "wrong", "a.b.c", "x" * 20_000, "Bearer Bearer", "\x01\x02", "é", "null", "e30.e30.e30"]
)
def test_wrong_tokens_are_401(hostile: Hostile, token: str) -> None:
    hostile.send(hostile.head("GET", "/api/v1/pods", token=token)).check_refused(400, 401)


def test_without_credentials_only_health_and_version_answer(hostile: Hostile) -> None:
    for path, want in (
        ("/livez", 200),
        ("/version", 200),
        ("/api", 401),
        (PODS, 401),
        ("/metrics", 401),
        ("/openapi/v2", 401),
    ):
        reply = hostile.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert reply.status == want, path


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(("Impersonate-User: bob",), id="a user without rights"),
        pytest.param(("Impersonate-User: bob", "Impersonate-Group: dev", "Impersonate-Extra-%zz: x"), id="odd extras"),
    ],
)
def test_impersonation_gives_the_rights_of_the_other(hostile: Hostile, headers: tuple[str, ...]) -> None:
    answer = hostile.request("GET", "/api/v1/namespaces/default/secrets", None, "", *headers).check_refused(403)
    assert answer["message"] == (
        'secrets is forbidden: User "bob" cannot list resource "secrets" in API group "" in the namespace "default"'
    )


@pytest.mark.parametrize("header", ["Impersonate-Group: system:masters", "Impersonate-Uid: 5"])
def test_impersonation_without_a_user_is_refused(hostile: Hostile, header: str) -> None:
    hostile.request("GET", PODS, None, "", header).check_refused(400)


@pytest.mark.parametrize("name", ["exec", "attach", "portforward"])
def test_streams_to_no_pod_are_refused_with_a_status(hostile: Hostile, name: str) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
    hostile.request("POST", f"{PODS}/x/{name}?command=id", b"", "", *upgrade).check_refused(404)
    websocket = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13")
    hostile.request("GET", f"{PODS}/x/{name}?command=id", None, "", *websocket).check_refused(404)
