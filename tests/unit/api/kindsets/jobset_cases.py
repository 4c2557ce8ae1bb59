"""JobSets that admission must refuse (or let in), as small changes to a good one.

`tools/record_jobset_refusals.py` sends them to the real JobSet manager and stores its answers in
`jobset_refusals.json`; `test_jobset_admission.py` sends them to ours and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
Change = Callable[[Object], None]


def make_jobset(*names: str, name: str = "js", **spec: Any) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": [make_replicated(one) for one in names or ("node",)], **spec},
    }


def make_replicated(name: str, *, replicas: int = 1, job: Mapping[str, Any] | None = None, **more: Any) -> Object:
    container = {"name": "main", "image": "i:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = {"spec": {"containers": [container]}}
    spec = {"parallelism": 2, "completions": 2, "template": pod, **(job or {})}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def _rules(*rules: Object) -> Object:
    return make_jobset("a", "b", failurePolicy={"maxRestarts": 1, "rules": list(rules)})


def _claims(*names: str, mount: str = "data", jobset: str = "js", **policy: Any) -> Object:
    templates = [{"metadata": {"name": name}, "spec": CLAIM_SPEC} for name in names]
    made = make_jobset(name=jobset, volumeClaimPolicies=[{"templates": templates, **policy}])
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [
        {"name": mount, "mountPath": "/data"}
    ]
    return made


CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
LONG = "x" * 62


def _depends(on: str, status: str = "Ready", *, job: str = "b") -> Object:
    made = make_jobset("a", "b")
    index = 0 if job == "a" else 1
    made["spec"]["replicatedJobs"][index]["dependsOn"] = [{"name": on, "status": status}]
    return made


def _with_volume() -> Object:
    made = _claims("data")
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    return made


def _replicated(**more: Any) -> Object:
    made = make_jobset()
    made["spec"]["replicatedJobs"] = [make_replicated("node", **more)]
    return made


CREATED: Mapping[str, Object] = {
    "a good one": make_jobset(),
    "JW-07 no replicatedJobs": {**make_jobset(), "spec": {}},
    "JW-07 zero replicas": _replicated(replicas=0),
    "JW-07 negative replicas": _replicated(replicas=-1),
    "twice the same replicatedJob": make_jobset("a", "a"),
    "in-place restart": make_jobset(failurePolicy={"restartStrategy": "InPlaceRestart"}),
    "JW-12 first job depends": _depends("b", job="a"),
    "depends on a later job": _depends("c"),
    "JW-12 depends on Running": _depends("a", "Running"),
    "JW-12 depends and in order": {
        **(one := _depends("a")),
        "spec": {**one["spec"], "startupPolicy": {"startupPolicyOrder": "InOrder"}},
    },
    "JW-12 depends and any order": {
        **(one := _depends("a")),
        "spec": {**one["spec"], "startupPolicy": {"startupPolicyOrder": "AnyOrder"}},
    },
    "subdomain with dots": make_jobset(network={"subdomain": "a.b"}),
    "subdomain with capitals": make_jobset(network={"subdomain": "Ab"}),
    "subdomain too long": make_jobset(network={"subdomain": "x" * 64}),
    "managedBy without a path": make_jobset(managedBy="acme"),
    "managedBy with a bad domain": make_jobset(managedBy="Acme.io/x"),
    "managedBy too long": make_jobset(managedBy="acme.io/" + "x" * 60),
    "too many pods": _replicated(replicas=100_000, job={"parallelism": 100_000, "completions": 100_000}),
    "bad group": _replicated(groupName="Group"),
    "group too long": _replicated(groupName="x" * 64),
    "job name too long": make_jobset(name=LONG),
    "pod name too long": make_jobset(name="x" * 50),
    "name begins with a digit": make_jobset(name="1js"),
    "JW-06 success target unknown": make_jobset(successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]}),
    "success operator unknown": make_jobset(successPolicy={"operator": "Most"}),
    "rule target unknown": _rules({"action": "FailJobSet", "targetReplicatedJobs": ["nobody"]}),
    "rule reason unknown": _rules({"action": "FailJobSet", "onJobFailureReasons": ["Bored"]}),
    "rule name too long": _rules({"action": "FailJobSet", "name": "x" * 129}),
    "rule name with a dash": _rules({"action": "FailJobSet", "name": "a-b"}),
    "rule names not unique": _rules({"action": "FailJobSet", "name": "r"}, {"action": "RestartJobSet", "name": "r"}),
    "rule action unknown": _rules({"action": "Panic"}),
    "rule with a pattern that is none": _rules({"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]}),
    "coordinator unknown": make_jobset(coordinator={"replicatedJob": "nobody"}),
    "coordinator job index": make_jobset(coordinator={"replicatedJob": "node", "jobIndex": 1}),
    "coordinator pod index": make_jobset(coordinator={"replicatedJob": "node", "podIndex": 2}),
    "JW-13 coordinator label too long": make_jobset(coordinator={"replicatedJob": "node"}, network={"subdomain": LONG}),
    "coordinator of NonIndexed": {
        **(one := _replicated(job={"completionMode": "NonIndexed"})),
        "spec": {**one["spec"], "coordinator": {"replicatedJob": "node"}},
    },
    "claim": _claims("data"),
    "claim twice": _claims("data", "data"),
    "claim with a bad name": _claims("Data", mount="Data"),
    "claim too long": _claims("x" * 61, mount="x" * 61),
    "claim that nobody mounts": _claims("other"),
    "claim beside a volume": _with_volume(),
    "claim kept by Maybe": _claims("data", retentionPolicy={"whenDeleted": "Maybe"}),
    "negative TTL": make_jobset(ttlSecondsAfterFinished=-1),
    "several at once": make_jobset(
        managedBy="acme",
        successPolicy={"operator": "All", "targetReplicatedJobs": ["x", "y"]},
        coordinator={"replicatedJob": "nobody"},
    ),
}


def _get_pod(jobset: Object) -> Object:
    pod: Object = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return pod


def _set_spec(**spec: Any) -> Change:
    return lambda jobset: jobset["spec"].update(spec)


def _set_pod(**spec: Any) -> Change:
    return lambda jobset: _get_pod(jobset)["spec"].update(spec)


def _set_meta(**meta: Any) -> Change:
    return lambda jobset: _get_pod(jobset).update({"metadata": meta})


def _set_job(**spec: Any) -> Change:
    return lambda jobset: jobset["spec"]["replicatedJobs"][0]["template"]["spec"].update(spec)


def _set_replicated(**more: Any) -> Change:
    return lambda jobset: jobset["spec"]["replicatedJobs"][0].update(more)


def _set_claim_policy(**policy: Any) -> Change:
    return lambda jobset: jobset["spec"]["volumeClaimPolicies"][0].update(policy)


def _both(*changes: Change) -> Change:
    def change(jobset: Object) -> None:
        for one in changes:
            one(jobset)

    return change


_RUNNING = make_jobset("a", "b", failurePolicy={"maxRestarts": 1}, successPolicy={"operator": "All"})
_SUSPENDED = {**deepcopy(_RUNNING), "spec": {**deepcopy(_RUNNING["spec"]), "suspend": True}}
_SELECTOR = _set_pod(nodeSelector={"a": "b"})

UPDATED: Mapping[str, tuple[Object, Change]] = {
    "JI-01 JW-08 suspend": (_RUNNING, _set_spec(suspend=True)),
    "JW-08 resume": (_SUSPENDED, _set_spec(suspend=False)),
    "TTL": (_RUNNING, _set_spec(ttlSecondsAfterFinished=5)),
    "coordinator": (_RUNNING, _set_spec(coordinator={"replicatedJob": "a"})),
    "JW-04 node selector while running": (_RUNNING, _SELECTOR),
    "JW-04 node selector while suspended": (_SUSPENDED, _SELECTOR),
    "node selector with the resume": (_SUSPENDED, _both(_SELECTOR, _set_spec(suspend=False))),
    "node selector with the suspend": (_RUNNING, _both(_SELECTOR, _set_spec(suspend=True))),
    "tolerations while suspended": (_SUSPENDED, _set_pod(tolerations=[{"key": "k", "operator": "Exists"}])),
    "JW-11 gates while suspended": (_SUSPENDED, _set_pod(schedulingGates=[{"name": "example.com/gate"}])),
    "JW-11 annotations while suspended": (_SUSPENDED, _set_meta(annotations={"a": "b"})),
    "labels while suspended": (_SUSPENDED, _set_meta(labels={"a": "b"})),
    "JW-11 annotations while running": (_RUNNING, _set_meta(annotations={"a": "b"})),
    "JW-05 hostname while suspended": (_SUSPENDED, _set_pod(hostname="h")),
    "JW-05 subdomain while suspended": (_SUSPENDED, _set_pod(subdomain="s")),
    "replicas while suspended": (_SUSPENDED, _set_replicated(replicas=2)),
    "JI-55 JW-15 parallelism": (_RUNNING, _set_job(parallelism=4, completions=4)),
    "JW-09 success policy": (_RUNNING, _set_spec(successPolicy={"operator": "Any"})),
    "JW-09 failure policy": (_RUNNING, _set_spec(failurePolicy={"maxRestarts": 2})),
    "JW-09 managedBy set": (_RUNNING, _set_spec(managedBy="acme.io/x")),
    "network": (_RUNNING, _set_spec(network={"subdomain": "other"})),
    "JW-09 dependsOn": (
        _depends("a"),
        lambda j: j["spec"]["replicatedJobs"][1]["dependsOn"][0].update(status="Complete"),
    ),
    "JW-09 claim policy": (_claims("data"), _set_claim_policy(retentionPolicy={"whenDeleted": "Retain"})),
}
