"""Lists and opens files of jobs, in threads. Whether the caller may read the job is checked before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from trainmaster.api.code import CODE_DIGEST, GIT_COMMIT, GIT_DIRTY
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations, read_fields
from trainmaster.client.contract import Client
from trainmaster.history.results import find_code
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.files import checkpoints
from trainmaster.rest.services.files.code import find_live_map, list_code_files
from trainmaster.rest.services.files.contract import FileList, JobFile, OpenedFile
from trainmaster.rest.services.files.hashes import FileHashes
from trainmaster.rest.services.files.outputs import list_output_files
from trainmaster.rest.services.files.previews import guess_preview, read_preview

MOST_LISTED = 2_000
_NO_OUTPUTS = "not on a cluster: outputs are kept on the machine of a home"


@dataclass(frozen=True, slots=True)
class OwnerOfFiles:
    """A job, or its record, whose files are asked for."""

    job: Fields
    """The object itself, in a record as it was last."""
    client: Client | None = None
    """As the caller; None for a record, whose ConfigMaps are gone."""


class JobFiles:
    """`archive`: of the history. `bundles`: of the home; None on a cluster."""

    def __init__(self, archive: Path | None, bundles: Path | None) -> None:
        self._archive = archive
        self._bundles = bundles
        self._hashes = FileHashes()

    @property
    def _keeps_results(self) -> bool:
        """On a home; the history of an operator has no results."""
        return self._archive is not None and self._bundles is not None

    async def list_outputs(self, owner: OwnerOfFiles) -> Object:
        return await self._describe(owner, await self._read_outputs(owner))

    async def list_code(self, owner: OwnerOfFiles) -> Object:
        notes = read_annotations(owner.job)
        dirty = notes.get(GIT_DIRTY)
        found = await self._read_code(owner)
        return {
            **await self._describe(owner, found),
            "source": found.source or None,
            "digest": notes.get(CODE_DIGEST),
            "git_commit": notes.get(GIT_COMMIT),
            "git_dirty": None if dirty is None else dirty == "true",
        }

    async def list_checkpoints(self, owner: OwnerOfFiles) -> Object:
        meta = read_fields(owner.job, "metadata")
        found: Object = {"items": [], "count": 0, "bytes": 0, "keep_last": None, "keep_every": None, "notes": []}
        missing = None if self._keeps_results else checkpoints.MISSING
        if self._archive is not None and missing is None:
            found = await asyncio.to_thread(checkpoints.describe_checkpoints, self._archive, owner.job)
        return {"name": meta["name"], "namespace": meta["namespace"], **found, "missing": missing}

    async def open(self, owner: OwnerOfFiles, what: str, path: str) -> OpenedFile:
        """`what`: outputs, code or checkpoints. Raises Problem 404."""
        file = await self._get(owner, what, path)
        try:
            stream = await asyncio.to_thread(file.open)
        except OSError:
            raise _build_gone(file) from None
        return OpenedFile(file.path.rpartition("/")[2], file.bytes, stream)

    async def preview(self, owner: OwnerOfFiles, what: str, path: str) -> tuple[bytes, dict[str, str]]:
        """The content, and headers that say what it is. Raises Problem 404, and 415 for what is not shown."""
        file = await self._get(owner, what, path)
        try:
            found = await asyncio.to_thread(read_preview, file)
        except OSError:
            raise _build_gone(file) from None
        return found.content, {"x-preview": found.kind, "x-truncated": "false" if found.is_whole else "true"}

    async def find_kept_code(self, uid: str) -> Object | None:
        """What the history has of the ConfigMap with the code of a job."""
        archive = self._archive
        return None if archive is None else await asyncio.to_thread(find_code, archive, uid)

    async def _get(self, owner: OwnerOfFiles, what: str, path: str) -> JobFile:
        read = {"outputs": self._read_outputs, "code": self._read_code, "checkpoints": self._read_checkpoints}[what]
        return (await read(owner)).get(path)

    async def _read_outputs(self, owner: OwnerOfFiles) -> FileList:
        if self._archive is None or not self._keeps_results:
            return FileList(missing=_NO_OUTPUTS)
        return await asyncio.to_thread(list_output_files, self._archive, owner.job["metadata"]["uid"])

    async def _read_checkpoints(self, owner: OwnerOfFiles) -> FileList:
        if self._archive is None or not self._keeps_results:
            return FileList(missing=checkpoints.MISSING)
        listing = checkpoints.list_checkpoint_files
        return await asyncio.to_thread(listing, self._archive, owner.job["metadata"]["uid"])

    async def _read_code(self, owner: OwnerOfFiles) -> FileList:
        config_map: Fields | None = None
        missing = ""
        if owner.client is not None:
            config_map, missing = await find_live_map(owner.client, owner.job)
        return await asyncio.to_thread(list_code_files, owner.job, config_map, missing, self._archive, self._bundles)

    async def _describe(self, owner: OwnerOfFiles, found: FileList) -> Object:
        shown = found.files[:MOST_LISTED]
        hashes = await asyncio.to_thread(self._hashes.compute, shown)
        meta = read_fields(owner.job, "metadata")
        return {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "items": [_build_item(file, hashes.get(file.path)) for file in shown],
            "count": len(found.files),
            "bytes": sum(file.bytes for file in found.files),
            "missing": found.missing or None,
        }


def _build_item(file: JobFile, digest: str | None) -> Object:
    return {
        "path": file.path,
        "bytes": file.bytes,
        "modified_at": file.modified,
        "sha256": digest,
        "link": file.link or None,
        "preview": None if file.link else guess_preview(file.path, file.bytes),
    }


def _build_gone(file: JobFile) -> Problem:
    return Problem(404, "not-found", f"{file.path[:200]!r} has gone meanwhile, or has become something else")
