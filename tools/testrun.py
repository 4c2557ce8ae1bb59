"""Runs all tests tier by tier and says at the end what ran, what did not and why.

Tiers are pytest markers (pyproject.toml). A test with several markers runs once, in the tier that stands first in
TIERS. The first tier is `static`: format, lint, types and imports. The exit status is 1 when anything failed, and under
CI=true also when anything was skipped, because a skip there means that a promise was not checked.

Tiers run in four lanes side by side: on two cores some compute while others wait for their processes. Each lane takes
the next tier when it is free. What a tier printed appears when it is over.

Everything runs in the environment that `tools/scrub.py` lets through, so that it passes or fails the same everywhere.

    python tools/testrun.py              everything
    python tools/testrun.py --lanes 1    one tier after the other, with its output as it comes
    python tools/testrun.py --quick      static and unit: what `make check` runs
    python tools/testrun.py wire kube    these tiers
    python tools/testrun.py -- -x -k ttl what stands behind -- goes to pytest
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
sys.path.insert(0, str(ROOT))

from tools.scrub import heed_signals, scrub  # noqa: E402

STATIC = "static"
RUN_ORDER = (
    "unit",
    "contract",
    "flow",
    "golden",
    "sim",
    "bad_input",
    "attacks",
    "node",
    "crash",
    "e2e",
    "browser",
    "wire",
    "kube",
    "cluster",
)
PRECEDENCE = (
    "cluster",
    "kube",
    "crash",
    "browser",
    "e2e",
    "wire",
    "attacks",
    "bad_input",
    "node",
    "golden",
    "sim",
    "flow",
    "contract",
    "unit",
)
"""The most demanding marker decides about the tier."""
QUICK = (STATIC, "unit")
LANE_ORDER = (
    *(STATIC, "kube", "sim", "attacks", "wire", "node", "e2e"),
    *("flow", "browser", "cluster", "unit", "bad_input", "crash", "contract", "golden"),
)
"""The order in which lanes take tiers: mostly the longest first, so that all lanes end at about the same time."""
LANES = 4
REAL = ("attacks", "node", "crash", "e2e", "browser", "wire", "kube", "cluster")
"""Tiers with real processes and servers, whose failures get a second try."""
MOST_RETRIED = 5
"""With more failures than this, nothing is retried."""

SKIPPED = 77
"""Exit status of a static step whose tool is not there; what it prints says why."""
STATIC_STEPS = (
    ("format", ["-m", "ruff", "format", "--check", "--quiet", "."]),
    ("lint", ["-m", "ruff", "check", "--quiet", "."]),
    ("types", ["-m", "mypy"]),
    (
        "imports",
        ["-c", "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"],
    ),
    ("page types", ["tools/page_types.py"]),
)


@dataclass
class Outcome:
    tier: str
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skips: list[tuple[str, str]] = field(default_factory=list)
    """(test, why)"""
    broken: str = ""
    """Why the tier itself did not run properly."""
    unsteady: int = 0
    """Tests that passed only at the second try."""

    @property
    def ok(self) -> bool:
        return not self.failed and not self.broken


def marker_expression(tier: str) -> str:
    stronger = PRECEDENCE[: PRECEDENCE.index(tier)]
    return " and not ".join([tier, *stronger])


def list_test_files(tier: str) -> list[str]:
    """The test files that may hold tests of a tier. Collecting all others would take longer than most tests do."""
    return [str(file.relative_to(ROOT)) for file in sorted(TESTS.rglob("test_*.py")) if tier in read_markers(file)]


def read_markers(file: Path) -> set[str]:
    """The tiers whose markers a test file names, itself or in a conftest.py above it."""
    folders = (folder for folder in file.parents if folder.is_relative_to(TESTS))
    found: set[str] = set()
    for source in (file, *(folder / "conftest.py" for folder in folders)):
        if source.exists():
            found.update(re.findall(r"pytest\.mark\.(\w+)", source.read_text()))
    return found.intersection(RUN_ORDER)


def run_scrubbed(
    command: Sequence[str], *, stdout: TextIO | int, stderr: TextIO | int
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=scrub(os.environ), stdout=stdout, stderr=stderr, text=True, check=False
    )


def run_static(out: TextIO) -> Outcome:
    outcome = Outcome(STATIC)
    began = time.monotonic()
    for name, arguments in STATIC_STEPS:
        step = time.monotonic()
        done = run_scrubbed([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        word = "ok"
        if done.returncode == SKIPPED:
            word = "skipped"
            outcome.skips.append((name, done.stdout.strip()))
        elif done.returncode:
            word = "FAILED"
            print(done.stdout, file=out)
            outcome.failed += 1
        else:
            outcome.passed += 1
        print(f"{name}: {word} ({time.monotonic() - step:.1f} s)", file=out, flush=True)
    outcome.seconds = time.monotonic() - began
    return outcome


def run_tier(tier: str, extra: Sequence[str], out: TextIO) -> Outcome:
    outcome = Outcome(tier)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainmaster-tests-") as folder:
        report = Path(folder) / "report.xml"
        status = run_scrubbed(pytest_command(tier, report, extra), stdout=out, stderr=out).returncode
        outcome.seconds = time.monotonic() - began
        if report.exists():
            read_report(report, outcome)
    if status not in (0, 1, 5) or (status == 1 and not outcome.failed):
        outcome.broken = f"pytest ended with status {status}"
    elif tier in REAL and 0 < outcome.failed <= MOST_RETRIED:
        retry(outcome, extra, out)
    return outcome


def pytest_command(tier: str, report: Path, options: Sequence[str]) -> list[str]:
    # A cache of its own: the lanes write at the same time, and the second try asks what failed in this tier.
    chosen = ["-m", marker_expression(tier), "-o", f"cache_dir=.pytest_cache/{tier}", f"--junitxml={report}"]
    is_told_where = any((ROOT / option.partition("::")[0]).exists() for option in options)
    return [sys.executable, "-m", "pytest", "-q", *chosen, *options, *([] if is_told_where else list_test_files(tier))]


def retry(outcome: Outcome, extra: Sequence[str], out: TextIO) -> None:
    """Retries failed tests once, because real processes sometimes fail on a busy machine, and lists those that pass."""
    print(f"\n== {outcome.tier}: {outcome.failed} failed, each gets a second try", file=out, flush=True)
    second = Outcome(outcome.tier)
    with tempfile.TemporaryDirectory(prefix="trainmaster-tests-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-rA", "--tb=short", "--last-failed", "--last-failed-no-failures=none", *extra]
        began = time.monotonic()
        run_scrubbed(pytest_command(outcome.tier, report, options), stdout=out, stderr=out)
        outcome.seconds += time.monotonic() - began
        if report.exists():
            read_report(report, second)
    if second.passed + second.failed == outcome.failed:
        outcome.unsteady = second.passed
        outcome.passed += second.passed
        outcome.failed = second.failed


def read_report(report: Path, outcome: Outcome) -> None:
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        elif skipped is not None:
            outcome.skips.append((name, skipped.get("message", "")))
        else:
            outcome.passed += 1


def run_one(tier: str, extra: Sequence[str], out: TextIO) -> Outcome:
    return run_static(out) if tier == STATIC else run_tier(tier, extra, out)


def run_in_turn(tiers: Sequence[str], extra: Sequence[str]) -> list[Outcome]:
    outcomes = []
    for tier in tiers:
        print(f"\n== {tier}", flush=True)
        outcomes.append(run_one(tier, extra, sys.stdout))
        print(f"== {tier}: {outcomes[-1].seconds:.1f} s", flush=True)
    return outcomes


def run_side_by_side(tiers: Sequence[str], extra: Sequence[str], lanes: int) -> list[Outcome]:
    """A thread per lane. A tier's output comes in one piece, when it is over; begins and ends are said at once."""
    screen = threading.Lock()

    def run_quietly(tier: str) -> Outcome:
        with screen:
            print(f"== {tier} begins", flush=True)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out:
            outcome = run_one(tier, extra, out)
            out.seek(0)
            with screen:
                print(f"\n== {tier}\n{out.read()}== {tier}: {outcome.seconds:.1f} s", flush=True)
        return outcome

    with ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(run_quietly, sorted(tiers, key=LANE_ORDER.index)))


