"""Converts submitted training code (one text, several files or an archive) to a validated tree of files.

Archives are read member by member against limits, so that a decompression bomb is refused early. Only plain files and
directories are accepted: links, devices, absolute paths, `..` and duplicate names are refused. A small tree becomes the
job's ConfigMap; a larger one a bundle of the home (`trainmaster.bundles`).
"""

from __future__ import annotations

import base64
import errno
import gzip
import io
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from trainmaster.api.meta import Object
from trainmaster.bundles import senders
from trainmaster.bundles.store import BundleStore, compute_digest, hash_file
from trainmaster.bundles.walking import walk_plainly
from trainmaster.rest.problems import FieldProblem, Problem, invalid

ENTRY = "train.py"
MOST_BYTES = 64 * 1024 * 1024
MOST_FILES = 2_000
INLINE_BYTES = 900_000
"""Larger code does not fit into a ConfigMap, which holds 1 MiB including its names."""
INLINE_FILES = 200
_DEPTH = 20
_NAME_BYTES = 200
_SAFE_ENTRY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\.py")


@dataclass(frozen=True, slots=True)
class CodeTree:
    files: Mapping[str, bytes]
    """By relative path, with slashes."""
    entry: str = ENTRY
    executable: frozenset[str] = field(default_factory=frozenset)

    @property
    def size(self) -> int:
        return sum(len(path.encode()) + len(content) for path, content in self.files.items())

    @property
    def is_small(self) -> bool:
        return self.size <= INLINE_BYTES and len(self.files) <= INLINE_FILES


def build_tree(
    files: Mapping[str, bytes], entry: str, pointer: str, executable: frozenset[str] = frozenset()
) -> CodeTree:
    """Raises Problem 422 with the invalid path."""
    errors = [FieldProblem(f"{path[:80]!r} {why}", pointer=pointer) for path in files if (why := check_path(path))]
    if not files:
        errors.append(FieldProblem("has no file", pointer=pointer))
    if len(files) > MOST_FILES:
        errors.append(FieldProblem(f"has {len(files)} files; at most {MOST_FILES} are taken", pointer=pointer))
    folders = {parent for path in files for parent in _list_parents(path)}
    errors += [FieldProblem(f"{path!r} is a file and a directory", pointer=pointer) for path in folders & set(files)]
    if not _SAFE_ENTRY.fullmatch(entry) or check_path(entry):
        errors.append(
            FieldProblem("is no path of a Python program: letters, digits, '_', '-', '/'", pointer="/entrypoint")
        )
    elif files and entry not in files:
        near = ", ".join(sorted(path for path in files if path.endswith(".py"))[:5])
        errors.append(
            FieldProblem(
                f"{entry!r} is not among the files; there are {near or 'none that end in .py'}", pointer="/entrypoint"
            )
        )
    if errors:
        raise invalid(errors[:20])
    tree = CodeTree(files, entry, executable)
    if tree.size > MOST_BYTES:
        raise invalid([FieldProblem(f"has {tree.size} bytes; at most {MOST_BYTES} are taken", pointer=pointer)])
    return tree


def check_path(path: str) -> str:
    """What is wrong with the path; "" if it is valid."""
    parts = path.split("/")
    try:
        size = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "is not UTF-8"
    if not path or path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is no relative path"
    if "\\" in path or any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "has a character that no path of code may have"
    if any(part in ("", ".", "..") for part in parts):
        return "leaves its directory or has an empty part"
    if len(parts) > _DEPTH or size > _NAME_BYTES:
        return "is too deep or too long"
    return ""


def _list_parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def read_archive(raw: bytes, entry: str, pointer: str) -> CodeTree:
    """Blocks. A tar.gz or a zip, detected by its first bytes; a single top-level directory is removed."""
    try:
        if raw.startswith(b"PK"):
            found = dict(_read_zip(raw))
        elif raw.startswith(b"\x1f\x8b"):
            found = dict(_read_tar(raw))
        else:
            raise ValueError("is neither a tar.gz nor a zip")
    except (ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError) as error:
        raise invalid([FieldProblem(f"{str(error)[:200] or 'cannot be read'}", pointer=pointer)]) from None
    executable = frozenset(path for path, (_, runs) in found.items() if runs)
    files = _strip_top({path: content for path, (content, _) in found.items()}, entry)
    return build_tree(files, entry, pointer, executable & set(files))


