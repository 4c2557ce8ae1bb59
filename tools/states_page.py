"""Writes docs/states.md: every state of a TrainJob, what it means, and what to do.

The reasons are read from the code of the controllers (`collect`), their descriptions are in
`trainmaster/api/state_texts.py`. A unit test fails when a controller can write a reason without a description, when a
description is unused, or when the page is not up to date.

    python tools/states_page.py
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.state_texts import CONDITIONS, POD_TROUBLES, WAITING

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "trainmaster" / "controllers"
TRAINING = ROOT / "trainmaster" / "api" / "training" / "failing"
PAGE = ROOT / "docs" / "states.md"

SAYERS = {
    "trainjob": "TrainJob",
    "jobset": "JobSet",
    "job": "Job",
    "scheduler": "Pod",
    "frameworks": "TrainJob",
    "v1jobs": "v1 job",
}
"""Folder of a controller -> the object that its `Waiting` is about."""
COPIES = {
    *("jobset/reconciler.py:_find_reason", "v1jobs/passes.py:_find_reason"),
    *("trainjob/pod_reasons.py:find_reason", "v1jobs/cluster.py:find_trouble"),
}
"""Functions that pass on the reason of a Job or a Pod instead of setting their own."""


@dataclass(frozen=True)
class Found:
    """What the controllers can write."""

    waiting: Mapping[str, Sequence[str]]
    """Reason -> the kinds that say it."""
    conditions: frozenset[tuple[str, str, str]]
    """(type, status, reason) of TrainJobs."""
    unclear: tuple[str, ...]
    """Places whose reason cannot be determined from the code."""


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
    for path in (*CODE.rglob("*.py"), *TRAINING.glob("courses.py")):
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
    "v1 job": "{} on the job",
}
_V1_EVENTS = {
    "FailedCreate": "`FailedCreatePod` or `FailedCreateService` on the job",
    "FailedValidation": "`PyTorchJobFailedValidation` (with the kind) on the job",
    "LeftoverPod": "none on the job",
}
_OWN_EVENT = ("JobSetMissing", "JobSetTerminating")

HEAD = """# The states of a TrainJob

Generated by `tools/states_page.py` from the controllers' code and checked by a test; do not edit by hand.

TrainJobs have upstream's three conditions and no others. **If no condition is true, the job runs or waits**; clients
take this to mean "running". The reason why a job does not run is in a separate field, `status.waiting`, with `reason`,
`message`, `since`, and `until` if the end is known. The field is removed as soon as the reason no longer applies. To
see it, run `kubectl get trainjob NAME -o jsonpath='{.status.waiting}'` or `kubectl describe trainjob NAME`.

| state | how to tell |
|---|---|
| starting or running | no condition is true, no `status.waiting`; `status.jobsStatus` has the counts |
| stalled | it runs, and `status.stalled` says since when it stands still ([stalls](stalls.md)); no condition is added |
| waiting | no condition is true, `status.waiting` has the reason |
| suspended | condition Suspended is True |
| completed | condition Complete is True; final |
| failed | condition Failed is True; final |

Once Complete or Failed is stored, no part of the job is started again, whatever happens to its objects.
"""


def render() -> str:
    found = collect()
    rows = [HEAD, "## Conditions\n", "| type | status | reason | meaning | what to do |", "|---|---|---|---|---|"]
    for key in sorted(found.conditions):
        words = CONDITIONS[key]
        rows.append(f"| {key[0]} | {key[1]} | `{key[2]}` | {words.meaning} | {words.advice} |")
    rows += [
        "\nComplete and Failed have the reason and message of the JobSet. The JobSet has events with the same reasons;",
        "for a deadline, the TrainJob has one.\n",
        "## Reasons in `status.waiting`\n",
        "| reason | object | meaning | what to do | event (Warning) |",
        "|---|---|---|---|---|",
    ]
    for reason, kinds in found.waiting.items():
        words = WAITING[reason]
        events = "; ".join(_name_event(reason, kind) for kind in kinds)
        rows.append(f"| `{reason}` | {', '.join(kinds)} | {words.meaning} | {words.advice} | {events} |")
    rows.append(
        "\nThe reasons of JobSets, Jobs and Pods are also shown on the TrainJob. On a cluster, other controllers handle"
        "\nJobSets, Jobs and Pods; the reasons of the TrainJob appear, and those of the next table.\n"
        "\n## Reasons from Pods on a cluster\n"
        "\nRead from conditions of Pods, states of their containers, and events of Jobs. The message names the Pod."
        "\nKubelets and container runtimes have other reasons, too, which appear unchanged. A reason that lasts two"
        "\nseconds is reported, with an event on the TrainJob.\n"
        "\n| reason | meaning | what to do |\n|---|---|---|"
    )
    rows += [f"| `{reason}` | {words.meaning} | {words.advice} |" for reason, words in sorted(POD_TROUBLES.items())]
    rows.append(
        "\nThe event `NotAsAsked` on the TrainJob is not a reason for waiting: it says what is done differently than"
        "\nrequested."
    )
    return "\n".join(rows) + "\n"


def _name_event(reason: str, kind: str) -> str:
    if reason in _OWN_EVENT:
        return f"`{reason}` on the TrainJob"
    if (reason, kind) == ("LeftoverPod", "TrainJob"):
        return "`LeftoverPod` on the TrainJob (Normal)"
    if kind == "v1 job" and reason in _V1_EVENTS:
        return _V1_EVENTS[reason]
    return _EVENTS[kind].format(f"`{reason}`")


def main() -> int:
    PAGE.write_text(render())
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