def print_summary(outcomes: Sequence[Outcome], seconds: float, *, strict: bool) -> bool:
    """`seconds`: by the clock; tiers that run side by side take more together."""
    print(f"\n{'tier':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for outcome in outcomes:
        if outcome.unsteady:
            print(f"unsteady: {outcome.unsteady} tests of {outcome.tier} passed only at the second try")
        row = f"{outcome.tier:<12}{outcome.passed:>8}{outcome.failed:>8}{len(outcome.skips):>9}{outcome.seconds:>9.1f}"
        print(f"{row}  {outcome.broken}".rstrip())
    reasons: dict[str, int] = {}
    for outcome in outcomes:
        for _, why in outcome.skips:
            reasons[why] = reasons.get(why, 0) + 1
    for why, count in sorted(reasons.items()):
        print(f"skipped: {count} tests: {why}")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    skipped = sum(len(o.skips) for o in outcomes)
    good = all(outcome.ok for outcome in outcomes) and not (strict and skipped)
    if strict and skipped:
        print("CI=true: a skipped test counts as a failure, because what it proves was not checked")
    verdict = "ALL GOOD" if good else "NOT GOOD"
    print(f"{verdict}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s", flush=True)
    return good


def main() -> int:
    heed_signals()
    parser = argparse.ArgumentParser(description="Run the tests tier by tier.")
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of: {', '.join((STATIC, *RUN_ORDER))}")
    parser.add_argument("--quick", action="store_true", help="only " + " and ".join(QUICK))
    parser.add_argument(
        "--lanes", type=int, choices=range(1, LANES + 1), default=LANES, help="how many tiers run side by side"
    )
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    options, extra = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    unknown = [tier for tier in options.tiers if tier not in (STATIC, *RUN_ORDER)]
    if unknown:
        parser.error(f"no tier {unknown[0]!r}; there are: {', '.join((STATIC, *RUN_ORDER))}")
    tiers = QUICK if options.quick else tuple(options.tiers) or (STATIC, *RUN_ORDER)
    began = time.monotonic()
    side_by_side = options.lanes > 1 and len(tiers) > 1 and not options.quick
    outcomes = run_side_by_side(tiers, extra, options.lanes) if side_by_side else run_in_turn(tiers, extra)
    seconds = time.monotonic() - began
    return 0 if print_summary(outcomes, seconds, strict=os.environ.get("CI") == "true") else 1


if __name__ == "__main__":
    sys.exit(main())
