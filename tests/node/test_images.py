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


def run(env_directory: Path, base: layers.Base, root: Path, script: str) -> str:
    """As a container's shell would run it."""
    shared, programs = layers.make_shared(root, base), layers.make_programs(root, base.prefix)
    path = f"{env_directory}/bin:{shared}/bin:{programs}:{base.prefix}/bin:{os.defpath}"
    env = {
        "PATH": path,
        "VIRTUAL_ENV": str(env_directory),
        "TRAINMASTER_ENV": str(env_directory),
        "HOME": str(root),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def list_installed(prefix: str) -> list[str]:
    return [str(path) for path in Path(prefix).glob(f"lib/python3.*/site-packages/{NAME}*")]


def test_pip_inside_a_pod_writes_into_its_own_environment_and_nowhere_else(tmp_path: Path) -> None:
    base = layers.read_base(sys.prefix)
    own, wheel, newer = tmp_path / "own", make_wheel(tmp_path), make_wheel(tmp_path, "2.0")
    script = f"""
    python -c 'import sys, pytest; print(sys.prefix)'
    test ! -e {own}
    python -m pip install -q --no-index {wheel}
    tm-sample
    python -c 'import {NAME}, orjson; print({NAME}.__file__)'
    pip install -q --no-index {newer}
    python3 -c 'import {NAME}; print({NAME}.VERSION)'
    pip uninstall -q -y {NAME}
    python3 -c 'import {NAME}' 2>/dev/null && echo there || echo gone
    """
    lines = run(own, base, tmp_path, script).splitlines()
    assert lines[0].startswith(f"{tmp_path}/layers/"), "the shared layer, with the packages of the base"
    assert lines[1] == "script 1.0"
    assert lines[2].startswith(f"{own}/lib/"), "also from a shell that remembers the other interpreter"
    assert lines[3:] == ["2.0", "gone"]
    assert list_installed(sys.prefix) == []


def test_what_one_pod_installs_no_other_sees(tmp_path: Path) -> None:
    base, wheel = layers.read_base(sys.prefix), make_wheel(tmp_path)
    run(tmp_path / "one", base, tmp_path, f"pip install -q --no-index {wheel}")
    look = f"python -c 'import {NAME}' 2>/dev/null && echo there || echo gone"
    assert run(tmp_path / "other", base, tmp_path, look) == "gone\n"
    assert run(tmp_path / "one", base, tmp_path, look) == "there\n"


def test_an_environment_with_packages_is_made_once_and_seen_through_layers(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    base = layers.read_base(sys.prefix)
    environments = Environments(tmp_path / "environments", {"PATH": os.defpath})

    async def main() -> list[str]:
        asked = [environments.ensure(base, [str(wheel)]) for _ in range(3)]
        return list(await asyncio.gather(*asked))

    prefixes = asyncio.run(main())
    assert len(set(prefixes)) == 1
    base = layers.read_base(prefixes[0])
    assert run(tmp_path / "own", base, tmp_path, "tm-sample; python -c 'import orjson'").strip() == "script 1.0"
    assert list_installed(sys.prefix) == []


def test_a_package_that_does_not_exist_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    environments = Environments(tmp_path / "environments", {"PATH": os.defpath, "PIP_NO_INDEX": "1"})
    with pytest.raises(ImageError, match=r"cannot install no-such-package-tm: .*no-such-package-tm"):
        asyncio.run(environments.ensure(layers.read_base(sys.prefix), ["no-such-package-tm"]))
    assert not any((tmp_path / "environments").iterdir())
