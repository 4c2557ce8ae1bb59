"""Our additions to the generated schema data, and differences from it.

Applied once to the parsed data of a file, before any node is built from it:

- TrainJob takes the override shapes of Trainer 2.1 (`podTemplateOverrides`, `labels`, `annotations`) and 2.0
  (`podSpecOverrides`), and `numProcPerNode` as a number or a word; runtimes take 2.1's `torch.elasticPolicy`;
- TrainJob and runtimes take retention and deadlines, and TrainJob has `status.waiting`,
  `status.failure` and `status.retention`, as have the v1 jobs, which also count their restarts;
  TrainJob also has `status.pace` of its steps, and says that they stand still (`status.stalled`), how often it was
  restarted because of that (`status.stalls`), and which failures repeat (`status.repeated`);
- runtimes drop the immutability that their JobSet part inherits where an edit makes sense.

The generated files stay as the generator writes them, so that a new upstream version is one run of the tool.
"""

from __future__ import annotations

import copy
from typing import Any

Raw = dict[str, Any]

_TRAINER = "org.kubeflow.trainer.v1alpha1."
_MUTABLE_ON_RUNTIMES = ("failurePolicy", "successPolicy", "startupPolicy", "network")
_OVERRIDABLE = (
    "serviceAccountName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "volumes",
    "initContainers",
    "containers",
    "schedulingGates",
    "imagePullSecrets",
)

_STRING: Raw = {"type": "string"}
_STRING_MAP: Raw = {"type": "object", "extra": _STRING}
_TTL: Raw = {"type": "integer", "format": "int32", "min": 0}
_DEADLINE: Raw = {"type": "integer", "format": "int64", "min": 1}
_TIME: Raw = {"type": "string", "format": "date-time"}
_COUNT: Raw = {"type": "integer", "format": "int32", "min": 1}
_ELASTIC: Raw = {
    "type": "object",
    "props": {
        "minNodes": _COUNT,
        "maxNodes": _COUNT,
        "maxRestarts": {"type": "integer", "format": "int32", "min": 0},
        "metrics": {"type": "array", "listType": "atomic", "items": {"type": "object", "open": True}},
    },
}
_NUM_PROC: Raw = {"ios": True, "format": "int-or-string"}
_NUM_PROC_RULE = {
    "rule": "type(self) == int ? self > 0 : self in ['auto', 'cpu', 'gpu']",
    "message": "NumProcPerNode must be equal to auto, cpu, gpu, or int value",
}


_TEXT: Raw = {"type": "string", "maxLen": 1024}
_LONG_TEXT: Raw = {"type": "string", "maxLen": 32768}
_NUMBER: Raw = {"type": "integer", "format": "int32"}
_STATUS: Raw = {
    "waiting": {
        "type": "object",
        "props": {
            "reason": {"type": "string", "minLen": 1, "maxLen": 253},
            "message": _LONG_TEXT,
            "since": _TIME,
            "until": _TIME,
        },
        "required": ["reason"],
    },
    "failure": {
        "type": "object",
        "props": {
            **dict.fromkeys(("attempt", "jobIndex", "rank", "exitCode", "signal"), _NUMBER),
            **dict.fromkeys(("job", "replicatedJob", "pod", "container", "reason"), _TEXT),
            "message": _LONG_TEXT,
            "finishedAt": _TIME,
        },
        "required": ["attempt", "job"],
    },
    "retention": {
        "type": "object",
        "props": {"ttlSecondsAfterFinished": _TTL, "source": _TEXT, "deleteAt": _TIME, "message": _LONG_TEXT},
        "required": ["ttlSecondsAfterFinished", "source"],
    },
}
"""What every kind of training job says in its status besides upstream's fields."""
_TALLY: Raw = {**_NUMBER, "min": 0}
_POSITION: Raw = {"type": "string", "maxLen": 64}
_PACE: Raw = {
    "type": "object",
    "props": {
        **dict.fromkeys(("position", "furthest", "phase"), _POSITION),
        "advancedAt": _TIME,
        **dict.fromkeys(("longestSeconds", "startSeconds", "phaseSeconds"), _TALLY),
    },
}
_STALLED: Raw = {
    "type": "object",
    "props": {"since": _TIME, "position": _POSITION, "message": _TEXT},
    "required": ["since", "message"],
}
_STALLS: Raw = {
    "type": "object",
    "props": {**dict.fromkeys(("restarts", "attempt"), _TALLY), "furthest": _POSITION},
}
_REPEATED: Raw = {
    "type": "object",
    "props": {
        **dict.fromkeys(("attempt", "count"), _TALLY),
        **dict.fromkeys(("error", "checkpoint"), _TEXT),
        "furthest": _POSITION,
        "progressed": {"type": "boolean"},
    },
    "required": ["attempt", "count"],
}


def apply(file: str, data: Raw) -> None:
    """Changes the parsed data of one file in place."""
    if file == "trainer_v1alpha1":
        _trainjob(data)
        _runtimes(data)
    elif file == "kubeflow_v1":
        _v1_jobs(data)


