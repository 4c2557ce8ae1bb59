"""The command lines in docs/kubectl.md print what the page says, in the order of the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kubectl import Kubectl
from tests.wire.scenario import matches

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "kubectl.md"


def read_examples() -> list[tuple[str, str]]:
    """(command line, expected text) of every `$ kubectl` line in a console block."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for example in re.split(r"^\$ kubectl ", block, flags=re.MULTILINE)[1:]:
            line, _, want = example.partition("\n")
            found.append((line, want))
    return found


def test_the_page_tells_the_truth(kubectl: Kubectl) -> None:
    examples = read_examples()
    assert len(examples) > 10
    kubectl = replace(kubectl, cwd=ROOT)
    for line, want in examples:
        # The page says `default` where a reader has that and the test has a namespace of its own.
        line = re.sub(r"\bdefault:", f"{kubectl.namespace}:", line)
        want = want.replace("from default namespace", f"from {kubectl.namespace} namespace")
        answer = kubectl.run(line)
        assert matches(want, answer.out + answer.err), f"$ kubectl {line}\n{answer.out}{answer.err}"
