"""Tiny packages made by hand, as an index would have them: wheels, and sdists whose build runs code."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    directory: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    script: str = "",
) -> Path:
    """`script` names a command that calls the module's `main`."""
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {entry}\n" for entry in requires)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\ndef main():\n    print('script', VERSION)\n")
        for path, text in (files or {}).items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        if script:
            archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{script} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def list_project_files(name: str, payload: str, version: str = "1.0") -> dict[str, str]:
    """A project with a build backend of its own, whose every step runs the payload and then makes a wheel."""
    backend = f"""
import os, sys, zipfile
def run_payload():
{"".join(f"    {line}{chr(10)}" for line in payload.strip().splitlines())}
def get_requires_for_build_wheel(settings=None):
    run_payload()
    return []
def build_wheel(directory, settings=None, metadata=None):
    run_payload()
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        archive.writestr("{name}.py", "VERSION = {version!r}\\n")
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "")
    return name
"""
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    described = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": described}


def make_sdist(directory: Path, name: str, payload: str, version: str = "1.0") -> Path:
    sdist = directory / f"{name}-{version}.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, text in list_project_files(name, payload, version).items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return sdist


def make_project(directory: Path, name: str, payload: str) -> Path:
    project = directory / name
    project.mkdir(parents=True)
    for path, text in list_project_files(name, payload).items():
        (project / path).write_text(text)
    return project
