"""`tools/image.py`: what is in an image, and that it depends on nothing else than its content."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tools.image import ENTRYPOINT, ENVIRON, USER, Image, build_layer, write_image

pytestmark = pytest.mark.unit

CONTAINERFILE = ROOT / "deploy" / "image" / "Containerfile"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "trainmaster"
    (folder / "cli").mkdir(parents=True)
    (folder / "__init__.py").write_text("NAMES = frozenset({'a', 'b', 'c'})\n")
    (folder / "cli" / "main.py").write_text("def entry() -> None:\n    print('started')\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "old.pyc").write_bytes(b"of another commit")
    return folder


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as file:
        return {entry.name: file.extractfile(entry).read() for entry in file if entry.isfile()}  # type: ignore[union-attr]


def test_an_archive_names_every_layer_by_its_content(package: Path, tmp_path: Path) -> None:
    root = tmp_path / "root.tar"
    tarfile.open(root, "w").close()
    image = Image("localhost/trainmaster:1", [root, build_layer([package])], ENTRYPOINT, USER, ENVIRON)
    files = read(write_image(image, tmp_path / "image.tar"))
    (manifest,) = json.loads(files["manifest.json"])
    config = json.loads(files[manifest["Config"]])
    digests = [hashlib.sha256(files[name]).hexdigest() for name in manifest["Layers"]]
    assert manifest["RepoTags"] == ["localhost/trainmaster:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Entrypoint"] == ["trainmaster"]


def test_the_same_package_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    first = build_layer([package])
    (package / "__init__.py").chmod(0o600)
    (package / "__init__.py").touch()
    assert build_layer([package]) == first


def test_a_layer_has_the_package_compiled_and_a_program_that_starts_it(package: Path, tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    layer.write_bytes(build_layer([package]))
    with tarfile.open(layer) as file:
        file.extractall(tmp_path / "made", filter="data")
    packages = tmp_path / "made" / "usr" / "lib" / "python3" / "dist-packages"
    compiled = Path(importlib.util.cache_from_source(str(packages / "trainmaster" / "cli" / "main.py")))
    assert compiled.exists()
    assert not list(packages.rglob("old.pyc"))
    program = tmp_path / "made" / "usr" / "bin" / "trainmaster"
    assert program.stat().st_mode & 0o777 == 0o755
    environ = {"PYTHONPATH": str(packages)}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environ)
    assert done.stdout == "started\n"


def test_the_containerfile_makes_an_image_that_starts_in_the_same_way() -> None:
    lines = CONTAINERFILE.read_text().splitlines()
    assert f"USER {USER}" in lines
    assert f"ENTRYPOINT {json.dumps(list(ENTRYPOINT))}" in lines
    assert "ENV PYTHONDONTWRITEBYTECODE=1" in lines
