"""Ignore files by git's rules. The expected values are git's own (`git check-ignore`), written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.bundles.ignoring import Level, is_ignored, parse, read_levels_above
from trainmaster.bundles.walking import BundleLimits, walk

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("pattern", "path", "want"),
    [
        ("*.o", "a.o", True),
        ("*.o", "deep/er/a.o", True),
        ("*.o", "a.obj", False),
        ("/a", "a", True),
        ("/a", "b/a", False),
        ("b/a", "b/a", True),
        ("b/a", "c/b/a", False),
        ("a/", "a", False),
        ("a/", "a/", True),
        ("x/a/", "x/a/", True),
        ("?at", "cat", True),
        ("?at", "at", False),
        ("a?b", "a/b", False),
        ("a*b", "a/b", False),
        ("[a-c]x", "bx", True),
        ("[a-c]x", "dx", False),
        ("[!a-c]x", "dx", True),
        ("[^a-c]x", "bx", False),
        ("[]a]x", "]x", True),
        ("[[:digit:]]", "7", True),
        ("[[:digit:]]", "x", False),
        ("[[:nonsense:]]", "x", False),
        ("[a", "[a", False),
        ("[z-a]", "z", False),
        ("[a\\]b]", "]", True),
        ("a[/]b", "a/b", False),
        ("**/foo", "foo", True),
        ("**/foo", "a/b/foo", True),
        ("foo/**", "foo/a/b", True),
        ("foo/**", "foo/", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "ab", False),
        ("a**b", "axxb", True),
        ("a**b/c", "ax/xb/c", False),
        ("**", "anything", True),
        ("\\#note", "#note", True),
        ("#note", "#note", False),
        ("\\!x", "!x", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("end\\", "end", False),
        ("trail   ", "trail", True),
        ("trail\\ ", "trail ", True),
        ("trail\\ ", "trail", False),
        (" lead", " lead", True),
        ("a.b", "axb", False),
        ("(a|b)", "a", False),
        ("é*", "école", True),
        ("", "a", False),
        ("/", "a", False),
    ],
)
def test_a_line_means_what_it_means_to_git(pattern: str, path: str, want: bool) -> None:
    is_directory, plain = path.endswith("/"), path.removesuffix("/")
    levels = (Level("", "", parse([pattern])),)
    assert is_ignored(levels, plain, plain.rpartition("/")[2], is_directory) is want


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def list_files(root: Path) -> list[str]:
    return sorted(walk(root, BundleLimits()).files)


def test_the_last_line_that_matches_decides(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.log\n!keep.log\n", "a.log": "", "keep.log": "", "sub/keep.log": ""})
    assert list_files(tmp_path) == [".gitignore", "keep.log", "sub/keep.log"]


def test_a_deeper_file_goes_over_one_further_up(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "*.bin\n", "sub/.gitignore": "!*.bin\n/only-here\n", "sub/w.bin": "", "w.bin": ""})
    write(tmp_path, **{"only-here": "", "sub/only-here": "", "sub/x/only-here": ""})
    assert list_files(tmp_path) == [".gitignore", "only-here", "sub/.gitignore", "sub/w.bin", "sub/x/only-here"]


def test_nothing_below_a_directory_that_is_left_out_comes_back(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "data/\n!data/keep\n", "data/keep": "", "data/x": ""})
    assert list_files(tmp_path) == [".gitignore"]


def test_our_own_file_goes_over_the_one_for_git(tmp_path: Path) -> None:
    write(tmp_path, **{".gitignore": "data/\n", ".trainmasterignore": "!data/\nnotes\n", "data/x": "", "notes": ""})
    assert list_files(tmp_path) == [".gitignore", ".trainmasterignore", "data/x"]


def test_repositories_caches_and_environments_are_always_left_out(tmp_path: Path) -> None:
    write(tmp_path, **{".trainmasterignore": "!.git\n!__pycache__\n!.venv\n!env\n", "a.py": ""})
    write(tmp_path, **{".git/HEAD": "", "__pycache__/a.pyc": "", ".venv/x": "", "pkg/__pycache__/b.pyc": ""})
    write(tmp_path, **{"env/pyvenv.cfg": "", "env/lib/x": "", "pkg/b.py": ""})
    assert list_files(tmp_path) == [".trainmasterignore", "a.py", "pkg/b.py"]


def test_lines_may_end_as_on_windows_and_a_file_may_begin_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf*.log\r\n*.tmp\r\n")
    write(tmp_path, **{"a.log": "", "a.tmp": "", "a": ""})
    assert list_files(tmp_path) == [".gitignore", "a"]


def test_a_directory_inside_a_repository_has_the_rules_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, **{".git/info/exclude": "secret\n", ".gitignore": "*.log\n/team/a/out\n!team/a/keep.log\n"})
    write(tmp_path, **{"team/.gitignore": "a/tmp\n", "team/a/x.log": "", "team/a/out/y": "", "team/a/tmp": ""})
    write(tmp_path, **{"team/a/keep.log": "", "team/a/secret": "", "team/a/train.py": "", "team/a/deep/tmp": ""})
    assert list_files(tmp_path / "team/a") == ["deep/tmp", "keep.log", "train.py"]
    assert read_levels_above(tmp_path / "team") != ()
