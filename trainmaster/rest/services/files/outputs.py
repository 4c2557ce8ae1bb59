"""What a job wrote: its output directory, and what rank 0 left in its working directory and its home
(`trainmaster.history.results`)."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from trainmaster.history.results import Output, list_outputs, open_output
from trainmaster.kit.clock import format_time
from trainmaster.rest.services.files.contract import FileList, JobFile, to_printable


def list_output_files(archive: Path, uid: str) -> FileList:
    """Blocks. Also of a deleted job."""
    return FileList([_build(output) for output in list_outputs(archive, uid)])


def _build(output: Output) -> JobFile:
    return JobFile(
        to_printable(output.path),
        output.bytes,
        partial(_open, output),
        (os.fspath(output.source), output.bytes, output.modified),
        format_time(datetime.fromtimestamp(output.modified, UTC)),
        to_printable(output.link),
    )


def _open(output: Output) -> BinaryIO:
    return os.fdopen(open_output(output), "rb")
