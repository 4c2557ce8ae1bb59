"""Objects as YAML that people read and change."""

from __future__ import annotations

import pytest

from trainmaster.jobs.submission.documents import parse_bounded
from trainmaster.jobs.submission.rendering import render_objects

pytestmark = pytest.mark.unit

CODE = "import os\n\nprint('한', os.environ)  # trailing  \n"


def test_what_is_rendered_is_read_again() -> None:
    shared = {"a": "1", "b": None, "yes": True, "on": "off", "when": "2026-01-31", "n": 0.5, "e": ""}
    objects = [{"kind": "A", "spec": shared, "again": shared}, {"kind": "B", "data": {"train.py": CODE, "x": "a\tb\n"}}]
    text = render_objects(objects)
    assert [document.obj for document in parse_bounded("f", text)] == objects
    assert not [problem for document in parse_bounded("f", text) for problem in document.problems]


def test_code_stands_in_lines() -> None:
    text = render_objects([{"kind": "ConfigMap", "data": {"train.py": "import os\nprint(1)\n"}}])
    assert "  train.py: |\n    import os\n    print(1)\n" in text
    assert text.startswith("kind:")
