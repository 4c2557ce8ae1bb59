"""What was created in a namespace, by whoever it was, from the audit log of kube-apiserver."""

from __future__ import annotations

from collections import Counter

from tests.kube.cluster import KubeCluster


def count_made(cluster: KubeCluster, namespace: str, plural: str) -> Counter[str]:
    """By name: how many were created, whether or not they still exist."""
    return Counter(
        event["objectRef"]["name"]
        for event in cluster.read_audit(namespace)
        if event["objectRef"]["resource"] == plural and event["verb"] == "create"
        if not event["objectRef"].get("subresource") and event.get("responseStatus", {}).get("code") == 201
    )


def check_one_jobset_each(cluster: KubeCluster, namespace: str) -> None:
    """One JobSet was created for each TrainJob that was created: both have the same name, so for each uid.

    What was created while its connection was cut or its API server killed is not in the audit log, but it still exists:
    another one could have been created only after its deletion."""
    wanted, made = (count_made(cluster, namespace, plural) for plural in ("trainjobs", "jobsets"))
    existing = cluster.kubectl("get", "jobsets", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}").split()
    assert made <= wanted and set(wanted - made) <= set(existing), (wanted, made, existing)
