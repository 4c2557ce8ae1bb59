"""Requirements files: what they list, what they include, and what is refused with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.requirements import read_requirements

pytestmark = pytest.mark.unit

FILE = """\
# what we need
numpy>=1,<3   # fast
torch [a,b] ==2.1 ; \\
    python_version > "3.8"

-r more/others.txt
git+https://example.com/team/tool@v1#egg=tool
numpy>=1,<3
"""


def test_requirements_are_listed_once_with_those_of_included_files(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text(FILE)
    (tmp_path / "more/others.txt").write_text("--requirement=deeper.txt\n")
    (tmp_path / "more/deeper.txt").write_text("tqdm\n")
    assert read_requirements(tmp_path / "requirements.txt") == [
        "numpy>=1,<3",
        'torch [a,b] ==2.1 ;     python_version > "3.8"',
        "tqdm",
        "git+https://example.com/team/tool@v1#egg=tool",
    ]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("--index-url https://example.com", "set PIP_INDEX_URL and the like where the server is started"),
        ("-c constraints.txt", "write the versions into the requirements themselves"),
        ("-e .", "the code of the job is sent anyway"),
        ("./wheels/x.whl", "is a path of this machine: put the package into the code of the job"),
        ("x-1.0.tar.gz", "is a path of this machine"),
        ("numpy==1 --hash=sha256:00", "hashes cannot be given"),
        ("--what", "is an option of pip"),
    ],
)
def test_what_is_no_requirement_is_refused_with_its_place(tmp_path: Path, line: str, want: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"numpy\n{line}\n")
    with pytest.raises(BundleError) as caught:
        read_requirements(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert want in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"nothing\.txt cannot be read: No such file"):
        read_requirements(tmp_path / "nothing.txt")
    (tmp_path / "a.txt").write_text("-r nothing.txt\n")
    with pytest.raises(BundleError, match=r"nothing\.txt, which .*a\.txt includes, cannot be read"):
        read_requirements(tmp_path / "a.txt")
    (tmp_path / "loop.txt").write_text("-r loop.txt\n")
    with pytest.raises(BundleError, match="includes itself"):
        read_requirements(tmp_path / "loop.txt")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleError, match="is not text in UTF-8"):
        read_requirements(tmp_path / "binary")
