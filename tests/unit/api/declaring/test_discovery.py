"""Discovery documents: complete, consistent with the catalogue, and in the shapes that clients depend on."""

from __future__ import annotations

import pytest

from trainmaster.api.declaring import catalogue, discovery
from trainmaster.api.declaring.kinds import Catalogue, Kind, ScalePaths, Subresource
from trainmaster.api.declaring.schema import SchemaNode

pytestmark = pytest.mark.unit


def make_kind(group: str, version: str, name: str, **more: object) -> Kind:
    plural = name.lower() + "s"
    return Kind(group, version, name, plural, name.lower(), True, name, SchemaNode, **more)  # type: ignore[arg-type]


SMALL = Catalogue(
    [
        make_kind(
            "",
            "v1",
            "Pod",
            short_names=("po",),
            categories=("all",),
            status=True,
            subresources=(
                Subresource("log", ("get",)),
                Subresource("eviction", ("create",), "policy", "v1", "Eviction"),
            ),
        ),
        make_kind("batch", "v1", "Job"),
        Kind("batch", "v2", "Thing", "things", "thing", False, "Thing", SchemaNode, verbs=("create",)),
    ]
)


def test_the_core_group_is_alone_and_has_no_name() -> None:
    document = discovery.aggregated(SMALL, core=True, version="v2")
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert [item["metadata"] for item in document["items"]] == [{}]
    assert document["items"][0]["versions"][0]["resources"] == [
        {
            "resource": "pods",
            "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
            "scope": "Namespaced",
            "singularResource": "pod",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["po"],
            "categories": ["all"],
            "subresources": [
                {
                    "subresource": "eviction",
                    "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
                    "verbs": ["create"],
                },
                {
                    "subresource": "log",
                    "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
                    "verbs": ["get"],
                },
                {
                    "subresource": "status",
                    "responseKind": {"group": "", "version": "v1", "kind": "Pod"},
                    "verbs": ["get", "patch", "update"],
                },
            ],
        }
    ]


def test_the_named_groups_list_their_versions_in_order() -> None:
    document = discovery.aggregated(SMALL, core=False, version="v2beta1")
    assert document["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
    (item,) = document["items"]
    assert item["metadata"] == {"name": "batch"}
    assert [version["version"] for version in item["versions"]] == ["v1", "v2"]
    thing = item["versions"][1]["resources"][0]
    assert (thing["scope"], thing["verbs"], "subresources" in thing) == ("Cluster", ["create"], False)


def test_legacy_documents_have_the_shapes_that_old_clients_read() -> None:
    want = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    assert discovery.legacy(SMALL, "/api") == want
    assert discovery.legacy(SMALL, "/api/") == want
    groups = discovery.legacy(SMALL, "/apis")
    assert groups is not None
    assert groups["groups"] == [
        {
            "name": "batch",
            "versions": [
                {"groupVersion": "batch/v1", "version": "v1"},
                {"groupVersion": "batch/v2", "version": "v2"},
            ],
            "preferredVersion": {"groupVersion": "batch/v1", "version": "v1"},
        }
    ]
    group = discovery.legacy(SMALL, "/apis/batch")
    assert group is not None
    assert (group["kind"], group["name"]) == ("APIGroup", "batch")
    resources = discovery.legacy(SMALL, "/api/v1")
    assert resources is not None
    assert resources["groupVersion"] == "v1"
    assert [resource["name"] for resource in resources["resources"]] == [
        "pods",
        "pods/eviction",
        "pods/log",
        "pods/status",
    ]
    eviction = resources["resources"][1]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")


@pytest.mark.parametrize("path", ["/apis/nothing", "/apis/batch/v9", "/api/v9", "/other", "/apis//v1"])
def test_what_is_not_served_is_not_listed(path: str) -> None:
    assert discovery.legacy(SMALL, path) is None


def test_every_served_kind_is_discovered_in_both_forms() -> None:
    served = catalogue.build()
    found = set()
    for core in (True, False):
        for item in discovery.aggregated(served, core=core, version="v2")["items"]:
            for version in item["versions"]:
                for resource in version["resources"]:
                    found.add((item["metadata"].get("name", ""), version["version"], resource["resource"]))
                    assert resource["responseKind"]["kind"]
                    assert resource["scope"] in ("Namespaced", "Cluster")
    assert found == {(kind.group, kind.version, kind.plural) for kind in served.kinds}
    for kind in served.kinds:
        prefix = f"/apis/{kind.group}" if kind.group else "/api"
        document = discovery.legacy(served, f"{prefix}/{kind.version}")
        assert document is not None
        assert kind.plural in [resource["name"] for resource in document["resources"]]


def test_a_kind_that_can_be_scaled_has_the_subresource_of_autoscaling() -> None:
    scalable = Catalogue([make_kind("kubeflow.org", "v1", "Thing", scale=ScalePaths(".spec.n", ".status.n"))])
    verbs = ["get", "patch", "update"]
    (version,) = discovery.aggregated(scalable, core=False, version="v2")["items"][0]["versions"]
    assert version["resources"][0]["subresources"] == [
        {
            "subresource": "scale",
            "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
            "verbs": verbs,
        }
    ]
    document = discovery.legacy(scalable, "/apis/kubeflow.org/v1")
    assert document is not None
    told = document["resources"][1]
    assert (told["name"], told["group"], told["kind"], told["verbs"]) == ("things/scale", "autoscaling", "Scale", verbs)
