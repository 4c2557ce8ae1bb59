"""A bundle as one archive: equal bytes for equal bundles, and a limit that names what is large."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path

import pytest

from trainmaster.bundles.archives import MOST_BYTES, build_archive
from trainmaster.bundles.errors import BundleError

pytestmark = pytest.mark.unit


def fill(root: Path) -> Path:
    (root / "pkg" / "empty").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "pkg" / "größe.py").write_text("x = 1\n")
    os.symlink("pkg", root / "link")
    return root


def test_equal_bundles_give_equal_bytes(tmp_path: Path) -> None:
    first, again = (fill(tmp_path / name) for name in ("first", "again"))
    os.utime(again / "run.sh", (1, 1))
    assert build_archive(first, first) == build_archive(again, again)


def test_an_archive_has_the_modes_the_links_and_the_empty_directories(tmp_path: Path) -> None:
    root = fill(tmp_path / "root")
    with tarfile.open(fileobj=io.BytesIO(build_archive(root, root))) as archive:
        found = {member.name: (member.type, member.mode, member.linkname) for member in archive}
    assert found == {
        "link": (tarfile.SYMTYPE, 0o777, "pkg"),
        "pkg": (tarfile.DIRTYPE, 0o755, ""),
        "pkg/empty": (tarfile.DIRTYPE, 0o755, ""),
        "pkg/größe.py": (tarfile.REGTYPE, 0o644, ""),
        "run.sh": (tarfile.REGTYPE, 0o755, ""),
    }, "and no entry for the directory itself"


def test_what_does_not_fit_is_told_with_its_largest_parts(tmp_path: Path) -> None:
    root = fill(tmp_path / "root")
    noise = random.Random(1).randbytes(MOST_BYTES)
    (root / "pkg" / "weights.bin").write_bytes(noise)
    with pytest.raises(
        BundleError, match=r"the code in here has more than 900,000 bytes packed.*are pkg/ \(878\."
    ) as told:
        build_archive(root, Path("here"))
    assert "here/.trainmasterignore" in str(told.value) and "--image and --no-code" in str(told.value)
    (root / "pkg" / "weights.bin").write_bytes(noise[: MOST_BYTES - 2000])
    assert len(build_archive(root, root)) <= MOST_BYTES
