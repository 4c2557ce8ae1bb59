"""Running jobs that a restore keeps: whole, as they are now, and nothing else."""

from __future__ import annotations

import pytest

from trainmaster.api.meta import Object
from trainmaster.apiserver import stored
from trainmaster.app.home.carry_over import carry_over
from trainmaster.store.contract import Store, StoreError
from trainmaster.store.memory import MemoryStore

pytestmark = pytest.mark.unit


def put(
    store: Store, bucket: str, name: str, uid: str, *, owner: str = "", controller: bool = True, **fields: object
) -> None:
    owners = {"ownerReferences": [{"uid": owner, "controller": controller}]} if owner else {}
    metadata = {"uid": uid, "resourceVersion": str(store.revision + 1), **owners}
    store.put(bucket, name, stored.dump({"apiVersion": "v1", "kind": "K", "metadata": metadata, **fields}))


def read(store: Store) -> dict[tuple[str, str], Object]:
    return {(bucket, one.name): stored.parse(one.value) for bucket in store.buckets() for one in store.scan(bucket)}


def make_old() -> MemoryStore:
    """A job with two Pods in its second attempt, and another job."""
    store = MemoryStore()
    put(store, "namespaces", "team", "ns")
    runtime = {"runtimeRef": {"name": "mine", "kind": "TrainingRuntime"}}
    put(store, "trainer.kubeflow.org/trainjobs", "team/a", "job", spec=runtime)
    put(store, "trainer.kubeflow.org/trainingruntimes", "team/mine", "runtime", spec={})
    put(store, "jobset.x-k8s.io/jobsets", "team/a", "set", owner="job")
    put(store, "batch/jobs", "team/a-node-0", "batch", owner="set")
    put(store, "configmaps", "team/a-snapshot", "snapshot", owner="job", controller=False)
    spec = {
        "serviceAccountName": "trainer",
        "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"envFrom": [{"secretRef": {"name": "token"}}]}],
    }
    put(store, "pods", "team/a-0", "pod-0", owner="batch", spec=spec)
    put(store, "pods", "team/a-1", "pod-1", owner="batch", spec={})
    put(store, "serviceaccounts", "team/trainer", "account")
    put(store, "secrets", "team/token", "token", data={"a": "new"})
    put(store, "persistentvolumeclaims", "team/data", "claim", spec={"volumeName": "disk"})
    put(store, "persistentvolumes", "disk", "volume", spec={})
    put(store, "trainer.kubeflow.org/trainjobs", "team/b", "other", spec={})
    return store


def make_backup() -> MemoryStore:
    """From the first attempt of the job."""
    store = MemoryStore()
    put(store, "namespaces", "team", "ns")
    put(store, "secrets", "team/token", "token", data={"a": "old"})
    put(store, "trainer.kubeflow.org/trainjobs", "team/a", "job", spec={}, status={"old": True})
    put(store, "jobset.x-k8s.io/jobsets", "team/a", "set", owner="job")
    put(store, "batch/jobs", "team/a-node-0", "batch-old", owner="set")
    put(store, "pods", "team/a-old", "pod-old", owner="batch-old", spec={})
    put(store, "trainer.kubeflow.org/trainjobs", "team/c", "only-in-backup", spec={})
    return store


def test_a_job_is_kept_whole_and_its_earlier_state_is_gone() -> None:
    old, new = make_old(), make_backup()
    carry_over(old, new, ["pod-0", "pod-1"])
    before, after = read(old), read(new)
    kept = {address for address in before if address not in (("trainer.kubeflow.org/trainjobs", "team/b"),)}
    assert set(after) == {*kept, ("trainer.kubeflow.org/trainjobs", "team/c")}
    assert "status" not in after["trainer.kubeflow.org/trainjobs", "team/a"], "as it is now"
    assert after["secrets", "team/token"]["data"] == {"a": "old"}, "what a job does not own is the backup's"
    for bucket in new.buckets():
        for record in new.scan(bucket):
            assert stored.parse(record.value)["metadata"]["resourceVersion"] == str(record.revision)


@pytest.mark.parametrize("words", ["no namespace team", "another trainer.kubeflow.org/trainjobs team/a"])
def test_a_job_that_does_not_fit_the_backup_is_an_error_and_nothing_changes(words: str) -> None:
    old, new = make_old(), MemoryStore()
    if "trainjobs" in words:
        put(new, "namespaces", "team", "ns")
        put(new, "trainer.kubeflow.org/trainjobs", "team/a", "an earlier job of that name", spec={})
    before = read(new)
    with pytest.raises(StoreError, match=words):
        carry_over(old, new, ["pod-0"])
    assert read(new) == before


def test_references_to_owners_elsewhere_and_in_circles_keep_nothing_else() -> None:
    old, new = MemoryStore(), MemoryStore()
    for store in (old, new):
        for namespace in ("team", "other"):
            put(store, "namespaces", namespace, f"ns-{namespace}")
    put(old, "clusterroles", "admin", "role")
    put(old, "secrets", "other/secret", "secret", owner="pod-1")
    put(old, "pods", "team/a", "pod-1", owner="role", spec={})
    put(old, "pods", "team/b", "pod-2", owner="pod-3", spec={})
    put(old, "pods", "team/c", "pod-3", owner="pod-2", spec={})
    carry_over(old, new, ["pod-1", "pod-2"])
    assert {name for _, name in read(new)} == {"team", "other", "team/a", "team/b", "team/c"}
