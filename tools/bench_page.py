"""Builds docs/performance.md from the results of one run of all benches. Pure; `tools/benchrun.py` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench._report import Row

FINISHED, STOPPED = 0, 124
"""Exit statuses: nothing missed; stopped by `benchrun` because it took too long (as `timeout` has it)."""
MISSED = 1
"""Exit status of a bench that reported a missed promise."""
MOST_LOAD = 0.5
"""Above it the machine is not idle."""


@dataclass(frozen=True)
class Conditions:
    """Of the whole run."""

    commit: str
    is_changed: bool
    """There were uncommitted changes."""
    date: str
    machine: str
    load: float
    """One-minute average before the first bench."""


@dataclass(frozen=True)
class Outcome:
    """What one bench did."""

    rows: tuple[Row, ...]
    exit_code: int
    seconds: float


def list_rows(name: str, outcome: Outcome) -> list[Row]:
    """The rows of a bench; one more if it did not run to its end."""
    missed = any(not row.is_kept for row in outcome.rows)
    if outcome.exit_code == (MISSED if missed else FINISHED) and outcome.rows:
        return list(outcome.rows)
    if outcome.exit_code == STOPPED:
        seen = f"stopped after {outcome.seconds:.0f} s"
    elif outcome.exit_code in (FINISHED, MISSED) and not outcome.rows:
        seen = f"ended with {outcome.exit_code} and reported nothing"
    else:
        seen = f"ended with {outcome.exit_code}"
    return [*outcome.rows, Row(f"`bench/{name}.py`", "runs to its end", seen, "", False)]


def build_page(conditions: Conditions, outcomes: Mapping[str, Outcome]) -> str:
    found = {name: list_rows(name, outcome) for name, outcome in outcomes.items()}
    kept = [row.is_kept for rows in found.values() for row in rows if row.promise]
    minutes = sum(outcome.seconds for outcome in outcomes.values()) / 60
    head = [
        f"Written by `make bench` from one run: {conditions.date}, commit `{conditions.commit[:12]}`"
        f"{', with uncommitted changes' if conditions.is_changed else ''}, {minutes:.0f} minutes.",
        f"Machine: {conditions.machine}; load before the run {conditions.load:.1f}.",
        f"**{sum(kept)} of {len(kept)} promises kept.**",
    ]
    if conditions.load > MOST_LOAD:
        head.append("**The machine was not idle: compare ratios, not times.**")
    table = [_build_line(name, row) for name, rows in found.items() for row in rows]
    return _PAGE.format(head="\n".join(head), table="\n".join(table))


def build_summary(conditions: Conditions, outcomes: Mapping[str, Outcome]) -> str:
    """For the terminal: what was missed."""
    rows = [row for name, outcome in outcomes.items() for row in list_rows(name, outcome) if row.promise]
    missed = [row for row in rows if not row.is_kept]
    lines = [f"{len(rows) - len(missed)} of {len(rows)} promises kept, at load {conditions.load:.1f}"]
    lines += [f"MISSED {row.what}: {row.seen} (promised: {row.promise})" for row in missed]
    return "\n".join(lines)


def _build_line(name: str, row: Row) -> str:
    verdict = "**missed**" if not row.is_kept else "kept" if row.promise else ""
    cells = (row.what, row.promise or "none", row.seen, verdict, row.anchor, f"`{name}`")
    return f"| {' | '.join(map(_escape, cells))} |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


_PAGE = """# Performance

{head}

| what | promise | seen | | beside it, in the same run | measured by |
|---|---|---|---|---|---|
{table}

GPUs are measured by `tools/gpu_check.py`, on a machine that has one ([GPUs](gpus.md)). Where the time goes, and what
was tried and not kept: [decision 19](decisions/0019-where-the-time-goes.md).

## How it is measured

The last column names a program in `bench/`; its first lines say exactly what it counts. Trainmaster and what it is
compared with are measured in the same run, in alternating rounds. p50 is the median, and p99 the time that 99 of 100
stay below. `plain` and `full` are levels of [isolation](isolation.md). With scripted Pods everything is real except the
processes: a Pod is Running once its binding is on disk, and Succeeded right after.

The dashboard is looked at in a real Chromium, beside its server on the same cores. Its figures are the 75th percentile
of ten runs, with the load average beside each.

The server is `trainmaster up` as users run it: TLS 1.3, a token and RBAC on every
request, audit log, validation, managedFields, controllers and node. A POST is answered after its commit is on disk
(`synchronous = FULL`). Kubernetes is etcd and kube-apiserver 1.36 with TLS, tokens and RBAC; where controllers are
measured also controller manager, scheduler and kwok, and the JobSet and Trainer managers or training-operator 1.8. A
virtual machine shares its hardware with others: ratios can be compared between runs, times only roughly.

## Measuring a change

`make bench ARGS="startup cli"` runs some of the programs and prints what they find, without writing this page. To
compare two versions, use CPU time rather than rates, in alternating rounds:

```
python tools/compare.py ../before
```

runs lifecycles, a job of 2,000 Pods, GET, POST, `run`, `list` and the server's imports in two checkouts and prints
the median ratio of the rounds with its quartiles. On a virtual machine expect quartiles of 5 to 15 %; the number of
function calls (`cProfile`) shows smaller differences. `py-spy record -f raw` finds the lines.
"""
