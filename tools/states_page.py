"""Makes docs/states.md: every state that a TrainJob can show, what it means, and what to do.

The reasons are read from the code of the controllers (`collect`), the words about them stand here. A unit test fails
when a controller can write a reason that has no words, when words are left over, or when the page is not up to date.

    python tools/states_page.py
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "trainmaster" / "controllers"
PAGE = ROOT / "docs" / "states.md"

SAYERS = {"trainjob": "TrainJob", "jobset": "JobSet", "job": "Job", "scheduler": "Pod", "frameworks": "TrainJob"}
"""Folder of a controller -> the object that its `Waiting` is about."""
COPIES = {"jobset/reconciler.py:_find_reason"}
"""Where a reason is passed on instead of given: what a Job says about itself."""


class Words(NamedTuple):
    meaning: str
    advice: str


WAITING: Mapping[str, Words] = {
    "ClaimConflict": Words(
        "a PersistentVolumeClaim that the JobSet needs exists and belongs to somebody else",
        "delete or rename it, or keep it with `retentionPolicy.whenDeleted: Retain`",
    ),
    "ClaimTerminating": Words(
        "a claim of the last run is still being deleted", "nothing; it is made anew when it is gone"
    ),
    "DamagedJob": Words(
        "a Job of the JobSet lost the labels that say which one it is", "delete that Job; it is made anew"
    ),
    "FailedCreate": Words(
        "the server refuses a Pod (a quota, a limit, an invalid field)",
        "read the message; raise the quota, or correct the TrainJob and submit it again",
    ),
    "FailedUpdate": Words("the server refuses a change of the Job or its Pods", "read the message"),
    "HeadlessServiceCreationFailed": Words(
        "the server refuses the Service under which Pods find each other",
        "read the message; often a name that is taken",
    ),
    "Invalid": Words(
        "the TrainJob does not fit its runtime; told here where no admission could refuse it",
        "correct what the message names and submit it again",
    ),
    "InvalidNumNodes": Words("numNodes is below 1", "submit it again with at least one node"),
    "InvalidRuntimeSnapshot": Words(
        "the ConfigMap that keeps the runtime as it was at the start is damaged or somebody else's",
        "delete that ConfigMap; a new one is taken",
    ),
    "JobCreationFailed": Words("the server refuses a Job of the JobSet", "read the message"),
    "JobSetMissing": Words("somebody deleted the JobSet of a job that had not ended", "nothing; it is made anew"),
    "JobSetTerminating": Words(
        "somebody deleted the JobSet; it is on its way out", "nothing; it is made anew once it is gone"
    ),
    "LeftoverPod": Words(
        "a Pod of a Job that somebody deleted is still ending", "nothing; the Job is made anew when it is gone"
    ),
    "NameConflict": Words(
        "an object that belongs to somebody else has a name that the job needs", "delete or rename one of the two"
    ),
    "PVCCreationFailed": Words("the server refuses a PersistentVolumeClaim", "read the message"),
    "Refused": Words(
        "the server refuses what the job needs (a quota, a missing permission, an invalid field)",
        "read the message; it is tried again with growing pauses",
    ),
    "RestartBackOff": Words(
        "the job failed and is restarted; repeated failures make the pause longer, `until` says when it ends",
        "`status.failure` says who failed first, and its last words",
    ),
    "RuntimeNotFound": Words(
        "the runtime that the TrainJob names does not exist",
        "create it, and the job starts by itself; the message lists those that exist",
    ),
    "TrainingRuntimeNotSupported": Words(
        "`runtimeRef` names a kind that is no runtime", "use a TrainingRuntime or a ClusterTrainingRuntime"
    ),
    "Queued": Words(
        "the node has no room for all Pods of the job now, or others were first",
        "nothing: the message says what is missing, the position in the queue, and what would free it",
    ),
    "Unschedulable": Words(
        "no node suits a Pod", "read the message: it says what the Pod asks for and what the node has"
    ),
    "Unsupported": Words(
        "the job uses a field that this version does not carry out; it is never ignored",
        "remove what the message names",
    ),
}

CONDITIONS: Mapping[tuple[str, str, str], Words] = {
    ("Complete", "True", "AllJobsCompleted"): Words("the job has ended well", "nothing"),
    ("Failed", "True", "DeadlineExceeded"): Words(
        "it took longer than its `activeDeadlineSeconds`; what ran was stopped",
        "raise the deadline and submit it again",
    ),
    ("Failed", "True", "FailJobSetFailurePolicyAction"): Words(
        "a rule of the failure policy says that this failure is final",
        "the message ends with who failed first and its last words",
    ),
    ("Failed", "True", "FailedJobs"): Words(
        "a Job failed, and the runtime has no failure policy",
        "the message ends with who failed first and its last words",
    ),
    ("Failed", "True", "ReachedMaxRestarts"): Words(
        "it failed again after the last restart that `maxRestarts` allows",
        "the message ends with who failed first; raise `maxRestarts` in the runtime if the cause was outside",
    ),
    ("Suspended", "True", "Suspended"): Words("somebody set `spec.suspend`; nothing of it runs", "set it to false"),
    ("Suspended", "False", "Resumed"): Words("it was suspended once, and is not any more", "nothing"),
}


@dataclass(frozen=True)
class Found:
    """What the controllers can write."""

    waiting: Mapping[str, Sequence[str]]
    """Reason -> the kinds that say it."""
    conditions: frozenset[tuple[str, str, str]]
    """(type, status, reason) of TrainJobs."""
    unclear: tuple[str, ...]
    """Places whose reason cannot be read from the code."""


def collect() -> Found:
    waiting: dict[str, set[str]] = {}
    conditions: set[tuple[str, str, str]] = set()
    unclear: list[str] = []
    constants = _list_constants()
    for path in sorted(CODE.rglob("*.py")):
        inside = path.relative_to(CODE)
        for function, call in _list_calls(ast.parse(path.read_text())):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            texts = [_read(argument, constants) for argument in call.args]
            if name == "Waiting" and f"{inside}:{function}" not in COPIES:
                if texts and texts[0]:
                    waiting.setdefault(texts[0], set()).add(SAYERS.get(inside.parts[0], "?"))
                else:
                    unclear.append(f"{inside}:{call.lineno}")
            conditions.update(_read_condition(inside.parts[0], name, texts))
    return Found(
        {reason: sorted(kinds) for reason, kinds in sorted(waiting.items())}, frozenset(conditions), tuple(unclear)
    )


def _read_condition(folder: str, name: str, texts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """TrainJobs have conditions of their own, and take over how their JobSet ended."""
    match folder, name, texts:
        case "trainjob", "build_condition", [kind, status, reason, *_] if reason:
            yield kind, status, reason
        case "trainjob", "fail", [_, reason, *_]:
            yield "Failed", "True", reason
        case "jobset", "set", ["Completed", "True", reason, *_]:
            yield "Complete", "True", reason
        case "jobset", "set", ["Failed", "True", reason, *_] if reason:
            yield "Failed", "True", reason
        case "jobset", "_fail", [_, reason, *_]:
            yield "Failed", "True", reason


def _list_constants() -> dict[str, str]:
    """NAME = "text" at the top of modules; a name with two meanings has none."""
    found: dict[str, str] = {}
    for path in CODE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                for target in node.targets:
                    for name in (getattr(target, "id", ""), f"{path.stem}.{getattr(target, 'id', '')}"):
                        found[name] = node.value.value if found.get(name, node.value.value) == node.value.value else ""
    return found


def _list_calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(name of the function around it, call)."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    yield function.name, node


def _read(node: ast.expr, constants: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return constants.get(node.id, "")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return constants.get(f"{node.value.id}.{node.attr}", "")
    return ""


_EVENTS = {
    "TrainJob": "`TrainJobResourcesCreationFailed` on the TrainJob",
    "JobSet": "{} on the JobSet and the TrainJob",
    "Job": "{} on the Job and the TrainJob",
    "Pod": "`FailedScheduling` on the Pod, {} on the TrainJob",
}
_OWN_EVENT = ("JobSetMissing", "JobSetTerminating")

HEAD = """# The states of a TrainJob

