"""Packing 2,000 files (100 MB) as the code of a job, against `cp -r` and `tar` of the same files.

Counted is one call of `pack`, with ignore files and git, in a process that has it imported; the page cache is warm for
all. First: nothing is known of the directory. Again: nothing has changed. One file: a file of it has. CPU is that of
this process (a pack also waits for git, which runs beside it); the copies are timed as whole commands, without `.git`.
Each round does all of it. `cp -r` neither hashes nor looks at git.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench._report import Report
from trainmaster.bundles.packing import Bundle, pack

FILES, SIZE = 2000, 50_000
IGNORED = "*.pyc\n*.o\n/build/\n/data/*\n!/data/small\n*.log\n.env\ndist/\n**/tmp/*.bin\n"


def make_project(root: Path) -> None:
    numbers = random.Random(1)
    for number in range(FILES):
        path = root / f"part{number % 40}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbers.randbytes(SIZE))
    (root / ".gitignore").write_text(IGNORED)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=root, check=True)


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """(milliseconds, milliseconds of CPU of this process)."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000


def run_command(*argv: str) -> Callable[[], object]:
    return lambda: subprocess.run(argv, check=True)


def measure_once(project: Path, place: Path, number: int) -> dict[str, tuple[float, float]]:
    store = place / f"bundles{number}"
    found: dict[str, tuple[float, float]] = {}
    bundles: list[Bundle] = []
    found["pack, first"] = measure(lambda: bundles.append(pack(project, store)))
    found["pack, again"] = measure(lambda: bundles.append(pack(project, store)))
    (project / "part7" / "module7.py").write_text(f"x = {number}\n")
    found["pack, one file"] = measure(lambda: bundles.append(pack(project, store)))
    first, again, changed = bundles
    if (first.digest, again.reused) != (again.digest, True) or changed.digest == first.digest:
        raise RuntimeError("the packs are not what they should be")
    # Nothing is removed before the end: for a while after that ext4 makes new files many times slower.
    copy, parts = place / f"copy{number}", sorted(str(path) for path in project.glob("part*"))
    copy.mkdir()
    found["cp -r"] = measure(run_command("cp", "-r", *parts, str(copy)))
    found["tar"] = measure(run_command("tar", "--exclude=.git", "-C", str(project), "-cf", f"{copy}.tar", "."))
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as folder:
        project, place = Path(folder, "project"), Path(folder, "place")
        place.mkdir()
        make_project(project)
        # Files that were written this very moment are not trusted yet.
        time.sleep(0.1)
        measure_once(project, place, 0)
        runs = [measure_once(project, place, number) for number in range(1, options.runs + 1)]
    print(f"{FILES} files, {FILES * SIZE / 1e6:.0f} MB, median of {len(runs)}; load {os.getloadavg()[0]:.1f}")
    medians = {}
    for name in runs[0]:
        wall, cpu = (statistics.median(run[name][part] for run in runs) for part in (0, 1))
        medians[name] = wall
        shown = f", {cpu:.0f} ms CPU" if name.startswith("pack") else ""
        print(f"  {name:<16}{wall:8.0f} ms{shown}")
    first, copy = medians["pack, first"], medians["cp -r"]
    report = Report()
    anchor = f"`cp -r` {copy:.0f} ms, `tar` {medians['tar']:.0f} ms"
    report.check("packing 2,000 files of code (100 MB)", first, at_most=1000, unit=" ms", anchor=anchor)
    report.check("packing 2,000 files of code, compared with `cp -r`", first / copy, at_most=4, unit="x", anchor=anchor)
    changed = f"{medians['pack, one file']:.0f} ms with one file changed"
    report.check("packing the same code again", medians["pack, again"], at_most=100, unit=" ms", anchor=changed)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
