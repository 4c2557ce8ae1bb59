"""Run by the node with an environment's interpreter: finds the wheels that requirements need, and downloads them.

It knows the credentials of the index, so no code of a package may run here. Only wheels are accepted, which are read
and never executed; a wheel whose metadata names another package by a URL or path (which an installer would build) is an
error; and this process cannot start others, whatever pip tries. Packages that need a build are built in a sandbox: it
only tells which of them the index has in a newer version than their newest wheel.

Imports nothing of ours: any Python from 3.8 on may run it. Started as `python -I fetch_program.py <JSON>`.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn")
_COMMON = ["--progress-bar=off", "--no-input", "--disable-pip-version-check"]
_WHEELS = "--only-binary=:all:"
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


def read_options() -> dict[str, str]:
    """Where pip looks for packages and how it gets there, by its configuration files and variables."""
    from pip._internal.commands.install import InstallCommand  # noqa: PLC0415

    options, _ = InstallCommand("install", "").parse_args([])
    found = {
        "PIP_INDEX_URL": options.index_url,
        "PIP_EXTRA_INDEX_URL": " ".join(options.extra_index_urls),
        "PIP_FIND_LINKS": " ".join(options.find_links),
        "PIP_NO_INDEX": "1" if options.no_index else "",
        "PIP_TRUSTED_HOST": " ".join(options.trusted_hosts),
        "PIP_PROXY": options.proxy,
        "PIP_CERT": options.cert,
        "PIP_PRE": "1" if options.pre else "",
        "PIP_PREFER_BINARY": "1" if options.prefer_binary else "",
        "PIP_TIMEOUT": str(options.timeout),
        "PIP_RETRIES": str(options.retries),
    }
    return {name: text for name, text in found.items() if text}


def list_newer_sources(requirements: list[str], chosen: set[str]) -> list[str]:
    """Those of the chosen packages for which pip would have taken an sdist, because no wheel is as new."""
    from pip._internal.commands.install import InstallCommand  # noqa: PLC0415
    from pip._vendor.packaging.requirements import Requirement  # noqa: PLC0415
    from pip._vendor.packaging.utils import canonicalize_name  # noqa: PLC0415

    command = InstallCommand("install", "")
    options, _ = command.parse_args(_COMMON)
    found = []
    with command.main_context():
        finder = command._build_package_finder(options, command.get_default_session(options))
        for text in requirements:
            wanted = Requirement(text)
            if canonicalize_name(wanted.name) not in chosen:
                continue
            best = finder.find_best_candidate(wanted.name, wanted.specifier).best_candidate
            if best is not None and not best.link.is_wheel:
                found.append(text)
    return found


def resolve(requirements: list[str], report: str) -> list[tuple[str, str]]:
    """The packages to install, with their versions. Exits if wheels do not suffice."""
    from pip._internal.cli.main import main as pip  # noqa: PLC0415
    from pip._vendor.packaging.utils import canonicalize_name  # noqa: PLC0415

    if not requirements:
        return []
    code = pip(["install", "--dry-run", "--report", report, *_COMMON, _WHEELS, "--", *requirements])
    if code:
        raise SystemExit(code)
    with open(report) as stream:
        found = json.load(stream)["install"]
    if any(entry.get("is_direct") for entry in found):
        raise SystemExit("ERROR: a package is named by a URL or path")
    return [(canonicalize_name(entry["metadata"]["name"]), entry["metadata"]["version"]) for entry in found]


def main(text: str) -> int:
    asked = json.loads(text)
    limit(asked["space"])
    if asked["pip"]:
        sys.path.insert(0, asked["pip"])
    from pip._internal.cli.main import main as pip  # noqa: PLC0415

    forbid_programs()
    refuse_urls()
    os.chdir(asked["empty"])
    with open(asked["options"] + ".new", "w") as stream:
        json.dump(read_options(), stream)
    os.rename(asked["options"] + ".new", asked["options"])
    requirements, report = asked["requirements"], asked["report"]
    chosen = resolve(requirements, report)
    sources = list_newer_sources(requirements, {name for name, _ in chosen}) if asked["sources"] else []
    if sources:
        chosen = resolve([text for text in requirements if text not in sources], report)
    pins = [f"{name}=={version}" for name, version in chosen]
    code = pip(["download", "--no-deps", "--dest", asked["wheels"], *_COMMON, _WHEELS, "--", *pins]) if pins else 0
    if code == 0:
        with open(asked["found"], "w") as stream:
            json.dump({"pins": pins, "sources": sources}, stream)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
