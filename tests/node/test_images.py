"""Environments with real interpreters: layers, packages, and what pip inside a Pod may touch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainmaster.node.images import layers
from trainmaster.node.images.contract import ImageError
from trainmaster.node.images.environments import Environments

pytestmark = pytest.mark.node

NAME = "tm_sample_package"


def make_wheel(directory: Path, version: str = "1.0") -> Path:
    """A package with a module and a script, as an index would have it."""
    wheel = directory / f"{NAME}-{version}-py3-none-any.whl"
    info = f"{NAME}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{NAME}.py", f"VERSION = {version!r}\ndef main():\n    print('script', VERSION)\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\ntm-sample = {NAME}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def run(layer: Path, programs: str, script: str) -> str:
    """As a container's shell would run it."""
    path = f"{layer}/bin:{programs}:{sys.prefix}/bin:{os.defpath}"
    env = {"PATH": path, "VIRTUAL_ENV": str(layer), "HOME": str(layer), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(["/bin/sh", "-ec", script], env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def list_installed(prefix: str) -> list[str]:
    return [str(path) for path in Path(prefix).glob(f"lib/python3.*/site-packages/{NAME}*")]


def test_pip_inside_a_pod_writes_into_its_layer_and_nowhere_else(tmp_path: Path) -> None:
    base = layers.read_base(sys.prefix)
    layer, wheel = tmp_path / "env", make_wheel(tmp_path)
    layers.make_layer(str(layer), base)
    programs = layers.make_programs(tmp_path, sys.prefix)
    script = f"""
    python -c 'import sys, pytest; print(sys.prefix)'
    test "$(command -v pip)" = {programs}/pip
    pip install -q --no-index {wheel}
    tm-sample
    python -c 'import {NAME}, orjson; print({NAME}.__file__)'
    """
    lines = run(layer, programs, script).splitlines()
    assert lines[0] == str(layer), "the packages of the base are seen, the prefix is the Pod's"
    assert lines[1] == "script 1.0"
    assert lines[2].startswith(f"{layer}/lib/")
    assert list_installed(sys.prefix) == []
    other = tmp_path / "other"
    layers.make_layer(str(other), base)
    assert "no" in run(other, programs, f"python -c 'import {NAME}' 2>/dev/null && echo yes || echo no")


def test_an_environment_with_packages_is_made_once_and_seen_through_layers(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    base = layers.read_base(sys.prefix)
    environments = Environments(tmp_path / "environments", {"PATH": os.defpath})

    async def main() -> list[str]:
        asked = [environments.ensure(base, [str(wheel)]) for _ in range(3)]
        return list(await asyncio.gather(*asked))

    prefixes = asyncio.run(main())
    assert len(set(prefixes)) == 1
    layer = tmp_path / "env"
    layers.make_layer(str(layer), layers.read_base(prefixes[0]))
    programs = layers.make_programs(tmp_path, prefixes[0])
    assert run(layer, programs, "tm-sample").strip() == "script 1.0"
    assert list_installed(sys.prefix) == []


def test_a_package_that_does_not_exist_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments", {"PATH": os.defpath, "PIP_NO_INDEX": "1"})
    with pytest.raises(ImageError, match=r"cannot install no-such-package-tm: .*no-such-package-tm"):
        asyncio.run(environments.ensure(layers.read_base(sys.prefix), ["no-such-package-tm"]))
    assert not any((tmp_path / "environments").iterdir())
