"""What must not stand in any file: paths of one machine, package hosts, unfinished work, pages nobody has."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import read_texts

pytestmark = pytest.mark.unit

# The home of upstream's MPI images is part of their interface.
# Written in pieces, so that this file does not find itself.
_MACHINE = re.compile(
    "|".join(("/" + "home/(?!mpiuser)[a-z]", "/" + "Users/[a-z]", "/" + r"root/(?!\.)", "/" + "work/(main|shared)"))
)
_HOSTS = re.compile(
    "|".join(("pypi" + r"\.org", "pythonhosted" + r"\.org", "proxy" + r"\.golang\.org", "deb" + r"\.debian\.org"))
)
_UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
# Sections of pages that are not in this repository: say what they say, or record the decision in docs/decisions.
_ABSENT = re.compile(
    r"\((?:spec )?(?:des" + "ign|wi" + r"re|user-demand|pod-runtime|jobset-and-job|trainjob-v2) [A-Z]?\d"
)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(_MACHINE, id="no path of somebody's machine"),
        pytest.param(_HOSTS, id="no package host"),
        pytest.param(_UNFINISHED, id="no unfinished work"),
        pytest.param(_ABSENT, id="no reference to an absent page"),
    ],
)
def test_no_file_contains_it(pattern: re.Pattern[str]) -> None:
    found = []
    for name, text in read_texts():
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []
