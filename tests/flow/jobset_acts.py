"""Lives of bare JobSets as a few acts each: create, let Pods of a Job run, succeed or fail, change the spec.

`tools/record_jobset_acts.py` plays them on the real control plane with the real JobSet manager and stores what is
there after each act in `jobset_acts.json`; `test_jobset_recorded.py` plays them on ours and compares. There is no node
in either: what Pods do is written into their status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.controllers.jobset.stage import make_jobset, make_replicated

Object = dict[str, Any]
SUCCEED, FAIL, READY = "succeed", "fail", "ready"


@dataclass(frozen=True)
class Act:
    """One change. `job` and `verb`: what all Pods of a Job do. `patch`: a merge patch of the JobSet."""

    job: str = ""
    verb: str = ""
    patch: Object = field(default_factory=dict)


def make(name: str, *replicated: Object, **more: Any) -> Object:
    for one in replicated:
        one["template"]["spec"].setdefault("backoffLimit", 0)
    return make_jobset(*replicated, name=name, **more)


def _decorated(name: str, **more: Any) -> Object:
    one = make_replicated(name, **more)
    one["template"]["metadata"] = {"labels": {"job-label": name}, "annotations": {"job-note": name}}
    one["template"]["spec"]["template"]["metadata"] = {"labels": {"pod-label": name}, "annotations": {"pod-note": name}}
    return one


def _depends(name: str, *on: tuple[str, str], **more: Any) -> Object:
    return make_replicated(name, dependsOn=[{"name": other, "status": status} for other, status in on], **more)


def _mounting(name: str, *claims: str) -> Object:
    one = make_replicated(name)
    container = one["template"]["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": claim, "mountPath": f"/{claim}"} for claim in claims]
    return one


def _selecting(name: str, **spec: Any) -> Object:
    one = make_replicated(name)
    one["template"]["spec"]["backoffLimit"] = 0
    one["template"]["spec"]["template"]["metadata"] = {"labels": {"late": "yes"}}
    one["template"]["spec"]["template"]["spec"] |= spec
    return one


_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_RULE = {"name": "again", "action": "RestartJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}
_FREE = {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["a"]}
_FINAL = {"name": "final", "action": "FailJobSet", "onJobFailureMessagePatterns": ["reached the .* backoff limit"]}
_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"

LIVES: Mapping[str, tuple[Object, Sequence[Act]]] = {
    "groups": (
        make(
            "groups",
            _decorated("a", replicas=2, groupName="left"),
            _decorated("b", replicas=1, pods=2),
            _decorated("c", replicas=1, groupName="left"),
            coordinator={"replicatedJob": "b", "podIndex": 1},
            network={"subdomain": "group-net", "publishNotReadyAddresses": False},
        ),
        (),
    ),
    "nodns": (make("nodns", make_replicated("a"), network={"enableDNSHostnames": False}), (Act("nodns-a-0", SUCCEED),)),
    "order": (
        make(
            "order",
            make_replicated("a"),
            make_replicated("b", 2),
            startupPolicy={"startupPolicyOrder": "InOrder"},
            failurePolicy={"maxRestarts": 1},
        ),
        (
            Act("order-a-0", READY),
            Act("order-b-0", READY),
            Act("order-b-1", READY),
            Act("order-b-0", FAIL),
            Act("order-a-0", READY),
        ),
    ),
    "depends": (
        make("depends", make_replicated("a"), _depends("b", ("a", "Complete")), _depends("c", ("b", "Ready"))),
        (
            Act("depends-a-0", SUCCEED),
            Act("depends-b-0", READY),
            Act("depends-b-0", SUCCEED),
            Act("depends-c-0", SUCCEED),
        ),
    ),
    "rule": (
        make("rule", make_replicated("a", pods=2), failurePolicy={"maxRestarts": 1, "rules": [_RULE]}),
        (Act("rule-a-0", FAIL), Act("rule-a-0", READY), Act("rule-a-0", FAIL)),
    ),
    "free": (
        make("free", make_replicated("a"), make_replicated("b"), failurePolicy={"rules": [_FREE, _FINAL]}),
        (Act("free-a-0", FAIL), Act("free-b-0", FAIL)),
    ),
    "nopolicy": (make("nopolicy", make_replicated("a"), make_replicated("b")), (Act("nopolicy-a-0", FAIL),)),
    "any": (
        make("any", make_replicated("a"), make_replicated("b", 2), successPolicy={"operator": "Any"}),
        (Act("any-b-1", SUCCEED),),
    ),
    "resume": (
        make("resume", make_replicated("a"), _depends("b", ("a", "Ready")), suspend=True),
        (
            Act(
                patch={
                    "spec": {
                        "replicatedJobs": [
                            _selecting(
                                "a",
                                nodeSelector={"zone": "z"},
                                tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                                schedulingGates=[{"name": "example.com/gate"}],
                            ),
                            {**_selecting("b"), "dependsOn": [{"name": "a", "status": "Ready"}]},
                        ]
                    }
                }
            ),
            Act(patch={"spec": {"suspend": False}}),
            Act("resume-a-0", READY),
            Act(patch={"spec": {"suspend": True}}),
        ),
    ),
    "claims": (
        make(
            "claims",
            _mounting("a", "gone", "kept"),
            make_replicated("b"),
            suspend=True,
            volumeClaimPolicies=[
                {"templates": [{"metadata": {"name": "gone", "labels": {"l": "1"}}, "spec": _CLAIM}]},
                {
                    "templates": [{"metadata": {"name": "kept", "annotations": {"n": "1"}}, "spec": _CLAIM}],
                    "retentionPolicy": {"whenDeleted": "Retain"},
                },
            ],
        ),
        (),
    ),
    "strategy": (
        make("strategy", make_replicated("a"), annotations={_TOPOLOGY: "rack", _STRATEGY: "true"}, suspend=True),
        (),
    ),
    "topology": (make("topology", make_replicated("a"), annotations={_TOPOLOGY: "rack"}, suspend=True), ()),
}


def build_pod_status(verb: str, now: str) -> Object:
    if verb == READY:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        return {"phase": "Running", "conditions": [ready]}
    return {"phase": "Succeeded" if verb == SUCCEED else "Failed", "conditions": []}


_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_OWN = "trainmaster.dev/"


def capture(jobset: Object, jobs: list[Object], services: list[Object], claims: list[Object], events: Any) -> Object:
    """What is compared, masked. Of Jobs the status is the Job controller's affair; of claims, what storage adds."""
    uids = {obj["metadata"]["uid"]: f"<uid of {obj['metadata']['name']}>" for obj in (jobset, *jobs)}
    made = {
        "status": jobset.get("status") or {},
        "jobs": {job["metadata"]["name"]: {"metadata": job["metadata"], "spec": job["spec"]} for job in jobs},
        "services": {
            one["metadata"]["name"]: {
                "metadata": one["metadata"],
                **{key: one["spec"].get(key) for key in ("clusterIP", "selector", "publishNotReadyAddresses")},
            }
            for one in services
        },
        "claims": {
            one["metadata"]["name"]: {"metadata": one["metadata"], "spec": {**one["spec"], "volumeName": None}}
            for one in claims
        },
        "events": events,
    }
    masked: Object = json.loads(json.dumps(_mask(made, uids)))
    return masked


def _mask(value: Any, uids: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in _SERVER and not key.startswith(_OWN)}
        kept.pop("finalizers", None)
        kept = {key: "<time>" if key == "lastTransitionTime" else _mask(item, uids) for key, item in kept.items()}
        return {key: item for key, item in kept.items() if item not in ({}, None)}
    if isinstance(value, list):
        return [_mask(item, uids) for item in value]
    return uids.get(value, value) if isinstance(value, str) else value


def compact(pictures: Sequence[Object]) -> list[Object]:
    """A Job that is as in the picture before becomes `=`."""
    result: list[Object] = []
    before: Mapping[str, Any] = {}
    for picture in pictures:
        jobs = {name: "=" if before.get(name) == job else job for name, job in picture["jobs"].items()}
        result.append({**picture, "jobs": jobs})
        before = picture["jobs"]
    return result
