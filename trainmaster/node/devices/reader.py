"""Asks the program `nvml` about this machine's GPUs. Calls block, but never longer than `ANSWER_SECONDS`.

The program is started if the driver's library is installed. If it does not answer, it is asked for the same answer
again at the next call, and killed after some of them; if it ends, it is started again after some more.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trainmaster.node.devices import nvml
from trainmaster.node.devices.nvml import NvmlError, NvmlGpu

LIBRARY = "libnvidia-ml.so.1"
ANSWER_SECONDS = 2.0
"""The server's start waits this long; without NVIDIA's persistence mode the driver may need longer to wake up."""
_MOST_SILENT = 6
_PAUSE_CALLS = 6
"""The node calls every ten seconds, so this is a minute."""
_STOP_SECONDS = 1.0
_NODE = Path("/dev/nvidia0")
_SILENT = "NVML does not answer"
_ENDED = "the program that reads GPUs ended without an answer: NVML may not fit the driver"


def find_library() -> str:
    """Why NVML cannot be used; empty if it can."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return f"{LIBRARY} cannot be loaded: {error}"
    return ""


def build_command() -> list[str]:
    """Without `site`, which in some environments takes longer than everything else."""
    binding = importlib.util.find_spec("pynvml")
    folder = os.path.dirname(binding.origin) if binding is not None and binding.origin else ""
    return [sys.executable, "-I", "-S", nvml.__file__, folder]


class GpuReader:
    """Starts the program at once, so that it imports its libraries while the caller does something else."""

    def __init__(
        self,
        command: Sequence[str] | None = None,
        find_trouble: Callable[[], str] = find_library,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._command = command
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._is_asked = False
        self._text = b""
        self._silent = 0
        self._pause = 0
        self._trouble = ""
        self._is_missing = bool(trouble := find_trouble())
        if not self._is_missing:
            self._start()
        elif _NODE.exists():
            self._trouble = trouble

    def list_gpus(self) -> list[NvmlGpu]:
        """Raises NvmlError if they cannot be read now. Without the driver's library there are none."""
        if self._is_missing:
            if self._trouble:
                raise NvmlError(self._trouble)
            return []
        if self._process is None:
            self._pause -= 1
            if self._pause > 0:
                raise NvmlError(self._trouble)
            self._start()
        return self._ask()

    def close(self) -> None:
        """Abandons a program that hangs in the driver: even a kill has no effect then."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        process.stdout.close()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command or build_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._fail(f"the program that reads GPUs cannot be started: {error.strerror}")
        self._is_asked, self._text, self._silent = False, b"", 0

    def _ask(self) -> list[NvmlGpu]:
        process = self._process
        if process is None:
            raise NvmlError(self._trouble)
        assert process.stdin is not None and process.stdout is not None
        if not self._is_asked:
            self._is_asked = True
            with contextlib.suppress(BrokenPipeError):  # it has ended, and its answer says why
                process.stdin.write(b"\n")
        line = self._read_line(process.stdout.fileno())
        self._is_asked, self._silent = False, 0
        try:
            return nvml.read_answer(line.decode())
        except NvmlError as error:
            self._fail(str(error))
            raise

    def _read_line(self, handle: int) -> bytes:
        while b"\n" not in self._text:
            if not select.select([handle], [], [], self._seconds)[0]:
                self._note_silence()
            piece = os.read(handle, 65536)
            if not piece:
                self._fail(_SILENT if self._silent else _ENDED)
                raise NvmlError(self._trouble)
            self._text += piece
        line, _, self._text = self._text.partition(b"\n")
        return line

    def _note_silence(self) -> None:
        self._silent += 1
        if self._silent >= _MOST_SILENT and self._process is not None:
            self._process.kill()
        raise NvmlError(_SILENT)

    def _fail(self, trouble: str) -> None:
        self.close()
        self._trouble, self._pause = trouble, _PAUSE_CALLS
