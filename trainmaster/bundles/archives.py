"""A bundle as one .tar.gz, for servers that cannot read the bundles of a home.

Equal bundles give equal bytes: owners and times are fixed, and permissions are those of the bundle, 644 and 755. The
archive has no entry for the directory itself, so that a user who does not own the target can unpack it.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections import Counter
from pathlib import Path

from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.walking import FileTree, format_bytes, walk_plainly

MOST_BYTES = 900_000
"""What fits into a ConfigMap, which holds 1 MiB, beside its names."""
UNPACKED_BYTES = 64 << 20
"""Code of this size that fits when packed does not exist; reading more than this would only take time."""
_TIME = 315_532_800
"""1980, the first year that all archive formats have; times are no part of a bundle."""
_NAMED = 5


class _Bounded(io.BytesIO):
    """Stops as soon as it is clear that the archive is too large."""

    def write(self, data: object, /) -> int:
        written = super().write(data)  # type: ignore[arg-type]  # whatever gzip writes: bytes
        if self.tell() > MOST_BYTES:
            raise _TooLargeError
        return written


class _TooLargeError(Exception):
    pass


def build_archive(root: Path, source: Path) -> bytes:
    """The files of the bundle in `root`, a .tar.gz of at most MOST_BYTES. Raises BundleError with the largest parts;
    `source` is the directory that the message is about."""
    tree = walk_plainly(root)
    file = _Bounded()
    try:
        with (
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            tarfile.TarFile("", "w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
        ):
            _add_all(archive, tree)
    except _TooLargeError:
        raise BundleError(_explain_size(tree, source)) from None
    return file.getvalue()


def _add_all(archive: tarfile.TarFile, tree: FileTree) -> None:
    for path in sorted((*tree.directories, *tree.links, *tree.files)):
        member = tarfile.TarInfo(path)
        member.mtime, member.mode = _TIME, 0o755
        if path in tree.links:
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, tree.links[path], 0o777
        elif path in tree.files:
            member.size = tree.files[path].size
            member.mode = 0o755 if tree.files[path].executable else 0o644
            with open(tree.root / path, "rb") as content:
                archive.addfile(member, content)
            continue
        else:
            member.type = tarfile.DIRTYPE
        archive.addfile(member)


def _explain_size(tree: FileTree, source: Path) -> str:
    sizes: Counter[str] = Counter()
    for path, mark in tree.files.items():
        top, slash, _ = path.partition(os.sep)
        sizes[top + slash] += mark.size
    named = ", ".join(f"{name} ({format_bytes(size)})" for name, size in sizes.most_common(_NAMED))
    return (
        f"the code in {source} has more than {MOST_BYTES:,} bytes packed, which is what can be sent to a cluster. The "
        f"largest parts are {named}. List what the job does not need in {source / '.trainmasterignore'}, give data to "
        "the job as a volume, or build an image with the code and use --image and --no-code"
    )