Member = tuple[str, tuple[bytes, bool]]


class _Budget:
    """Enforces the limits while reading, so that nothing is held that will be refused."""

    def __init__(self) -> None:
        self._left = MOST_BYTES
        self._names: set[str] = set()

    def take(self, path: str, stream: IO[bytes]) -> bytes:
        if path in self._names:
            raise ValueError(f"has {path[:80]!r} twice")
        self._names.add(path)
        if len(self._names) > MOST_FILES:
            raise ValueError(f"has more than {MOST_FILES} files")
        content = stream.read(self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"unpacks to more than {MOST_BYTES} bytes")
        return content


class _Bounded:
    """Limits the unpacked size of a tar.gz including its headers, whose sizes cannot be trusted."""

    def __init__(self, inner: gzip.GzipFile) -> None:
        self._inner = inner
        self._left = MOST_BYTES + MOST_FILES * 4096

    def read(self, size: int) -> bytes:
        content = self._inner.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"unpacks to more than {MOST_BYTES} bytes")
        return content


def _read_tar(raw: bytes) -> Iterator[Member]:
    budget = _Budget()
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as unpacked:
        bounded: Any = _Bounded(unpacked)
        tar = tarfile.TarFile.open(fileobj=bounded, mode="r|")  # only the stream below needs closing
        for member in tar:
            path = member.name.removeprefix("./")
            if member.isdir():
                continue
            if not member.isfile():
                raise ValueError(f"{path[:80]!r} is no plain file: links and devices are refused")
            if why := check_path(path):
                raise ValueError(f"{path[:80]!r} {why}")
            stream = tar.extractfile(member)
            assert stream is not None
            yield path, (budget.take(path, stream), bool(member.mode & 0o100))


def _read_zip(raw: bytes) -> Iterator[Member]:
    budget = _Budget()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        for member in archive.infolist():
            path, mode = member.filename, member.external_attr >> 16
            if member.is_dir():
                continue
            if mode & 0o170000 not in (0, 0o100000):
                raise ValueError(f"{path[:80]!r} is no plain file: links and devices are refused")
            if member.flag_bits & 1:
                raise ValueError("is encrypted")
            if why := check_path(path):
                raise ValueError(f"{path[:80]!r} {why}")
            with archive.open(member) as stream:
                yield path, (budget.take(path, stream), bool(mode & 0o100))


def _strip_top(files: dict[str, bytes], entry: str) -> dict[str, bytes]:
    """`git archive` and others put everything into one directory."""
    tops = {path.partition("/")[0] for path in files}
    if entry in files or len(tops) != 1 or any("/" not in path for path in files):
        return files
    return {path.partition("/")[2]: content for path, content in files.items()}


# Storing


def build_data(tree: CodeTree) -> tuple[Object, list[Object]]:
    """The content of a ConfigMap, and the file of each key. A single train.py needs no mapping."""
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    items: list[Object] = []
    flat = set(tree.files) == {ENTRY}
    for number, (path, content) in enumerate(sorted(tree.files.items())):
        key = ENTRY if flat else f"file-{number}"
        items.append({"key": key, "path": path})
        try:
            text[key] = content.decode()
        except UnicodeDecodeError:
            binary[key] = _to_base64(content)
    data = {**({"data": text} if text else {}), **({"binaryData": binary} if binary else {})}
    return data, [] if flat else items


def _to_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def store_bundle(root: Path, tree: CodeTree, namespace: str) -> str:
    """Blocks. Stores the tree in the home's bundles and returns its digest; durable when this returns. Raises Problem
    on a full disk."""
    try:
        return _store_bundle(root, tree, namespace)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Problem(507, "insufficient-storage", "there is no room for the code on the server's disk") from None


def _store_bundle(root: Path, tree: CodeTree, namespace: str) -> str:
    store = BundleStore(root)
    with store.locked():
        draft = store.make_draft()
        try:
            for path, content in tree.files.items():
                place = draft / "tree" / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(0o755 if path in tree.executable else 0o644)
            walked = walk_plainly(draft / "tree")
            digest = compute_digest(walked, {path: hash_file(draft / "tree" / path) for path in walked.files})
            if store.find(digest) is None:
                store.add(draft, digest, walked)
            store.touch(digest)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        senders.note(root, namespace, store.get_place(digest))
        store.make_durable(digest)
    return digest
