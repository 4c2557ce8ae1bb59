"""`make bench`: runs every program in bench/ and fails when one of them misses what it promises.

A bench is a file bench/NAME.py that prints its figures and exits non-zero when a promise is missed; files whose name
begins with "_" are shared code. Figures worth keeping go to docs/performance.md, with the machine they are from.

    python tools/benchrun.py             all
    python tools/benchrun.py startup     these
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def list_benches() -> list[str]:
    return sorted(path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_"))


def main(argv: Sequence[str]) -> int:
    unknown = [name for name in argv if name not in list_benches()]
    if unknown:
        print(f"no bench {unknown[0]!r}; there are: {', '.join(list_benches())}", file=sys.stderr)
        return 2
    missed = []
    for name in argv or list_benches():
        print(f"\n== {name}", flush=True)
        began = time.monotonic()
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=ROOT).returncode:
            missed.append(name)
        print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"\nmissed: {', '.join(missed)}" if missed else "\nall promises kept")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
