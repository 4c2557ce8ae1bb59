"""Paths to routes, as upstream's RequestInfo."""

from __future__ import annotations

import pytest

from trainmaster.apiserver.http.messages import Query
from trainmaster.apiserver.http.options import find_selected_name
from trainmaster.apiserver.http.routes import Router, build_route

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("method", "path", "want"),
    [
        pytest.param("GET", "/api/v1/namespaces/a/pods/p", ("get", "", "v1", "a", "pods", "p", ""), id="get"),
        pytest.param("GET", "/api/v1/namespaces/a/pods", ("list", "", "v1", "a", "pods", "", ""), id="list"),
        pytest.param("GET", "/api/v1/pods", ("list", "", "v1", "", "pods", "", ""), id="list in all namespaces"),
        pytest.param(
            "POST", "/apis/batch/v1/namespaces/a/jobs", ("create", "batch", "v1", "a", "jobs", "", ""), id="create"
        ),
        pytest.param(
            "PUT",
            "/apis/batch/v1/namespaces/a/jobs/j/status",
            ("update", "batch", "v1", "a", "jobs", "j", "status"),
            id="status",
        ),
        pytest.param("PATCH", "/api/v1/nodes/n", ("patch", "", "v1", "", "nodes", "n", ""), id="a cluster-scoped kind"),
        pytest.param(
            "DELETE", "/api/v1/namespaces/a/pods", ("deletecollection", "", "v1", "a", "pods", "", ""), id="delete all"
        ),
        pytest.param("DELETE", "/api/v1/namespaces/a/pods/p", ("delete", "", "v1", "a", "pods", "p", ""), id="delete"),
        pytest.param(
            "GET",
            "/api/v1/namespaces/a",
            ("get", "", "v1", "a", "namespaces", "a", ""),
            id="a namespace is inside itself",
        ),
        pytest.param(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            ("update", "", "v1", "a", "namespaces", "a", "finalize"),
            id="finalize a namespace",
        ),
        pytest.param("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", ""), id="list namespaces"),
        pytest.param("GET", "/api/v1/namespaces/a/pods/p/log", ("get", "", "v1", "a", "pods", "p", "log"), id="log"),
        pytest.param(
            "GET", "/api/v1/watch/namespaces/a/pods", ("watch", "", "v1", "a", "pods", "", ""), id="the old watch path"
        ),
    ],
)
def test_resource_paths(method: str, path: str, want: tuple[str, ...]) -> None:
    route = build_route(method, path)
    got = (route.verb, route.group, route.version, route.namespace, route.plural, route.name, route.subresource)
    assert route.is_resource and got == want


@pytest.mark.parametrize("path", ["/", "/version", "/api", "/api/v1", "/apis/batch", "/apis/batch/v1", "/api//pods/x",
                                  "/api/v1//pods", "/livez/ping", "/openapi/v3/api/v1"])  # fmt: skip
def test_other_paths_are_not_resources(path: str) -> None:
    route = build_route("GET", path)
    assert not route.is_resource and route.verb == "get" and route.path == path


def test_an_encoded_slash_is_a_slash() -> None:
    route = Router().route("GET", "/api/v1/namespaces/a%2Fsecrets%2Fx")
    assert (route.namespace, route.plural, route.name) == ("a", "secrets", "x")


def test_the_memory_of_routes_is_bounded() -> None:
    router = Router(size=10)
    for number in range(100):
        assert router.route("GET", f"/api/v1/namespaces/a/pods/p{number}").name == f"p{number}"
    assert len(router._routes) <= 10


@pytest.mark.parametrize(
    ("selector", "want"),
    [("metadata.name=x", "x"), ("status.phase=a,metadata.name==y", "y"), ("metadata.name!=x", ""), ("", "")],
)
def test_a_name_in_the_field_selector_is_found(selector: str, want: str) -> None:
    assert find_selected_name(selector) == want


@pytest.mark.parametrize("text", ["true", "True", "1", ""])
def test_query_booleans_are_read_in_every_spelling(text: str) -> None:
    assert Query(f"watch={text}").flag("watch")
    assert not Query("watch=false").flag("watch") and not Query("").flag("watch")
