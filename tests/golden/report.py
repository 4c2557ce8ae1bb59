"""Shows where our outcome is not upstream's, for whoever works on a controller.

python -m tests.golden.report            how many differences each case has, and which pending entries can go
python -m tests.golden.report 2.1/c1 m1  the differences of the cases whose names contain one of these
"""

from __future__ import annotations

import logging
import sys

from tests.golden import cases, pending
from tests.golden.test_answers import NAMES, find_problem
from tests.golden.test_cases import list_problems
from tests.golden.test_not_the_model import LINES, works


def show_cases(words: list[str]) -> None:
    for name in (name for name in cases.list_cases() if any(word in name for word in words)):
        problems = list_problems(name)
        print(f"== {name}: {len(problems)} differences", *problems, sep="\n")
    for name in (name for name in NAMES if any(word in name for word in words)):
        print(f"== answer {name}: {find_problem(name) or 'as upstream'}")


def show_all() -> None:
    for name in cases.list_cases():
        mark = "pending" if name in pending.CASES else ""
        print(f"{name:70} {len(list_problems(name)):4} {mark}")
    done = [name for name in sorted(pending.CASES) if not list_problems(name)]
    done += [name for name in sorted(pending.ANSWERS) if not find_problem(name)]
    done += [name for name in sorted(pending.LINES) if works(LINES[name])]
    print("", "matches now, remove from tests/golden/pending.py:", *(done or ["nothing"]), sep="\n")


if __name__ == "__main__":
    logging.disable()
    show_cases(sys.argv[1:]) if sys.argv[1:] else show_all()