Generated by `tools/states_page.py` from the controllers' code and checked by a test; do not edit by hand.

A TrainJob's conditions are upstream's, and there are only three. **Without a true condition it runs or waits**: clients
read "running" from that. Why a job does not run stands in a field of its own, `status.waiting`, with `reason`,
`message`, `since`, and `until` where the end is known. It goes as soon as the reason is gone. To see it:
`kubectl get trainjob NAME -o jsonpath='{.status.waiting}'`, or with the events `kubectl describe trainjob NAME`.

| state | how to tell |
|---|---|
| being made, or running | no condition is true, no `status.waiting`; `status.jobsStatus` counts what runs |
| waiting | no condition is true, `status.waiting` says why |
| suspended | condition Suspended is True |
| ended well | condition Complete is True; final |
| failed | condition Failed is True; final |

Final means final: once Complete or Failed is stored nothing of the job is started again, whatever happens to its
objects.
"""


def render() -> str:
    found = collect()
    rows = [HEAD, "## Conditions\n", "| type | status | reason | meaning | what to do |", "|---|---|---|---|---|"]
    for key in sorted(found.conditions):
        words = CONDITIONS[key]
        rows.append(f"| {key[0]} | {key[1]} | `{key[2]}` | {words.meaning} | {words.advice} |")
    rows += [
        "\nComplete and Failed carry the reason and message with which the JobSet ended. Events with the same reasons",
        "stand on the JobSet; a deadline has one on the TrainJob.\n",
        "## Reasons in `status.waiting`\n",
        "| reason | said about | meaning | what to do | event (Warning) |",
        "|---|---|---|---|---|",
    ]
    for reason, kinds in found.waiting.items():
        words = WAITING[reason]
        events = "; ".join(_name_event(reason, kind) for kind in kinds)
        rows.append(f"| `{reason}` | {', '.join(kinds)} | {words.meaning} | {words.advice} | {events} |")
    rows.append(
        "\nWhat a JobSet, Job or Pod waits for is shown on the TrainJob too, because that is where people look. On a"
        "\ncluster the JobSet, Job and Pod are not ours: there only what is said about the TrainJob appears.\n"
        "\nOne event is no reason to wait: `NotAsAsked` on the TrainJob says what is done otherwise than asked."
    )
    return "\n".join(rows) + "\n"


def _name_event(reason: str, kind: str) -> str:
    if reason in _OWN_EVENT:
        return f"`{reason}` on the TrainJob"
    return _EVENTS[kind].format(f"`{reason}`")


def main() -> int:
    PAGE.write_text(render())
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
