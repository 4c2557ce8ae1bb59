"""Discovery: which groups, versions and resources the server has, in the aggregated and in the legacy form.

Pure documents from a `Catalogue`, in catalogue order; the HTTP layer caches them, negotiates the form and adds the
ETag. Reads no schema: discovery is the first thing every client asks for, and start-up must be fast.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.api.declaring.kinds import Catalogue, Kind, Subresource
from trainmaster.api.meta import Object

STATUS_VERBS = ("get", "patch", "update")
_SCALE = Subresource("scale", STATUS_VERBS, "autoscaling", "v1", "Scale")


def aggregated(catalogue: Catalogue, *, core: bool, version: str) -> Object:
    """The APIGroupDiscoveryList of `/api` (core) or `/apis`, as apidiscovery.k8s.io `version` (v2 or v2beta1)."""
    items: list[Object] = []
    for group, versions in catalogue.groups().items():
        if (group == "") is core:
            items.append(
                {
                    "metadata": {"name": group} if group else {},
                    "versions": [_version(catalogue, group, name) for name in versions],
                }
            )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _version(catalogue: Catalogue, group: str, version: str) -> Object:
    resources = [_resource(kind) for kind in catalogue.of_group_version(group, version)]
    return {"version": version, "freshness": "Current", "resources": resources}


def _resource(kind: Kind) -> Object:
    resource: Object = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        resource["shortNames"] = list(kind.short_names)
    if kind.categories:
        resource["categories"] = list(kind.categories)
    subresources = list_subresources(kind)
    if subresources:
        resource["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in subresources
        ]
    return resource


def list_subresources(kind: Kind) -> Sequence[Subresource]:
    """All subresources of a kind by name, `status` and `scale` included, each with the type that it answers with."""
    found = {sub.name: sub for sub in kind.subresources}
    if kind.status:
        found.setdefault("status", Subresource("status", tuple(verb for verb in STATUS_VERBS if verb in kind.verbs)))
    if kind.scale is not None:
        found["scale"] = _SCALE
    return [
        sub if sub.kind else Subresource(sub.name, sub.verbs, kind.group, kind.version, kind.kind)
        for _, sub in sorted(found.items())
    ]


def legacy(catalogue: Catalogue, path: str) -> Object | None:
    """The document of `/api`, `/apis`, `/api/v1`, `/apis/G` or `/apis/G/V`; None when there is no such group."""
    match path.strip("/").split("/"):
        case ["api"]:
            # The Python client refuses an answer without the addresses; an empty list says "the one you used".
            versions = list(catalogue.groups().get("", ()))
            return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = [_group(group, versions) for group, versions in catalogue.groups().items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resource_list(catalogue, "", version)
        case ["apis", group] if group in catalogue.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, catalogue.groups()[group])}
        case ["apis", group, version]:
            return _resource_list(catalogue, group, version) if group else None
    return None


def _group(group: str, versions: Sequence[str]) -> Object:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(catalogue: Catalogue, group: str, version: str) -> Object | None:
    kinds = catalogue.of_group_version(group, version)
    if not kinds:
        return None
    resources: list[Object] = []
    for kind in kinds:
        resource: Object = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": list(kind.verbs),
        }
        if kind.short_names:
            resource["shortNames"] = list(kind.short_names)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        resources.append(resource)
        resources.extend(_legacy_subresource(kind, sub) for sub in list_subresources(kind))
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _legacy_subresource(kind: Kind, sub: Subresource) -> Object:
    resource: Object = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind,
        "verbs": list(sub.verbs),
    }
    if (sub.group, sub.version) != (kind.group, kind.version):
        resource["group"] = sub.group
        resource["version"] = sub.version
    return resource
