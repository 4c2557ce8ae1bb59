"""Real kubectl programs for the wire tests: which are on this machine, and how one is run.

`find_binaries` lists every kubectl that can be had: what the tool box knows (those beside the installed kubectl's real
file, Debian's 1.20, and the newest, built from its Go module), further ones named in TRAINMASTER_EXTRA_KUBECTLS (paths
with ":" between them), and the one on PATH under a name of its own, because it may be a dispatcher that executes one
of the others by the server's version.

A `Kubectl` is one program bound to one kubeconfig, namespace and private home directory. It inherits nothing from the
caller's environment but PATH, so no proxy, kubeconfig or cache of the developer reaches a test.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from tools.toolbox import Toolbox, kubectl_version

DISPATCHER = "installed"
SHORT_LIVED = {"GOGC": "800"}
"""Environment of a Go program that lives for a moment: collecting its garbage is a fifth of its CPU time."""


@dataclass(frozen=True)
class Binary:
    name: str
    """`1.28`, or `installed` for the one on PATH, whose version may depend on the server."""
    path: Path
    minor: int

    @property
    def is_dispatcher(self) -> bool:
        return self.name == DISPATCHER


@functools.cache
def find_binaries() -> tuple[Binary, ...]:
    """Every kubectl of this machine, oldest first, the one on PATH last."""
    paths = Toolbox().list_kubectls()
    for extra in filter(None, os.environ.get("TRAINMASTER_EXTRA_KUBECTLS", "").split(":")):
        paths.setdefault(kubectl_version(Path(extra)), Path(extra))
    binaries = [Binary(version, path, _minor(version)) for version, path in paths.items()]
    binaries.sort(key=lambda binary: binary.minor)
    installed = shutil.which("kubectl")
    if installed:
        path = Path(installed).resolve()
        binaries.append(Binary(DISPATCHER, path, _minor(kubectl_version(path))))
    return tuple(binaries)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


@dataclass(frozen=True)
class Answer:
    rc: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    """One kubectl, as one user of one server, in one namespace."""

    binary: Binary
    minor: int
    kubeconfig: Path
    home: Path
    namespace: str = "default"
    cwd: Path = Path()

    def bound(
        self, *, namespace: str | None = None, kubeconfig: Path | None = None, home: Path | None = None
    ) -> Kubectl:
        return replace(
            self,
            namespace=self.namespace if namespace is None else namespace,
            kubeconfig=kubeconfig or self.kubeconfig,
            home=home or self.home,
        )

    def environment(self, editor: str = "") -> dict[str, str]:
        self.home.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
            # Known to newer versions only; the older ones use HOME, which is private as well.
            "KUBECACHEDIR": str(self.home / "cache"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            **SHORT_LIVED,
        }
        if editor:
            script = self.home / "editor.sh"
            script.write_text(f"#!/bin/sh\nset -e\n{editor}\n")
            script.chmod(0o700)
            environment["KUBE_EDITOR"] = str(script)
        return environment

    def command(self, line: str) -> list[str]:
        arguments = shlex.split(line)
        # kubectl takes its own flags before or after the verb; a namespace in the line wins over ours.
        return [str(self.binary.path), f"--namespace={self.namespace}", *arguments]

    def run(self, line: str, *, stdin: str = "", editor: str = "", timeout: float = 60) -> Answer:
        done = subprocess.run(
            self.command(line),
            input=stdin,
            env=self.environment(editor),
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def must(self, line: str, *, stdin: str = "", timeout: float = 60) -> str:
        """Runs a step that only prepares a test; anything but exit code 0 is a failure of the test."""
        answer = self.run(line, stdin=stdin, timeout=timeout)
        assert answer.rc == 0, f"kubectl {line} (exit {answer.rc})\n{answer.err}{answer.out}"
        return answer.out

    def start(self, line: str) -> subprocess.Popen[str]:
        """For commands that go on while the test changes something; use it as a context manager and stop it."""
        return subprocess.Popen(
            self.command(line),
            env=self.environment(),
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
