"""Requests generated from our own OpenAPI documents (schemathesis) and beside them (Hypothesis): never a 5xx.

Every group has a share of the time budget; within it, operations take turns. Both valid and broken requests are made,
on a server of their own, because they delete whatever they can. Answers must be JSON: an object, a list or a Status
whose code is the answer's.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.support.server import ServerProcess, start_server

pytestmark = [pytest.mark.bad_input, pytest.mark.timeout(300)]

BUDGET_SECONDS = 45.0
DOCUMENTS = (
    "api/v1",
    "apis/batch/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/authentication.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/storage.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/jobset.x-k8s.io/v1alpha2",
    "apis/trainer.kubeflow.org/v1alpha1",
)
NO_PODS = {"TRAINMASTER_PROCESS_WORKLOADS": "false"}
"""Generated Pods must not become processes."""
_QUIET = settings(
    max_examples=4,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Caller:
    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(server.ca)
        self.session.headers["Authorization"] = f"Bearer {(server.home / 'pki' / 'owner.token').read_text()}"
        self.statuses: dict[int, int] = {}

    def document(self, path: str) -> dict[str, Any]:
        reply = self.session.get(f"{self.server.url}/openapi/v3/{path}", timeout=30)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def check(self, reply: requests.Response, described: str) -> None:
        self.statuses[reply.status_code] = self.statuses.get(reply.status_code, 0) + 1
        assert reply.status_code < 500, (described, reply.status_code, reply.text[:2000])
        if reply.headers.get("content-type", "").startswith("application/json"):
            answer = reply.json()
            if reply.status_code >= 400:
                assert answer["kind"] == "Status" and answer["code"] == reply.status_code, (described, answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("generated") / "home", environ=NO_PODS) as server:
        yield server
        assert "Traceback" not in server.log, server.log[-6000:]


@pytest.fixture
def caller(server: ServerProcess) -> Iterator[Caller]:
    caller = Caller(server)
    with caller.session:
        yield caller
        assert caller.statuses, "nothing was sent"


def send(caller: Caller, case: Any) -> None:
    case.query = {key: value for key, value in (case.query or {}).items() if key not in ("watch", "follow")}
    kwargs = case.as_transport_kwargs(base_url=caller.server.url)
    kwargs["headers"] = {
        key: value for key, value in (kwargs.get("headers") or {}).items() if key.lower() != "authorization"
    }
    kwargs.pop("cookies", None)
    try:
        reply = caller.session.request(**kwargs, timeout=30)
    except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeEncodeError):
        return  # not even the client library would send it
    caller.check(reply, f"{kwargs.get('method')} {kwargs.get('url')}")


@pytest.mark.parametrize("path", DOCUMENTS)
def test_requests_from_the_openapi_document_are_never_a_server_error(caller: Caller, path: str) -> None:
    schema = schemathesis.openapi.from_dict(caller.document(path))
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]  # an Err raises
    assert operations
    random.Random(path).shuffle(operations)
    deadline = time.monotonic() + BUDGET_SECONDS / len(DOCUMENTS)
    rounds = 0
    while time.monotonic() < deadline:
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @seed(rounds)
                @_QUIET
                @given(case=operation.as_strategy(generation_mode=mode))
                def run(case: Any) -> None:
                    send(caller, case)

                # Some operations have nothing that could be broken.
                with suppress(Unsatisfiable):
                    run()
            if time.monotonic() >= deadline:
                break
        rounds += 1


_names = st.text(max_size=40)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": _json | _names,
        "generateName": _json | _names,
        "labels": _json,
        "annotations": _json,
        "finalizers": _json,
        "ownerReferences": _json,
        "managedFields": _json,
        "uid": _json,
        "resourceVersion": _json,
        "creationTimestamp": _json,
        "deletionTimestamp": _json,
    },
)
_PATHS = (
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
)
_MEDIA = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


@settings(_QUIET, max_examples=300)
@given(path=st.sampled_from(_PATHS), metadata=_metadata, spec=_json, rest=st.dictionaries(_names, _json, max_size=3))
def test_objects_of_any_shape_are_never_a_server_error(
    caller: Caller, path: str, metadata: Any, spec: Any, rest: dict[str, Any]
) -> None:
    body = json.dumps({"metadata": metadata, "spec": spec, **rest})
    reply = caller.session.post(caller.server.url + path, data=body.encode("utf-8", "surrogatepass"), timeout=30)
    caller.check(reply, f"POST {path} {body}")


@settings(_QUIET, max_examples=300)
@given(media=st.sampled_from(_MEDIA), patch=_json | st.lists(st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": st.text(max_size=20)},
    optional={"value": _json, "from": st.text(max_size=20)},
), max_size=4))  # fmt: skip
def test_patches_of_any_shape_are_never_a_server_error(caller: Caller, media: str, patch: Any) -> None:
    base = caller.server.url + _PATHS[0]
    target: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}, "data": {"k": "v"}}
    caller.session.post(base, json=target, timeout=30)
    body = json.dumps(patch).encode("utf-8", "surrogatepass")
    headers = {"Content-Type": media}
    reply = caller.session.patch(f"{base}/patched?fieldManager=x", data=body, headers=headers, timeout=30)
    caller.check(reply, f"PATCH {media} {body!r}")


@settings(_QUIET, max_examples=300)
@given(parameters=st.dictionaries(st.sampled_from([
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty",
    "includeObject", "timeoutSeconds", "dryRun",
]), st.text(max_size=30)))  # fmt: skip
def test_queries_of_any_shape_are_never_a_server_error(caller: Caller, parameters: dict[str, str]) -> None:
    reply = caller.session.get(caller.server.url + _PATHS[1], params=parameters, timeout=30)
    # Upstream's own answer to a revision that has not been reached is a 504.
    if reply.status_code != 504:
        caller.check(reply, f"GET {parameters}")


@settings(_QUIET, max_examples=200)
@given(noise=st.binary(max_size=300))
def test_protobuf_noise_is_never_a_server_error(caller: Caller, noise: bytes) -> None:
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    for prefix in (b"k8s\x00", b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x20"):
        reply = caller.session.post(caller.server.url + _PATHS[0], data=prefix + noise, headers=headers, timeout=30)
        caller.check(reply, repr(noise))


def test_the_server_still_answers_after_all_that(caller: Caller) -> None:
    reply = caller.session.get(f"{caller.server.url}/readyz", timeout=30)
    caller.check(reply, "GET /readyz")
    assert reply.text == "ok"
