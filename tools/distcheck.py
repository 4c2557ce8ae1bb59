"""`make distcheck`: builds a release, installs its wheel into an empty environment, and runs the e2e tests with it.

The tests come from the sdist, with a copy of the installed package in the place of its own, so that neither they nor
the programs they start can use the checkout. The environment contains only the wheel and its dependencies, as a user's
does: pytest and the other test tools are in a folder that only the process of pytest can import from.

    python tools/distcheck.py [ARGUMENTS FOR PYTEST]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import dist  # noqa: E402  (run as a script, the root is not on the path)
from tools.scrub import scrub  # noqa: E402
from tools.testrun import list_test_files  # noqa: E402
from tools.toolbox import Toolbox, Unavailable  # noqa: E402

TIER = "e2e"
EXTRAS = ("dev", "clients")
_WHERE = "from trainmaster.version import PACKAGE; print(PACKAGE)"


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="trainmaster-distcheck-") as name:
        folder = Path(name)
        # Tests start servers as other users, who must be able to read the package.
        folder.chmod(0o755)
        try:
            backend = Toolbox().ensure_build_backend()
            made = dist.build(ROOT, folder / "dist", backend, allow_changes=True)
            source = unpack(made.sdist, folder)
            check_rebuild(made.wheel, source, folder / "rebuilt", backend)
            python, package = make_environment(folder / "environment", made.wheel)
            shutil.rmtree(source / dist.PACKAGE)
            shutil.copytree(package, source / dist.PACKAGE)
            tools = install_tools(folder / "tools")
        except (dist.DistError, Unavailable) as error:
            print(error, file=sys.stderr)
            return 1
        return run_tests(python, source, tools, arguments)


def unpack(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def check_rebuild(wheel: Path, source: Path, out: Path, backend: Path) -> None:
    """The sdist gives the same wheel."""
    out.mkdir()
    seconds = int((source / "PKG-INFO").stat().st_mtime)
    again = dist.build_wheel(source, out, backend, seconds)
    if again.read_bytes() != wheel.read_bytes():
        raise dist.DistError(
            "the wheel that is built from the sdist differs from the one that is built from the checkout"
        )
    for left in ("build", f"{dist.PACKAGE}.egg-info"):
        shutil.rmtree(source / left)


def make_environment(folder: Path, wheel: Path) -> tuple[Path, Path]:
    """Returns its interpreter and the installed package."""
    print("installing the wheel into an empty environment", flush=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    python = folder / "bin" / "python"
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)])
    package = Path(_run([str(python), "-P", "-c", _WHERE]).strip())
    if not package.is_relative_to(folder):
        raise dist.DistError(f"the environment uses {package}, not its own package")
    return python, package


def install_tools(folder: Path) -> Path:
    print("installing the test tools", flush=True)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    requirements = [requirement for extra in EXTRAS for requirement in extras[extra]]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--target", str(folder), *requirements])
    return folder


def run_tests(python: Path, source: Path, tools: Path, arguments: Sequence[str]) -> int:
    # tests/conftest.py removes PYTHONPATH before anything is started.
    environ = {**scrub(os.environ), "PYTHONPATH": str(tools)}
    command = [str(python), "-m", "pytest", "-q", "-m", TIER, *list_test_files(TIER), *arguments]
    return subprocess.run(command, cwd=source, env=environ).returncode


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise dist.DistError(f"`{' '.join(command[:4])} ...` failed:\n{(done.stderr or done.stdout).rstrip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
