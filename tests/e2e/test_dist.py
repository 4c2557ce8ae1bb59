"""Releases: the wheel contains the package and nothing else, and the same commit gives the same bytes."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import trainmaster
from tests.house.tree import ROOT
from tools.dist import SUMS, DistError, Distribution, build, check_wheel, list_files
from tools.toolbox import Toolbox

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def backend() -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("releases are built in a git checkout")
    toolbox = Toolbox()
    found = toolbox.find_build_backend()
    if found is None:
        pytest.skip(toolbox.why_missing("setuptools"))
    return found


@pytest.fixture(scope="module")
def release(backend: Path, tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(ROOT, tmp_path_factory.mktemp("release"), backend, allow_changes=True)


def clone(folder: Path) -> Path:
    """Without files."""
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(folder)], check=True)
    return folder


def make_other_checkout(folder: Path) -> Path:
    """The same commit and files, with other permissions and times."""
    clone(folder)
    files = list_files(ROOT)
    for name in files:
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
        copy.chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
        os.utime(copy, (10**9, 10**9))
    (folder / "trainmaster" / "__pycache__").mkdir()
    (folder / "trainmaster" / "__pycache__" / "left.pyc").write_bytes(b"x")
    subprocess.run(["git", "-C", str(folder), "add", "--", *files], check=True)
    return folder


def test_two_checkouts_of_a_commit_give_the_same_bytes(
    backend: Path, release: Distribution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_other_checkout(tmp_path / "elsewhere")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        second = build(other, tmp_path / "second", backend, allow_changes=True)
    finally:
        os.umask(before)
    assert {path.name for path in (tmp_path / "second").iterdir()} == {second.wheel.name, second.sdist.name, SUMS}
    for path in (second.wheel, second.sdist, tmp_path / "second" / SUMS):
        assert path.read_bytes() == (release.wheel.parent / path.name).read_bytes(), path.name


def test_a_release_contains_what_git_tracks_and_checksums(release: Distribution) -> None:
    wheel, sdist = release.wheel, release.sdist
    stem = f"trainmaster-{trainmaster.__version__}"
    assert (wheel.name, sdist.name) == (f"{stem}-py3-none-any.whl", f"{stem}.tar.gz")
    sums = subprocess.run(["sha256sum", "-c", SUMS], cwd=wheel.parent, capture_output=True, text=True)
    assert sums.stdout.splitlines() == [f"{sdist.name}: OK", f"{wheel.name}: OK"]
    with zipfile.ZipFile(wheel) as archive:
        assert "trainmaster/api/schemas/data/core_v1.json" in archive.namelist()
        assert {name.partition("/")[0] for name in archive.namelist()} == {"trainmaster", f"{stem}.dist-info"}
    with tarfile.open(sdist) as packed:
        assert set(packed.getnames()) == {f"{stem}/{name}" for name in (*list_files(ROOT), "PKG-INFO")}
        assert {(info.uid, info.uname) for info in packed} == {(0, "")}


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_refused(release: Distribution) -> None:
    wheel, files = release.wheel, list_files(ROOT)
    with pytest.raises(DistError, match=r"the wheel lacks trainmaster/new\.toml: `tool.setuptools.package-data`"):
        check_wheel(wheel, [*files, "trainmaster/new.toml"])
    with pytest.raises(DistError, match=r"do not belong there: trainmaster/py\.typed"):
        check_wheel(wheel, [name for name in files if name != "trainmaster/py.typed"])


def test_a_checkout_with_changes_is_not_released(backend: Path, tmp_path: Path) -> None:
    checkout = clone(tmp_path / "checkout")
    (checkout / "new.txt").write_text("not committed\n")
    with pytest.raises(DistError, match=r"commit these changes first(.|\n)*new\.txt"):
        build(checkout, tmp_path / "out", backend)
    assert not (tmp_path / "out").exists()
