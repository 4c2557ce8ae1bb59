"""`make dist`: the wheel and the sdist of the commit that is checked out, with checksums.

The same commit always gives the same bytes, wherever and whenever it is built.

Both are made from a copy of the files that git tracks. The copy has fixed permissions, the time is that of the commit,
and the wheel is built by one version of setuptools (`tools/toolbox.py`) that sees no other installed package. The sdist
contains all tracked files, so that the tests can be run from it.

    python tools/dist.py             writes dist/
    python tools/dist.py --out DIR   writes to another folder
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.toolbox import Toolbox, Unavailable  # noqa: E402  (run as a script, the root is not on the path)

PACKAGE = "trainmaster"
SUMS = "SHA256SUMS"
DESCRIPTION = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
"""The files of a wheel besides the package."""
_BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from setuptools import build_meta
build_meta.build_wheel(sys.argv[2])
"""


class DistError(Exception):
    """An error message for the user."""


@dataclass(frozen=True)
class Distribution:
    wheel: Path
    sdist: Path


def build(root: Path, out: Path, backend: Path, *, allow_changes: bool = False) -> Distribution:
    """Builds both from the checkout `root` into the folder `out`. `backend`: a folder that contains setuptools.
    `allow_changes`: build with changes that are not committed."""
    if not allow_changes and (changed := _run_git(root, "status", "--porcelain")):
        raise DistError(f"commit these changes first, or stash them:\n{changed.rstrip()}")
    files = list_files(root)
    seconds = int(_run_git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="trainmaster-dist-") as name:
        source, made = Path(name, "source"), Path(name, "made")
        made.mkdir()
        copy_files(root, source, files)
        wheel = build_wheel(source, made, backend, seconds)
        check_wheel(wheel, files)
        sdist = build_sdist(source, made, files, wheel, seconds)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (sdist, wheel)]
        (made / SUMS).write_text("".join(lines))
        out.mkdir(parents=True, exist_ok=True)
        for old in (*out.glob(f"{PACKAGE}-*.whl"), *out.glob(f"{PACKAGE}-*.tar.gz")):
            old.unlink()
        for path in (wheel, sdist, made / SUMS):
            shutil.copyfile(path, out / path.name)
    return Distribution(out / wheel.name, out / sdist.name)


def list_files(root: Path) -> list[str]:
    return sorted(name for name in _run_git(root, "ls-files", "-z").split("\0") if name)


def _run_git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise DistError(f"a git checkout is needed: {done.stderr.strip()}")
    return done.stdout


def copy_files(root: Path, target: Path, files: Sequence[str]) -> None:
    for name in files:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, copy)
        copy.chmod(0o755 if os.access(root / name, os.X_OK) else 0o644)


def build_wheel(source: Path, out: Path, backend: Path, seconds: int) -> Path:
    """`seconds`: the time of all files, since 1970."""
    environ = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(seconds)}
    # Without `site`: other installed packages could contain plugins of setuptools.
    command = [sys.executable, "-I", "-S", "-c", _BUILD, str(backend), str(out)]
    done = subprocess.run(command, cwd=source, env=environ, umask=0o022, capture_output=True, text=True)
    if done.returncode:
        raise DistError(f"building the wheel failed:\n{done.stderr.rstrip()}")
    (wheel,) = out.glob("*.whl")
    return wheel


def check_wheel(wheel: Path, files: Sequence[str]) -> None:
    """DistError unless the wheel contains all tracked files of the package and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    wanted = {name for name in files if name.startswith(f"{PACKAGE}/")}
    wanted |= {f"{_get_stem(wheel)}.dist-info/{name}" for name in DESCRIPTION}
    if lacking := sorted(wanted - found):
        hint = "`tool.setuptools.package-data` in pyproject.toml says which files are included"
        raise DistError(f"the wheel lacks {', '.join(lacking)}: {hint}")
    if extra := sorted(found - wanted):
        raise DistError(f"the wheel contains files that do not belong there: {', '.join(extra)}")


def _get_stem(wheel: Path) -> str:
    """Name and version."""
    return "-".join(wheel.name.split("-")[:2])


def build_sdist(source: Path, out: Path, files: Sequence[str], wheel: Path, seconds: int) -> Path:
    stem = _get_stem(wheel)
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{stem}.dist-info/METADATA")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive_out:
        entries = {name: (source / name).read_bytes() for name in files} | {"PKG-INFO": metadata}
        for name, content in sorted(entries.items()):
            info = tarfile.TarInfo(f"{stem}/{name}")
            info.size, info.mtime, info.mode = len(content), seconds, 0o644
            if name in files and os.access(source / name, os.X_OK):
                info.mode = 0o755
            archive_out.addfile(info, io.BytesIO(content))
    sdist = out / f"{stem}.tar.gz"
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))
    return sdist


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[2].partition(".")[0].strip())
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write (default: dist)")
    options = parser.parse_args()
    try:
        made = build(ROOT, options.out, Toolbox().ensure_build_backend())
    except (DistError, Unavailable) as error:
        print(error, file=sys.stderr)
        return 1
    for path in (made.wheel, made.sdist):
        print(f"{path}: {path.stat().st_size} bytes")
    print((options.out / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
