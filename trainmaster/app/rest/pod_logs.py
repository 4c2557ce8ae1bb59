"""Opens the logs of Pods for the REST API of a home, which runs in the same process as the node."""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.jobs.logs.windows.stored import FileBytes
from trainmaster.node.logs.files import LogPieces
from trainmaster.rest.services.log_windows import OpenPodLog
from trainmaster.shim.protocol import Paths


def build_opener(pods: Path) -> OpenPodLog:
    """`pods`: the folder with the directories of all Pods."""

    def open_log(uid: str, container: str, restart: int) -> FileBytes:
        pieces = LogPieces(Path(Paths(str(pods / uid)).log(container, restart)))
        try:
            return FileBytes([os.dup(file) for file in pieces.files])
        finally:
            pieces.close()

    return open_log
