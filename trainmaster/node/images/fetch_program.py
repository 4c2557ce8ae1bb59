"""Run by the node with an environment's interpreter: finds the wheels that requirements need, and downloads them.

It knows the credentials of the index, so no code of a package may run here. Only wheels are accepted, which are read
and never executed; a wheel whose metadata names another package by a URL or path (which an installer would build) is an
error; and this process cannot start others, whatever pip tries. Packages that need a build are built in a sandbox.

Imports nothing of ours: any Python from 3.8 on may run it. Started as `python -I fetch_program.py <JSON>`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn")
_MEMORY = 4 << 30
_CPU_SECONDS = 1200


def limit(space: int) -> None:
    for what, most in (
        (resource.RLIMIT_AS, _MEMORY),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_FSIZE, space),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def forbid_programs() -> None:
    """From here on this process executes nothing, except the program that pip asks for an index's password."""
    keyring = shutil.which("keyring")

    def audit(event: str, details: tuple) -> None:  # type: ignore[type-arg]
        if event not in _STARTS or (event == "subprocess.Popen" and keyring and details[0] == keyring):
            return
        raise PermissionError(f"packages are not built here ({event})")

    sys.addaudithook(audit)


def refuse_urls() -> None:
    from pip._internal.exceptions import InstallationError  # noqa: PLC0415
    from pip._vendor.packaging.requirements import Requirement  # noqa: PLC0415

    begin = Requirement.__init__

    def check(self, text):  # type: ignore[no-untyped-def]
        begin(self, text)
        if self.url:
            raise InstallationError(f"{self.name} is named by a URL or path in the metadata of another package")

    Requirement.__init__ = check  # type: ignore[method-assign]


def list_pins(report: str) -> list[str]:
    with open(report) as stream:
        found = json.load(stream)["install"]
    if any(entry.get("is_direct") for entry in found):
        raise SystemExit("ERROR: a package is named by a URL or path")
    return [f"{entry['metadata']['name']}=={entry['metadata']['version']}" for entry in found]


def main(text: str) -> int:
    asked = json.loads(text)
    limit(asked["space"])
    if asked["pip"]:
        sys.path.insert(0, asked["pip"])
    from pip._internal.cli.main import main as pip  # noqa: PLC0415

    forbid_programs()
    refuse_urls()
    os.chdir(asked["empty"])
    common = ["--quiet", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    report = asked["report"]
    code = pip(["install", "--dry-run", "--report", report, *common, "--", *asked["requirements"]])
    if code:
        return code
    pins = list_pins(report)
    if pins:
        code = pip(["download", "--no-deps", "--dest", asked["wheels"], *common, "--", *pins])
    if not code:
        with open(asked["pins"], "w") as stream:
            json.dump(pins, stream)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
