"""`make bench`: runs every program in bench/ and writes docs/performance.md from that one run.

    python tools/benchrun.py                 all of BENCHES; fails if a promise is missed
    python tools/benchrun.py operator        on a real control plane; half an hour
    python tools/benchrun.py startup cli     these; the page is not written
    python tools/benchrun.py --resume        the rest of a run that was interrupted, on the same commit
    python tools/benchrun.py --anyway        although the machine is busy or there are uncommitted changes

A bench is a program bench/NAME.py that reports its promises through `bench/_report.py`; files whose name begins with
"_" are shared code. One that fails or hangs gets a row that says so, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._report import ROWS_VARIABLE, Row  # noqa: E402
from tools.bench_page import (  # noqa: E402
    MOST_LOAD,
    STOPPED,
    Conditions,
    Outcome,
    build_page,
    build_summary,
    list_rows,
)

BENCHES = (
    *("first_step", "warm_start", "run", "cli", "code"),
    *("pod_start", "real_jobs", "gang_restart", "lifecycles", "v1", "large_job", "deletions", "retention"),
    *("greedy_tenant", "startup", "adoption", "history", "pauses", "stalls", "evidence"),
    *("http_vs_kube", "store_vs_etcd", "watch_fanout", "http_client", "rest", "rest_streams", "logs", "dashboard"),
)
"""In the order of the page: starting a job, many jobs, the server over time, its parts."""
ON_CLUSTERS = ("operator", "operator_growth")
"""Only run by name, because each takes longer than all others together; docs/scale.md has their figures."""
PAGE = ROOT / "docs" / "performance.md"
STATE = ROOT / "build" / "bench.json"
"""The results so far."""
LIMIT, LIMIT_ON_CLUSTERS = 300.0, 3600.0
"""Seconds that one bench may take."""
LONGER = {"dashboard": 600.0}
"""Those that look on for minutes."""
_QUIET_WAIT = 300.0
"""The load falls for minutes after the last work, of `make setup` for example: from 10 to 0.5 in 180 s."""
_STOP_SECONDS = 20.0


class Refused(Exception):
    """The run does not begin; the text says why."""


def run_bench(name: str) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-rows-") as folder:
        path = Path(folder) / "rows"
        os.sync()  # what the bench before left to be written is not this one's to wait for
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", f"bench.{name}"],
            cwd=ROOT,
            env={**os.environ, ROWS_VARIABLE: str(path)},
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_ON_CLUSTERS if name in ON_CLUSTERS else LONGER.get(name, LIMIT))
        except subprocess.TimeoutExpired:
            code = STOPPED
        finally:
            _stop(process)
        lines = path.read_text().splitlines() if path.exists() else []
        return Outcome(tuple(Row(**json.loads(line)) for line in lines), code, time.monotonic() - began)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """First so that it can stop what it started; then whatever is left of its process group, which would disturb the
    next one."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_conditions() -> Conditions:
    changed = _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    cores = f"{os.cpu_count()} cores of {_read_cpu()}"
    machine = f"{cores}, Python {platform.python_version()}, Linux {platform.release()}"
    return Conditions(
        commit=_git("rev-parse", "HEAD"),
        is_changed=bool(changed),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=machine,
        load=round(os.getloadavg()[0], 2),
    )


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _read_cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def wait_until_quiet(anyway: bool) -> None:
    deadline = time.monotonic() + (0.0 if anyway else _QUIET_WAIT)
    while os.getloadavg()[0] > MOST_LOAD and time.monotonic() < deadline:
        print(f"waiting for the load to fall to {MOST_LOAD}: {os.getloadavg()[0]:.2f}", flush=True)
        time.sleep(10)


def check_conditions(conditions: Conditions, *, anyway: bool) -> None:
    if anyway:
        return
    if conditions.load > MOST_LOAD:
        raise Refused(
            f"the machine is busy: its load is {conditions.load}, and figures mean something up to {MOST_LOAD}. "
            "Wait until it is idle; with --anyway the page says at which load it was."
        )
    if conditions.is_changed:
        raise Refused("there are uncommitted changes: commit them, or use --anyway and the page says so")


def read_state(path: Path, conditions: Conditions) -> tuple[Conditions, dict[str, Outcome]]:
    """An interrupted run, which began under the conditions that it is resumed under."""
    if not path.exists():
        raise Refused("there is no interrupted run to resume")
    state = json.loads(path.read_text())
    began = Conditions(**state["conditions"])
    if began.commit != conditions.commit:
        raise Refused(f"the interrupted run was of commit {began.commit[:12]}, and this is {conditions.commit[:12]}")
    if began.is_changed or conditions.is_changed:
        raise Refused("a run with uncommitted changes cannot be resumed, because they may have been other changes")
    outcomes = {
        name: Outcome(tuple(Row(**row) for row in found["rows"]), found["exit_code"], found["seconds"])
        for name, found in state["outcomes"].items()
    }
    return began, outcomes


def write_state(path: Path, conditions: Conditions, outcomes: Mapping[str, Outcome]) -> None:
    path.parent.mkdir(exist_ok=True)
    state = {"conditions": asdict(conditions), "outcomes": {name: asdict(found) for name, found in outcomes.items()}}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(state, indent=1))
    temporary.replace(path)


def run_all(names: Sequence[str], conditions: Conditions, outcomes: dict[str, Outcome], state: Path | None) -> None:
    """Adds to `outcomes`, and writes them to `state` after each bench."""
    for name in names:
        if name in outcomes:
            continue
        print(f"\n== {name}", flush=True)
        outcomes[name] = run_bench(name)
        for row in list_rows(name, outcomes[name])[len(outcomes[name].rows) :]:
            print(f"MISSED {row.what}: {row.seen}", flush=True)
        print(f"== {name}: {outcomes[name].seconds:.0f} s", flush=True)
        if state is not None:
            write_state(state, conditions, outcomes)


def run(options: argparse.Namespace) -> int:
    known = sorted((*BENCHES, *ON_CLUSTERS))
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise Refused(f"no bench {unknown[0]!r}; there are: {', '.join(known)}")
    outcomes: dict[str, Outcome] = {}
    if options.names:
        conditions = read_conditions()
        run_all(options.names, conditions, outcomes, None)
    else:
        wait_until_quiet(options.anyway)
        conditions = read_conditions()
        check_conditions(conditions, anyway=options.anyway)
        if options.resume:
            conditions, outcomes = read_state(STATE, conditions)
        run_all(BENCHES, conditions, outcomes, STATE)
        ordered = {name: outcomes[name] for name in BENCHES}
        PAGE.write_text(build_page(conditions, ordered))
        STATE.unlink()
    print(f"\n{build_summary(conditions, outcomes)}")
    return 0 if all(row.is_kept for name, found in outcomes.items() for row in list_rows(name, found)) else 1


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a bench; without any, all of them")
    parser.add_argument("--resume", action="store_true", help="continue a run that was interrupted")
    parser.add_argument("--anyway", action="store_true", help="on a busy machine, or with uncommitted changes")
    options = parser.parse_args(argv)
    if options.names and options.resume:
        parser.error("--resume continues a run of all benches")
    try:
        return run(options)
    except Refused as error:
        print(f"benchrun: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbenchrun: interrupted; --resume continues a run of all benches", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
