"""Runs the installed command the way a person does: a process, a home, an exit code, text on the screen."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.server import clean_environ, command


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value


class Person:
    """At a terminal, with one home and a kubectl."""

    def __init__(self, home: Path, kubectl: Path) -> None:
        self.home = home
        self._kubectl = kubectl

    def trainmaster(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Answer:
        full = clean_environ({"TRAINMASTER_HOME": str(self.home), **(environ or {})})
        return _run(command(*arguments), full)

    def must(self, *arguments: str) -> str:
        answer = self.trainmaster(*arguments)
        assert answer.code == 0, f"trainmaster {' '.join(arguments)}: exit {answer.code}\n{answer.out}{answer.err}"
        return answer.out

    def kubectl(self, *arguments: str) -> str:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        answer = _run([str(self._kubectl), *arguments], environ)
        assert answer.code == 0, f"kubectl {' '.join(arguments)}: {answer.err}"
        return answer.out


def _run(arguments: list[str], environ: Mapping[str, str]) -> Answer:
    done = subprocess.run(arguments, env=dict(environ), capture_output=True, text=True, timeout=90)
    return Answer(done.returncode, done.stdout, done.stderr)
