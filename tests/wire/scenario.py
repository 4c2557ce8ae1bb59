"""Wire tests as tables: a scenario is a list of kubectl command lines with what each must print.

Tables live in the test modules as `SCENARIOS`; `conftest.py` turns each into one test per kubectl version, in a
namespace of its own, and `play` runs it. Expected text is compared line by line with runs of blanks collapsed, so that
a table reads as on the screen. In it,

    <age>    is an age such as 5s or 2m10s          <any>   is any text, also none
    <word>   is any text without blanks             <uid>   is a uid
    ...      on a line of its own is any number of lines, also none

and `{ns}` is the scenario's namespace, in command lines, input and expectations alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tests.support.kubectl import Answer, Kubectl

Text = str | None | Mapping[int, str]
"""What is expected: a text, None for "not looked at", or texts by the first minor version that prints them."""

_TOKENS = {
    "<age>": r"(?:\d+[smhdy])+(?:\d+[smhd])?",
    "<any>": r".*?",
    "<word>": r"\S+",
    "<uid>": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "<int>": r"\d+",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TOKEN = re.compile(" ?<any>|" + "|".join(_TOKENS))


@dataclass(frozen=True)
class Step:
    line: str
    out: Text = ""
    err: Text = ""
    rc: int = 0
    stdin: str = ""
    editor: str = ""
    """Shell commands that `kubectl edit` runs as its editor; "$1" is the file."""
    since: int = 0
    """The first minor version that has the command or flag; older ones leave the step out."""


@dataclass(frozen=True)
class Scenario:
    title: str
    """The sentence that must be true."""
    steps: tuple[Step, ...]
    core: bool = False
    """Runs with every kubectl; the others run with the oldest, a middle and the newest."""
    kube: bool = False
    """Runs also on a real kube-apiserver in the ordinary test run."""
    since: int = 0

    @property
    def slug(self) -> str:
        return self.title.replace(" ", "_")


def run(
    line: str,
    out: Text = "",
    *,
    err: Text = "",
    rc: int = 0,
    stdin: str = "",
    editor: str = "",
    since: int = 0,
) -> Step:
    return Step(line, out, err, rc, stdin, editor, since)


def scenario(title: str, *steps: Step, core: bool = False, kube: bool = False, since: int = 0) -> Scenario:
    return Scenario(title, steps, core, kube, since)


def play(scenario: Scenario, kubectl: Kubectl) -> None:
    """Runs the steps in order; fails at the first that exits or prints otherwise."""
    for step in scenario.steps:
        if kubectl.minor < step.since:
            continue
        line, stdin = (text.replace("{ns}", kubectl.namespace) for text in (step.line, step.stdin))
        answer = kubectl.run(line, stdin=stdin, editor=step.editor)
        check(step, line, answer, kubectl)


def check(step: Step, line: str, answer: Answer, kubectl: Kubectl) -> None:
    __tracebackhide__ = True
    story = (
        f"$ kubectl {line}    # {kubectl.binary.name}, exit {answer.rc}\n{answer.out[:4000]}--- stderr\n{answer.err}---"
    )
    assert answer.rc == step.rc, f"exit code {answer.rc} instead of {step.rc}\n{story}"
    for name, want, got in (("stdout", step.out, answer.out), ("stderr", step.err, answer.err)):
        text = pick(want, kubectl.minor)
        if text is not None and not matches(text.replace("{ns}", kubectl.namespace), got):
            raise AssertionError(f"{name} is not\n{text}\n{story}")


def pick(want: Text, minor: int) -> str | None:
    if want is None or isinstance(want, str):
        return want
    return want[max(first for first in want if first <= minor)]


def matches(want: str, got: str) -> bool:
    """Whether the printed text is what the table says."""
    pattern = ""
    for line in _lines(want):
        pattern += r"(?:[^\n]*\n)*?" if line == "..." else _line_pattern(line) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(got))) is not None


def _lines(text: str) -> list[str]:
    lines = [re.sub(r"\s+", " ", _COLOUR.sub("", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _line_pattern(line: str) -> str:
    pattern, at = "", 0
    for token in _TOKEN.finditer(line):
        pattern += re.escape(line[at : token.start()]) + _TOKENS[token.group().strip()]
        at = token.end()
    return pattern + re.escape(line[at:])


Test = TypeVar("Test", bound=Callable[..., None])


def with_versions(which: str) -> Callable[[Test], Test]:
    """For tests that are not tables: run with `core` (all), `full` (oldest, middle, newest) or `newest` kubectl."""

    def mark(test: Test) -> Test:
        test.__dict__["wire_versions"] = which
        return test

    return mark
