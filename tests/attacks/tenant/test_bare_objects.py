"""Objects of every kind that say next to nothing, made by whoever may: those who follow them live on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.site import Caller, Site, unique
from tests.support.clients import JSON

pytestmark = pytest.mark.attacks

JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
BODIES: dict[str, dict[str, object]] = {
    "nothing": {},
    "an empty spec": {"spec": {}},
    "no spec": {"spec": None},
    "an empty status": {"spec": {}, "status": {}},
}


def list_collections(owner: Caller) -> Iterator[tuple[str, str, str]]:
    """(path, apiVersion, kind) of every collection that objects can be created in."""
    groups = owner.kube.get("/apis")["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    for version in versions:
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        for resource in owner.kube.get(root)["resources"]:
            if "/" in resource["name"] or not {"create", "list"} <= set(resource["verbs"]):
                continue
            within = f"/namespaces/{owner.namespace}" if resource["namespaced"] else ""
            yield f"{root}{within}/{resource['name']}", version, resource["kind"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bare_objects_of_every_kind_end_nobody(site: Site, body: dict[str, object]) -> None:
    made = []
    for path, version, kind in list_collections(site.owner):
        name = unique("bare")
        given = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body}
        code, answer = site.owner.kube.call("POST", path, given)
        assert code in (201, 400, 403, 404, 405, 409, 422), (kind, code, answer)
        if code == 201:
            made.append(f"{path}/{name}")
    assert made
    assert site.owner.rest.call("GET", "/api/v1/runtimes?namespace=default")[0] == 200
    for name in (path.rpartition("/")[2] for path in made if "/trainingruntimes/" in path):
        job: JSON = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": unique("bare")},
        }
        job["spec"] = {"runtimeRef": {"name": name, "kind": "TrainingRuntime"}}
        code, answer = site.owner.kube.call("POST", JOBS, job)
        assert code in (201, 403, 422), answer
    # Everybody who follows objects has had a turn once a Pod has gone through the whole system.
    assert site.ann.run_pod(unique("after"), "echo here").strip() == "here"
    for path in made:
        site.owner.kube.call("DELETE", path)
    assert site.ann.run_pod(unique("after"), "echo here").strip() == "here"
    assert site.is_alive()
    assert "Traceback" not in site.server.log, site.server.log[-4000:]
