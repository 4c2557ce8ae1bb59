"""SHA-256 of files of jobs, computed once for each content and within a budget, so that a list is answered soon."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from trainmaster.rest.services.files.contract import JobFile, Mark

BUDGET_BYTES = 64 << 20
"""Of one list: a fraction of a second of one core."""
_REMEMBERED = 10_000
_PIECE = 1 << 20


class FileHashes:
    """Used by several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[Mark, str] = OrderedDict()
        self._lock = Lock()

    def compute(self, files: Sequence[JobFile], budget: int = BUDGET_BYTES) -> dict[str, str]:
        """Blocks. By path; files for which the budget is not enough are left out."""
        found: dict[str, str] = {}
        for file in files:
            if file.link:
                continue
            known = self._find(file.mark)
            if known:
                found[file.path] = known
            elif file.bytes <= budget:
                budget -= file.bytes
                digest = _hash(file)
                if digest:
                    found[file.path] = digest
                    self._remember(file.mark, digest)
        return found

    def _find(self, mark: Mark | None) -> str:
        with self._lock:
            return "" if mark is None else self._known.get(mark, "")

    def _remember(self, mark: Mark | None, digest: str) -> None:
        if mark is None:
            return
        with self._lock:
            self._known[mark] = digest
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _hash(file: JobFile) -> str:
    """ "" if the file has gone, or grows while it is read."""
    digest, left = hashlib.sha256(), file.bytes
    try:
        with file.open() as stream:
            while piece := stream.read(_PIECE):
                left -= len(piece)
                if left < 0:
                    return ""
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest() if left == 0 else ""
