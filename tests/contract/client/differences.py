"""Where our server and a real kube-apiserver differ, by name, each with its reason and what either of them shows.

`test_differences.py` asks every server; an entry that no longer differs fails there. docs/compat.md is made from this
list: `python -m tests.contract.client.differences > docs/compat.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.contract.client.objects import (
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    TRAIN_JOBS,
    make_config_map,
    make_pod,
    make_train_job,
    refusal,
)
from tests.contract.client.stage import Stage
from tests.wire import differences as wire
from trainmaster.api.meta import Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import PatchType, WatchOptions, WriteOptions


@dataclass(frozen=True, slots=True)
class Difference:
    name: str
    """A sentence about what is asked."""
    reason: str
    probe: Callable[[Stage], Awaitable[Any]]
    """Asks a server; the answer is plain JSON."""
    ours: Any
    upstream: Any


async def _create_with_revision(stage: Stage) -> Object:
    status = await refusal(stage.client.create(CONFIG_MAPS, make_config_map(resourceVersion="5"), stage.namespace))
    return {"code": status["code"], "reason": status["reason"]}


async def _update_with_malformed_revision(stage: Stage) -> Object:
    await stage.client.create(CONFIG_MAPS, make_config_map(), stage.namespace)
    status = await refusal(stage.client.update(CONFIG_MAPS, make_config_map(resourceVersion="x"), stage.namespace))
    return {"code": status["code"], "reason": status["reason"]}


async def _watch(stage: Stage, revision: str) -> Object | str:
    options = WatchOptions(resource_version=revision, timeout_seconds=1)
    try:
        async with stage.client.watch(CONFIG_MAPS, stage.namespace, options) as watch:
            async for _ in watch:
                return "an event"
    except StatusError as error:
        return {"code": error.code, "reason": error.reason}
    return "no event until the timeout"


async def _watch_the_future(stage: Stage) -> Any:
    return await _watch(stage, "99999999")


async def _watch_from_malformed_revision(stage: Stage) -> Any:
    return await _watch(stage, "abc")


async def _unknown_directive(stage: Stage) -> Object:
    await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    patch = {"data": {"$patch": "frob"}}
    status = await refusal(stage.client.patch(CONFIG_MAPS, "a", PatchType.STRATEGIC, patch, stage.namespace))
    return {"code": status["code"], "reason": status["reason"]}


async def _json_patch_that_does_not_fit(stage: Stage) -> Object:
    await stage.client.create(CONFIG_MAPS, make_config_map("a", {"k": "v"}), stage.namespace)
    steps = [{"op": "test", "path": "/data/k", "value": "other"}]
    status = await refusal(stage.client.patch(CONFIG_MAPS, "a", PatchType.JSON, steps, stage.namespace))
    return {"causes": len(status.get("details", {}).get("causes", []))}


async def _generation_from_the_body(stage: Stage) -> Object:
    obj = await stage.client.create(CONFIG_MAPS, make_config_map(generation=7), stage.namespace)
    return {"generation": obj["metadata"].get("generation", 0)}


async def _pod_additions(stage: Stage) -> Object:
    options = WriteOptions(dry_run=True)
    spec = (await stage.client.create(PODS, make_pod(), stage.namespace, options=options))["spec"]
    return {
        "token volumes": len(spec.get("volumes", [])),
        "tolerations": len(spec.get("tolerations", [])),
    }


async def _bind_by_patch(stage: Stage) -> Object | str:
    await stage.client.create(PODS, make_pod(), stage.namespace)
    patch = {"spec": {"nodeName": "n1"}}
    try:
        pod = await stage.client.patch(PODS, "p", PatchType.MERGE, patch, stage.namespace)
    except StatusError as error:
        return {"code": error.code, "reason": error.reason}
    return {"nodeName": pod["spec"]["nodeName"]}


async def _system_namespace(stage: Stage) -> Object:
    found = [item["metadata"]["name"] for item in (await stage.client.list(NAMESPACES)).items]
    return {"kubeflow-system": "kubeflow-system" in found}


async def _terminating_conditions(stage: Stage) -> Object:
    held = make_config_map("held", finalizers=["example.com/hold"])
    await stage.client.create(CONFIG_MAPS, held, stage.namespace)
    await stage.client.delete(NAMESPACES, stage.namespace)

    async def held_is_going() -> bool:
        found = await stage.client.get(CONFIG_MAPS, "held", stage.namespace)
        return "deletionTimestamp" in found["metadata"]

    await stage.eventually(held_is_going)
    seen: set[str] = set()

    async def conditions() -> bool:
        status = (await stage.client.get(NAMESPACES, stage.namespace))["status"]
        seen.update(condition["type"] for condition in status.get("conditions", []))
        return bool(seen) or stage.server != "kube"

    await stage.eventually(conditions)
    patch = {"metadata": {"finalizers": None}}
    await stage.client.patch(CONFIG_MAPS, "held", PatchType.MERGE, patch, stage.namespace)
    return {"NamespaceFinalizersRemaining": "NamespaceFinalizersRemaining" in seen}


async def _custom_body_without_kind(stage: Stage) -> Object:
    given = make_train_job()
    del given["kind"]
    status = await refusal(stage.client.create(TRAIN_JOBS, given, stage.namespace))
    return {"code": status["code"], "echoes the body": "torch-distributed" in status["message"]}


DIFFERENCES = (
    Difference(
        "Creating an object that carries a resourceVersion",
        "It is an error of the client, so we answer 400 and not 500.",
        _create_with_revision,
        ours={"code": 400, "reason": "BadRequest"},
        upstream={"code": 500, "reason": ""},
    ),
    Difference(
        "Updating with a resourceVersion that is not a number",
        "As above: 400 instead of 500.",
        _update_with_malformed_revision,
        ours={"code": 400, "reason": "BadRequest"},
        upstream={"code": 500, "reason": ""},
    ),
    Difference(
        "Watching from a resourceVersion that is not a number",
        "As above: 400 instead of 500.",
        _watch_from_malformed_revision,
        ours={"code": 400, "reason": "BadRequest"},
        upstream={"code": 500, "reason": ""},
    ),
    Difference(
        "A strategic merge patch with a directive that does not exist",
        "As above: 400 instead of 500.",
        _unknown_directive,
        ours={"code": 400, "reason": "BadRequest"},
        upstream={"code": 500, "reason": ""},
    ),
    Difference(
        "Watching from a resourceVersion that has not been reached",
        "Such a number comes from an earlier server (a deleted home). Upstream waits until it is reached; with 410 the "
        "client lists again and recovers immediately.",
        _watch_the_future,
        ours={"code": 410, "reason": "Expired"},
        upstream="no event until the timeout",
    ),
    Difference(
        "A JSON patch that does not fit the object",
        "Code, reason and message are the same; ours also has a cause with the failed operation and the reason.",
        _json_patch_that_does_not_fit,
        ours={"causes": 1},
        upstream={"causes": 0},
    ),
    Difference(
        "metadata.generation in the body of a kind without generations",
        "Upstream stores the number that the client sent. We drop it, as for every other kind.",
        _generation_from_the_body,
        ours={"generation": 0},
        upstream={"generation": 7},
    ),
    Difference(
        "Additions to a Pod at creation, besides defaults",
        "The node mounts the token without a volume in the Pod, and tolerations for nodes that stop answering have no "
        "meaning on one machine.",
        _pod_additions,
        ours={"token volumes": 0, "tolerations": 0},
        upstream={"token volumes": 1, "tolerations": 2},
    ),
    Difference(
        "Setting spec.nodeName of a Pod that has no node",
        "Upstream requires the binding subresource for that. Our scheduler binds a whole gang in one transaction of "
        "plain patches; as upstream, the node can be set only once.",
        _bind_by_patch,
        ours={"nodeName": "n1"},
        upstream={"code": 422, "reason": "Invalid"},
    ),
    Difference(
        "The namespace kubeflow-system",
        "It always exists, because the SDK looks for runtimes and for the version there.",
        _system_namespace,
        ours={"kubeflow-system": True},
        upstream={"kubeflow-system": False},
    ),
    Difference(
        "Conditions of a namespace that waits for finalizers",
        "Upstream reports the remaining objects in status.conditions; we only show the phase Terminating. "
        "`kubectl get` in the namespace lists the objects.",
        _terminating_conditions,
        ours={"NamespaceFinalizersRemaining": False},
        upstream={"NamespaceFinalizersRemaining": True},
    ),
    Difference(
        "A custom object without a kind",
        "Code and beginning of the message are the same; upstream then repeats the whole body, which may hold secrets.",
        _custom_body_without_kind,
        ours={"code": 400, "echoes the body": False},
        upstream={"code": 400, "echoes the body": True},
    ),
)

OUTSIDE = {
    "Kinds": "Only those of `kubectl api-resources` are served. There are no CronJobs or "
    "CertificateSigningRequests. CustomResourceDefinitions can only be read, and so can Deployments, which show the "
    "parts of the control plane: a write is answered with 405. Tested by `tests/wire/test_read.py`.",
    "A request without a credential": "401, except for health and version. Upstream treats it as `system:anonymous` "
    "and answers 403. Tested by `tests/wire/test_auth.py`.",
    "A client certificate of another authority": "Refused during the TLS handshake, which kubectl reports as EOF "
    "after some retries; upstream answers 401. Python's TLS cannot request a certificate and verify it later. Tested "
    "by `tests/bad_input/test_connections.py`.",
    "Services have no cluster IP": "The name of a Service resolves to the addresses of its Pods.",
    "There are no `system-` PriorityClasses": "Nothing would read them.",
    "A program started by exec ends with its client": "The process group of the program is killed. Many clusters "
    "leave it running until the container ends. Tested by `tests/wire/test_streams.py`.",
    "Immutable fields of custom kinds in another spelling": "Accepted if a Go client would read the same: `cpu: 1` is "
    '`cpu: 1000m`, an absent `value` is `value: ""`. Upstream compares JSON where a CEL rule protects the field, so a '
    "typed client cannot write back some objects that were made from YAML. Tested by `tests/wire/test_typed_client.py` "
    "and `tests/seam/test_typed_client.py`.",
    "pods/proxy": "Refused; use port-forward instead.",
    "pods/log with `uid`": "Not found if the Pod has another uid, so that a reader does not get the log of its "
    "successor. Upstream ignores the parameter.",
    "Times of long lines in pods/log": "A line of more than 16 KiB has the time of its last part. So times never go "
    "back, and `sinceTime` returns it whole or not at all. A kubelet gives it the time of its first part, and after "
    "`sinceTime` returns the rest of it. Tested by `tests/unit/node/logs/test_entries.py`.",
}
"""Differences at the edge of the API that the Client protocol cannot ask for."""

INTERNAL = {
    "Writes of our own controllers are not recorded in managedFields": "They are most of the writes on a busy machine, "
    "and no client applies to the same fields. Tested by `tests/unit/apiserver/test_local.py`.",
    "Pods have no tracking finalizer of their Job": "A reconciliation is one transaction, so a Pod cannot disappear "
    "between being counted and being recorded.",
}
"""Differences that no client can ask for directly."""


def render() -> str:
    lines = [
        "# Differences from a Kubernetes API server",
        "",
        "Apart from the differences below, all tests of the Client contract suite (`tests/contract/client`) get the",
        "same responses, including error messages, from our server, in process and over HTTP, and from a real",
        "kube-apiserver 1.36. The suite also tests each difference, and fails if it no longer exists.",
        "",
        "Generated from `tests/contract/client/differences.py`; do not edit.",
        "",
        "| Request | Ours | kube-apiserver | Reason |",
        "|---|---|---|---|",
    ]
    for entry in DIFFERENCES:
        lines.append(f"| {entry.name} | {_show(entry.ours)} | {_show(entry.upstream)} | {entry.reason} |")
    lines += ["", "## Outside the contract suite", ""]
    lines += [f"- **{name}**: {reason}" for name, reason in OUTSIDE.items()]
    lines += ["", "## Internal differences", ""]
    lines += [f"- **{name}**: {reason}" for name, reason in INTERNAL.items()]
    lines += ["", "## Not compared", ""]
    lines += ["These tests with kubectl and Python clients (`tests/wire`) run against only one of the two servers:", ""]
    apart: dict[str, list[str]] = {}
    for name, reason in (wire.ONLY_OURS | wire.ONLY_KUBE).items():
        apart.setdefault(reason, []).append(f"`{name}`")
    lines += [f"- {', '.join(names)}: {reason}" for reason, names in apart.items()] or ["None."]
    return "\n".join(lines) + "\n"


def _show(value: Any) -> str:
    if isinstance(value, str):
        return value
    words = []
    for name, one in value.items():
        words.append(f"{name} {json.dumps(one)}" if one != "" else f"no {name}")
    return ", ".join(words)


if __name__ == "__main__":
    sys.stdout.write(render())
