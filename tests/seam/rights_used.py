"""Compares the rights of a service account with the requests that it made, from the audit log of kube-apiserver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from tests.kube.cluster import KubeCluster
from trainmaster.api.meta import GVR, Object
from trainmaster.client.contract import Client
from trainmaster.operator.rights import Duties, build_access, list_granted_rules

_RBAC = "rbac.authorization.k8s.io"
_GVRS = {
    "ServiceAccount": GVR("", "v1", "serviceaccounts"),
    "ClusterRole": GVR(_RBAC, "v1", "clusterroles"),
    "ClusterRoleBinding": GVR(_RBAC, "v1", "clusterrolebindings"),
    "Role": GVR(_RBAC, "v1", "roles"),
    "RoleBinding": GVR(_RBAC, "v1", "rolebindings"),
}
_REVIEWS = GVR("authorization.k8s.io", "v1", "subjectaccessreviews")


class Right(NamedTuple):
    place: str
    """"cluster", "own" or "jobs"."""
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()


def list_rights(duties: Duties) -> list[Right]:
    """Everything that the roles contain, except what is held only to grant it to the launchers of MPIJobs."""
    granted = set(expand("", list_granted_rules(duties.v1_jobs)))
    found = []
    for role in build_access(duties):
        if role["kind"] in ("Role", "ClusterRole") and role["metadata"]["name"] != duties.reader:
            namespace = role["metadata"].get("namespace", "")
            place = "own" if namespace == duties.own_namespace else "jobs" if namespace else "cluster"
            found += [
                right
                for right in expand(place, role["rules"])
                if right._replace(place="") not in granted or right.verb in ("list", "watch", "get")
            ]
    return list(dict.fromkeys(found))


def expand(place: str, rules: Sequence[Object]) -> Iterator[Right]:
    for rule in rules:
        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
            yield Right(place, group, resource, verb, tuple(rule.get("resourceNames", ())))


class Requests:
    """What a service account has asked for."""

    def __init__(self, cluster: KubeCluster, duties: Duties) -> None:
        self._duties = duties
        user = duties.user
        self.events = cluster.read_requests(user)

    def list_refused(self) -> list[str]:
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self.events
            if event.get("responseStatus", {}).get("code") in (401, 403)
        ]

    def list_unused(self) -> list[Right]:
        """The rights that no request needed. What admission checks leaves no trace in the log."""
        return [
            right
            for right in list_rights(self._duties)
            if not right.resource.endswith("/finalizers")
            and not any(self._needs(event, right) for event in self.events)
        ]

    def count_lists(self, gvr: GVR) -> int:
        """Without those of a single object by its name."""
        return sum(
            event["verb"] == "list"
            and event["objectRef"].get("resource") == gvr.plural
            and "name" not in event["objectRef"]
            for event in self.events
            if event.get("objectRef")
        )

    def _needs(self, event: dict[str, Any], right: Right) -> bool:
        about = event.get("objectRef", {})
        resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        namespace = about.get("namespace", "")
        return (
            (about.get("apiGroup", ""), resource, event["verb"]) == (right.group, right.resource, right.verb)
            and (not right.names or about.get("name") in right.names)
            and self._is_in(right.place, namespace)
        )

    def _is_in(self, place: str, namespace: str) -> bool:
        is_own = namespace == self._duties.own_namespace
        return place == "cluster" or is_own == (place == "own")


async def install_access(client: Client, duties: Duties) -> str:
    """The token of the service account, once its roles are in force."""
    for obj in build_access(duties):
        await client.create(_GVRS[obj["kind"]], obj, obj["metadata"].get("namespace", ""))
    user = duties.user
    for right in list_rights(duties):
        places = {"cluster": ("",), "own": (duties.own_namespace,), "jobs": duties.namespaces}[right.place]
        for namespace in places:
            while not await may(client, user, right, namespace):
                await asyncio.sleep(0.02)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    place = duties.own_namespace
    made = await client.create(_GVRS["ServiceAccount"], request, place, subresource="token", name=duties.name)
    return str(made["status"]["token"])


async def may(client: Client, user: str, right: Right, namespace: str = "") -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked = {"namespace": namespace, "group": right.group, "resource": resource, "subresource": subresource}
    asked |= {"verb": right.verb, "name": next(iter(right.names), "")}
    spec = {"user": user, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": asked}
    review = {"apiVersion": _REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
    return bool((await client.create(_REVIEWS, review))["status"]["allowed"])