def _trainjob(data: Raw) -> None:
    job = data[_TRAINER + "TrainJob"]
    spec = _own(data, job["props"], "spec")
    fields = spec["props"]
    fields["labels"] = _STRING_MAP
    fields["annotations"] = _STRING_MAP
    fields["podTemplateOverrides"] = _pod_template_overrides(data, fields)
    fields["podSpecOverrides"] = _pod_spec_overrides(fields["podTemplateOverrides"])
    fields["ttlSecondsAfterFinished"] = _TTL
    fields["cleanupPolicy"] = {"type": "object", "props": {"ttlSecondsAfterFinished": _TTL}}
    _own(data, fields, "trainer")["props"]["numProcPerNode"] = _NUM_PROC
    status = _own(data, job["props"], "status")
    # A column of kubectl cannot add the sign to the reported number.
    own = {"progress": {"type": "string", "maxLen": 8}, "pace": _PACE, "stalled": _STALLED, "stalls": _STALLS}
    status["props"] |= {**_STATUS, **own, "repeated": _REPEATED}


def _v1_jobs(data: Raw) -> None:
    for name, job in data.items():
        if name.startswith("org.kubeflow.v1."):
            status = _own(data, job["props"], "status")
            status["props"] |= {
                **_STATUS,
                "restarts": _NUMBER,
                "restartingPods": {"type": "array", "listType": "atomic", "items": _STRING},
            }


def _pod_template_overrides(data: Raw, spec: Raw) -> Raw:
    """2.1's shape. Its parts are those of a runtimePatch, without the rules that 2.2 put on them."""
    pod = spec["runtimePatches"]
    for step in ("trainingRuntimeSpec", "template", "spec", "replicatedJobs", "template", "spec", "template"):
        pod = _below(data, pod, step)
    pod_spec = {name: _without_rules(_below(data, _below(data, pod, "spec"), name)) for name in _OVERRIDABLE}
    for name in ("containers", "initContainers"):
        pod_spec[name] = copy.deepcopy(pod_spec[name])
        container = _own(data, pod_spec[name], "items")
        container["props"].pop("securityContext", None)
    target = {"type": "object", "props": {"name": {"type": "string", "minLen": 1}}, "required": ["name"]}
    return {
        "type": "array",
        "listType": "atomic",
        "items": {
            "type": "object",
            "props": {
                "targetJobs": {"type": "array", "listType": "atomic", "items": target},
                "metadata": _below(data, pod, "metadata"),
                "spec": {"type": "object", "props": pod_spec},
            },
            "required": ["targetJobs"],
        },
    }


def _pod_spec_overrides(template_overrides: Raw) -> Raw:
    """2.0's shape: flat, without metadata, affinity and imagePullSecrets."""
    fields = template_overrides["items"]["props"]
    flat = {k: v for k, v in fields["spec"]["props"].items() if k not in ("affinity", "imagePullSecrets")}
    items = {"type": "object", "props": {"targetJobs": fields["targetJobs"]} | flat, "required": ["targetJobs"]}
    return {"type": "array", "listType": "atomic", "items": items}


def _runtimes(data: Raw) -> None:
    for name in ("TrainingRuntime", "ClusterTrainingRuntime"):
        spec = _own(data, data[_TRAINER + name]["props"], "spec")
        spec["props"]["ttlSecondsAfterFinished"] = _TTL
        spec["props"]["activeDeadlineSeconds"] = _DEADLINE
        limits = {"activeDeadlineSeconds": _DEADLINE, "ttlSecondsAfterFinished": _TTL}
        spec["props"]["runPolicy"] = {"type": "object", "props": limits}
        ml_policy = _own(data, spec["props"], "mlPolicy")
        torch = _own(data, ml_policy["props"], "torch")
        torch["props"]["numProcPerNode"] = _NUM_PROC | {"rules": [_NUM_PROC_RULE]}
        torch["props"]["elasticPolicy"] = _ELASTIC
        template = _own(data, spec["props"], "template")
        job_set = _own(data, template["props"], "spec")
        for field in _MUTABLE_ON_RUNTIMES:
            job_set["props"][field] = _without_rules(_resolved(data, job_set["props"][field]))


def _resolved(data: Raw, raw: Raw) -> Raw:
    while str(raw.get("ref", "")).startswith("#"):
        raw = data[raw["ref"]]
    return raw


def _below(data: Raw, raw: Raw, name: str) -> Raw:
    """The schema of a field; looks through lists."""
    raw = _resolved(data, raw)
    if "items" in raw:
        raw = _resolved(data, raw["items"])
    return _resolved(data, raw["props"][name])


def _own(data: Raw, parent: Raw, name: str) -> Raw:
    """Replaces a possibly shared child by a copy of its own and returns it, so that changing it changes one place."""
    child = dict(_resolved(data, parent[name]))
    if "props" in child:
        child["props"] = dict(child["props"])
    parent[name] = child
    return child


def _without_rules(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if key != "rules"}
