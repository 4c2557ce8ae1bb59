"""Jobs, changes of Jobs and statuses that admission must refuse (or let in), as small changes to a good one.

`tools/record_job_refusals.py` sends them to a real API server and stores its answers in `job_refusals.json`;
`test_job_admission.py` sends them to ours and compares. No controller touches the Jobs: somebody else manages them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

Object = dict[str, Any]
Change = Callable[[Object], None]

NOW = "2026-11-15T12:00:00Z"
LATER = "2026-11-15T12:00:05Z"
LABELS = {"app": "a"}


def make_job(name: str = "j", pod: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    template = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}], **(pod or {})}
    body = {"managedBy": "acme.io/nobody", "template": {"spec": template}, **spec}
    kept = {key: value for key, value in body.items() if value is not None}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": kept,
    }


def make_indexed(**spec: Any) -> Object:
    return make_job(**{"completionMode": "Indexed", "completions": 3, "parallelism": 3, **spec})


def _policy(*rules: Object, pod: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    return make_job(pod=pod, podFailurePolicy={"rules": list(rules)}, **spec)


def _codes(*values: int, action: str = "Ignore", operator: str = "In", **more: Any) -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


def _success(*rules: Object, **spec: Any) -> Object:
    return make_indexed(successPolicy={"rules": list(rules)}, **spec)


def _labelled(labels: Mapping[str, str], **spec: Any) -> Object:
    made = make_job(**spec)
    made["spec"]["template"]["metadata"] = {"labels": dict(labels)}
    return made


_CONDITION = {"type": "DisruptionTarget", "status": "True"}
_ON_CONDITION = {"action": "Ignore", "onPodConditions": [_CONDITION]}

CREATED: Mapping[str, Object] = {
    "good": make_job(),
    "good indexed": make_indexed(),
    "negative parallelism": make_job(parallelism=-1),
    "negative completions": make_job(completions=-1),
    "negative deadline": make_job(activeDeadlineSeconds=-1),
    "negative back-off limit": make_job(backoffLimit=-1),
    "negative TTL": make_job(ttlSecondsAfterFinished=-1),
    "negative limit per index": make_indexed(backoffLimitPerIndex=-1),
    "negative failed indexes": make_indexed(backoffLimitPerIndex=1, maxFailedIndexes=-1),
    "failed indexes without a limit per index": make_indexed(maxFailedIndexes=1),
    "limits per index without indexes": make_job(backoffLimitPerIndex=1, maxFailedIndexes=1),
    "more failed indexes than completions": make_indexed(backoffLimitPerIndex=1, maxFailedIndexes=4),
    "indexed without completions": make_indexed(completions=None),
    "indexed with too much parallelism": make_indexed(parallelism=100_001),
    "very many indexes": make_indexed(completions=100_001, backoffLimitPerIndex=1),
    "very many indexes at once": make_indexed(
        completions=100_001, parallelism=10_001, backoffLimitPerIndex=1, maxFailedIndexes=10_001
    ),
    "unknown mode": make_job(completionMode="Some"),
    "unknown replacement": make_job(podReplacementPolicy="Always"),
    "manager without a path": make_job(managedBy="acme.io"),
    "manager without a domain": make_job(managedBy="/x"),
    "manager in capitals": make_job(managedBy="Acme.io/x"),
    "manager with a strange path": make_job(managedBy="acme.io/a b"),
    "manager without dots": make_job(managedBy="acme/x"),
    "long manager": make_job(managedBy="acme.io/" + "x" * 60),
    "empty manager": make_job(managedBy=""),
    "long name": make_indexed(name="x" * 62),
    "name with dots": make_indexed(name="a.b"),
    "name with dots without indexes": make_job(name="a.b"),
    "restart always": make_job(pod={"restartPolicy": "Always"}),
    "no restart policy": make_job(pod={"restartPolicy": ""}),
    "unknown restart policy": make_job(pod={"restartPolicy": "Sometimes"}),
    "no containers": make_job(pod={"containers": []}),
    "policy good": _policy(_codes(1, 2), _ON_CONDITION),
    "policy without rules": _policy(),
    "policy with too many rules": _policy(*[_codes(1)] * 21),
    "policy restarts in place": _policy(_codes(1), pod={"restartPolicy": "OnFailure"}),
    "policy replaces early": _policy(_codes(1), podReplacementPolicy="TerminatingOrFailed"),
    "rule without action": _policy(_codes(1, action="")),
    "rule with unknown action": _policy(_codes(1, action="Retry")),
    "rule FailIndex without limit": _policy(_codes(1, action="FailIndex")),
    "rule with both": _policy({**_codes(1), "onPodConditions": [_CONDITION]}),
    "rule with neither": _policy({"action": "Ignore"}),
    "codes without operator": _policy(_codes(1, operator="")),
    "codes with unknown operator": _policy(_codes(1, operator="Is")),
    "codes without values": _policy(_codes()),
    "codes with zero": _policy(_codes(0, 1)),
    "codes not in zero": _policy(_codes(0, 1, operator="NotIn")),
    "codes twice": _policy(_codes(1, 1)),
    "codes out of order": _policy(_codes(3, 1)),
    "codes of an unknown container": _policy(_codes(1, containerName="side")),
    "codes of a container": _policy(_codes(1, containerName="main")),
    "too many codes": _policy(_codes(*range(1, 257))),
    "condition with unknown status": _policy({"action": "Ignore", "onPodConditions": [{"type": "A", "status": "Yes"}]}),
    "condition without status": _policy({"action": "Ignore", "onPodConditions": [{"type": "A"}]}),
    "condition without type": _policy({"action": "Ignore", "onPodConditions": [{"type": "", "status": "True"}]}),
    "too many conditions": _policy({"action": "Ignore", "onPodConditions": [_CONDITION] * 21}),
    "success good": _success({"succeededIndexes": "0,2", "succeededCount": 1}),
    "success without indexes": make_job(successPolicy={"rules": [{"succeededCount": 1}]}),
    "success without rules": _success(),
    "success with too many rules": _success(*[{"succeededCount": 1}] * 21),
    "success rule without anything": _success({}),
    "success with a negative count": _success({"succeededCount": -1}),
    "success with a large count": _success({"succeededCount": 4}),
    "success with more than are named": _success({"succeededIndexes": "0,1", "succeededCount": 3}),
    "success with a strange index": _success({"succeededIndexes": "a"}),
    "success with a large index": _success({"succeededIndexes": "0-3"}),
    "success with three limits": _success({"succeededIndexes": "0-1-2"}),
    "success backwards": _success({"succeededIndexes": "1,0"}),
    "success interval backwards": _success({"succeededIndexes": "2-1"}),
    "selector by hand without a flag": make_job(selector={"matchLabels": LABELS}),
    "selector by hand": _labelled(LABELS, manualSelector=True, selector={"matchLabels": LABELS}),
    "selector by hand missing": make_job(manualSelector=True),
    "selector that does not match": _labelled(LABELS, manualSelector=True, selector={"matchLabels": {"app": "b"}}),
    "selector by expression": _labelled(
        LABELS,
        manualSelector=True,
        selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]},
    ),
    "selector without an operator": _labelled(
        LABELS,
        manualSelector=True,
        selector={"matchExpressions": [{}, {"key": "app", "operator": "In"}]},
    ),
    "selector with values that nothing has": _labelled(
        LABELS,
        manualSelector=True,
        selector={
            "matchLabels": {"a b": "c d"},
            "matchExpressions": [
                {"key": "app", "operator": "Exists", "values": ["a"]},
                {"key": "a", "operator": "NotIn", "values": ["b c"]},
            ],
        },
    ),
    "labels of another job": _labelled({"job-name": "other"}),
}


def _set(**spec: Any) -> Change:
    def change(job: Object) -> None:
        for name, value in spec.items():
            if value is None:
                job["spec"].pop(name, None)
            else:
                job["spec"][name] = value

    return change


def _set_pod(**pod: Any) -> Change:
    def change(job: Object) -> None:
        job["spec"]["template"]["spec"].update(pod)

    return change


def _set_container(**container: Any) -> Change:
    def change(job: Object) -> None:
        job["spec"]["template"]["spec"]["containers"][0].update(container)

    return change


def _label(job: Object) -> None:
    job["spec"]["template"]["metadata"].setdefault("labels", {})["a"] = "b"


def _annotate(job: Object) -> None:
    job["spec"]["template"]["metadata"]["annotations"] = {"a": "b"}


_SUSPENDED = make_indexed(suspend=True)
_SELECTOR = _set_pod(nodeSelector={"a": "b"})
_RESOURCES = _set_container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
_TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
_AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}}
_SPREAD: Object = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}

UPDATED: Mapping[str, tuple[Object, Change]] = {
    "parallelism": (make_job(), _set(parallelism=4)),
    "completions": (make_job(completions=2), _set(completions=3)),
    "completions of indexes": (make_indexed(), _set(completions=4)),
    "completions with parallelism": (make_indexed(), _set(completions=4, parallelism=4)),
    "back-off limit": (make_job(), _set(backoffLimit=1)),
    "deadline and TTL": (make_job(), _set(activeDeadlineSeconds=1, ttlSecondsAfterFinished=1)),
    "suspend": (make_job(), _set(suspend=True)),
    "mode": (make_job(completions=1), _set(completionMode="Indexed")),
    "manager": (make_job(), _set(managedBy="acme.io/other")),
    "limit per index": (make_indexed(backoffLimitPerIndex=1), _set(backoffLimitPerIndex=2)),
    "failed indexes": (make_indexed(backoffLimitPerIndex=1, maxFailedIndexes=1), _set(maxFailedIndexes=2)),
    "success policy": (_success({"succeededCount": 1}), _set(successPolicy={"rules": [{"succeededCount": 2}]})),
    "failure policy": (_policy(_codes(1)), _set(podFailurePolicy={"rules": [_codes(2)]})),
    "replacement": (make_job(), _set(podReplacementPolicy="Failed")),
    "selector": (make_job(), _set(selector={"matchLabels": LABELS})),
    "image while running": (make_job(), _set_container(image="i:2")),
    "image while suspended": (_SUSPENDED, _set_container(image="i:2")),
    "node selector while running": (make_job(), _SELECTOR),
    "node selector while suspended": (_SUSPENDED, _SELECTOR),
    "tolerations while suspended": (_SUSPENDED, _set_pod(tolerations=[{"key": "k", "operator": "Exists"}])),
    "gates while suspended": (_SUSPENDED, _set_pod(schedulingGates=[{"name": "example.com/g"}])),
    "labels while suspended": (_SUSPENDED, _label),
    "annotations while suspended": (_SUSPENDED, _annotate),
    "labels while running": (make_job(), _label),
    "resources while running": (make_job(), _RESOURCES),
    "resources while suspended": (_SUSPENDED, _RESOURCES),
    "node affinity while suspended": (_SUSPENDED, _set_pod(affinity=_AFFINITY)),
    "anti-affinity while suspended": (_SUSPENDED, _set_pod(affinity=_SPREAD)),
}


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "lastProbeTime": NOW, "lastTransitionTime": NOW, "reason": "R"}


def _status(*kinds: str, **more: Any) -> Object:
    return {"startTime": NOW, "conditions": [condition(kind) for kind in kinds], **more}


_COMPLETE = _status("SuccessCriteriaMet", "Complete", completionTime=NOW, succeeded=3)
_FAILED = _status("FailureTarget", "Failed", failed=1)

STATUSES: Mapping[str, tuple[Object, tuple[Object, Object]]] = {
    "complete": (make_indexed(), ({}, _COMPLETE)),
    "failed": (make_indexed(), ({}, _FAILED)),
    "complete without criteria": (make_indexed(), ({}, _status("Complete", completionTime=NOW))),
    "complete without a time": (make_indexed(), ({}, _status("SuccessCriteriaMet", "Complete"))),
    "a time without complete": (make_indexed(), ({}, _status(completionTime=NOW))),
    "complete before the start": (
        make_indexed(),
        ({}, {**_status("SuccessCriteriaMet", "Complete", completionTime=NOW), "startTime": LATER}),
    ),
    "failed without a target": (make_indexed(), ({}, _status("Failed"))),
    "complete and failed": (
        make_indexed(),
        ({}, _status("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed", completionTime=NOW)),
    ),
    "criteria and target": (make_indexed(), ({}, _status("SuccessCriteriaMet", "FailureTarget"))),
    "finished and active": (make_indexed(), ({}, {**_FAILED, "active": 1})),
    "finished and terminating": (make_indexed(), ({}, {**_FAILED, "terminating": 1})),
    "finished and uncounted": (make_indexed(), ({}, {**_FAILED, "uncountedTerminatedPods": {"failed": ["u"]}})),
    "finished without a start": (make_indexed(), ({}, {"conditions": _FAILED["conditions"]})),
    "negative counts": (make_indexed(), ({}, {"active": -1, "succeeded": -1, "failed": -1, "terminating": -1})),
    "more ready than active": (make_indexed(), ({}, {"active": 1, "ready": 2})),
    "uncounted twice": (make_indexed(), ({}, {"uncountedTerminatedPods": {"failed": ["u", ""], "succeeded": ["u"]}})),
    "strange indexes": (make_indexed(), ({}, {"completedIndexes": "a"})),
    "large indexes": (make_indexed(), ({}, {"completedIndexes": "0-7"})),
    "indexes without a mode": (make_job(completions=1), ({}, {"completedIndexes": "0"})),
    "failed indexes without a limit": (make_indexed(), ({}, {"failedIndexes": "0"})),
    "indexes that overlap": (
        make_indexed(backoffLimitPerIndex=1),
        ({}, {"failedIndexes": "1,2", "completedIndexes": "0,1"}),
    ),
    "failed never falls": (make_indexed(), ({"failed": 2}, {"failed": 1})),
    "succeeded may fall when elastic": (make_indexed(), ({"succeeded": 2}, {"succeeded": 1})),
    "succeeded never falls otherwise": (make_job(completions=3), ({"succeeded": 2}, {"succeeded": 1})),
    "the end stays": (make_indexed(), (_FAILED, _status("FailureTarget", failed=1))),
    "the target stays": (make_indexed(), (_status("FailureTarget"), _status())),
    "the criteria stay": (make_indexed(), (_status("SuccessCriteriaMet"), _status())),
    "the start stays": (make_indexed(), (_status(), {**_status(), "startTime": LATER})),
    "the start moves while suspended": (make_indexed(suspend=True), (_status(), {"conditions": []})),
    "the completion time stays": (make_indexed(), (_COMPLETE, {**_COMPLETE, "completionTime": LATER})),
}


def with_status(job: Object, status: Object) -> Object:
    return {**deepcopy(job), "status": deepcopy(status)}
