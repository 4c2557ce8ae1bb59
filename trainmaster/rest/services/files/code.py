"""The code of a job: a bundle of the home, a ConfigMap, or what the record has kept of one."""

from __future__ import annotations

import io
import os
from functools import partial
from pathlib import Path
from typing import BinaryIO

from trainmaster.api.code import CODE_DIGEST
from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.bundles.store import BundleStore, is_digest
from trainmaster.bundles.walking import walk_plainly
from trainmaster.client.contract import Client
from trainmaster.history.results import find_code
from trainmaster.jobs.code_files import CodeMapReference, find_code_map
from trainmaster.rest.services.files.code_maps import read_code_files
from trainmaster.rest.services.files.contract import FileList, JobFile, to_printable

NO_CODE = "the job was sent without code: its image, or its command, has the program"
_GONE = "its code was in a ConfigMap that is gone, and the history has no copy"
_NO_BUNDLE = "the bundle with its code is not in the home any more"
_ON_CLUSTER = "not on a cluster: bundles of code are in homes"
_FORBIDDEN = "its code is in a ConfigMap, and you may not read ConfigMaps here"


async def find_live_map(client: Client, job: Fields) -> tuple[Fields | None, str]:
    """The ConfigMap with the code of a job, as the caller may read it; else why not."""
    reference = find_code_map(job)
    if reference is None:
        return None, ""
    try:
        return await client.get(CONFIG_MAPS, reference.name, job["metadata"]["namespace"]), ""
    except NotFound:
        return None, _GONE
    except StatusError as error:
        if error.code != 403:
            raise
        return None, _FORBIDDEN


def list_code_files(
    job: Fields, config_map: Fields | None, missing: str, archive: Path | None, bundles: Path | None
) -> FileList:
    """Blocks. `config_map`: None if there is none any more, for the reason `missing`."""
    digest = read_annotations(job).get(CODE_DIGEST, "")
    reference = find_code_map(job)
    if reference is not None and missing != _FORBIDDEN:
        if config_map is not None:
            return _list_map(config_map, reference, "config-map")
        kept = None if archive is None else find_code(archive, job["metadata"]["uid"])
        return FileList(missing=missing or _GONE) if kept is None else _list_map(kept, reference, "record")
    if reference is None and is_digest(digest):
        return FileList(missing=_ON_CLUSTER) if bundles is None else _list_bundle(bundles, digest)
    return FileList(missing=missing or NO_CODE)


def _list_map(config_map: Fields, reference: CodeMapReference, source: str) -> FileList:
    files = read_code_files(config_map, reference)
    made = [JobFile(path, len(content), partial(io.BytesIO, content)) for path, content in sorted(files.items())]
    return FileList(made, source=source)


def _list_bundle(bundles: Path, digest: str) -> FileList:
    stored = BundleStore(bundles).find(digest)
    if stored is None:
        return FileList(missing=_NO_BUNDLE)
    tree = walk_plainly(stored.tree)
    # Bundles do not change, so a path in one is a content.
    files = [
        JobFile(to_printable(path), mark.size, partial(_open, stored.tree, path), (digest, path))
        for path, mark in tree.files.items()
    ]
    files += [
        JobFile(to_printable(path), 0, partial(_open, stored.tree, path), link=to_printable(target))
        for path, target in tree.links.items()
    ]
    return FileList(sorted(files, key=lambda file: file.path), source="bundle")


def _open(tree: Path, path: str) -> BinaryIO:
    return os.fdopen(os.open(tree / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
