"""The directory of one Pod: working directory, log per container and attempt, and records of its processes.

    <root>/<uid>/work/                     where its processes start
    <root>/<uid>/logs/<container>/<n>.log  output of attempt n, both streams as they come
    <root>/<uid>/run/<container>.<n>.json  intent, then the process, then its end: the truth after a crash

A record is written whole to a temporary name and renamed. The intent is written before the process starts, so that a
crash in between is seen and nothing is started twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt of one container. `pid` 0 is the intent; `exit_code` is known once the end was seen."""

    container: str
    attempt: int
    pid: int = 0
    start_ticks: int = 0
    """Start time of the process in the kernel's clock ticks since boot: with the pid, who it is."""
    boot_id: str = ""
    started_at: str = ""
    finished_at: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""


class PodFiles:
    def __init__(self, root: Path, uid: str) -> None:
        self.directory = root / uid
        self.work = self.directory / "work"

    def make(self) -> None:
        for path in (self.work, self.directory / "logs", self.directory / "run"):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def get_log(self, container: str, attempt: int) -> Path:
        return self.directory / "logs" / container / f"{attempt}.log"

    def open_log(self, container: str, attempt: int) -> int:
        """A descriptor for the output of a new attempt; the caller closes it."""
        path = self.get_log(container, attempt)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write_record(self, record: Record) -> None:
        self._write(f"{record.container}.{record.attempt}.json", orjson.dumps(asdict(record)))

    def read_records(self) -> Iterator[Record]:
        """The newest attempt of each container."""
        newest: dict[str, Record] = {}
        for path in sorted((self.directory / "run").glob("*.json")):
            if path.name == "ports.json":
                continue
            record = Record(**orjson.loads(path.read_bytes()))
            if record.container not in newest or newest[record.container].attempt < record.attempt:
                newest[record.container] = record
        return iter(newest.values())

    def write_ports(self, ports: dict[int, int]) -> None:
        self._write("ports.json", orjson.dumps(ports, option=orjson.OPT_NON_STR_KEYS))

    def read_ports(self) -> dict[int, int]:
        path = self.directory / "run" / "ports.json"
        if not path.exists():
            return {}
        return {int(asked): leased for asked, leased in orjson.loads(path.read_bytes()).items()}

    def _write(self, name: str, content: bytes) -> None:
        path = self.directory / "run" / name
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
