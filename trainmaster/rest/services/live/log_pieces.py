"""A log stream in pieces: each is one event with the id that a client has after it. Encoded once for all followers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from trainmaster.api.meta import Object
from trainmaster.jobs.logs.contract import Line
from trainmaster.rest.services.live.log_cursor import Batch, Item, LogCursor, Placed, StreamEnd
from trainmaster.rest.services.log_answers import build_line
from trainmaster.rest.services.streams import encode_raw

_LINES = 100
"""The maximum number of lines per event."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    kind: str
    """`log`, `mark` or `end`."""
    data: bytes
    id: str
    items: tuple[Placed, ...]
    """For followers that have seen a part of it."""
    frame: bytes
    """The whole event."""


class PieceBuilder:
    """Advances the cursor with every piece."""

    def __init__(self, cursor: LogCursor) -> None:
        self._cursor = cursor

    def build(self, batch: Batch) -> list[LogPiece]:
        pieces: list[LogPiece] = []
        lines: list[Line] = []
        for item in batch:
            if isinstance(item, Line):
                lines.append(item)
                if len(lines) < _LINES:
                    continue
            self._take(lines, pieces)
            if not isinstance(item, Line):
                pieces.append(self._build_one(item))
        self._take(lines, pieces)
        return pieces

    def _take(self, lines: list[Line], pieces: list[LogPiece]) -> None:
        if lines:
            placed = tuple(self._cursor.note(line) for line in lines)
            data = orjson.dumps({"lines": [_build_placed(line, one) for line, one in zip(lines, placed, strict=True)]})
            pieces.append(self._finish("log", data, placed))
            lines.clear()

    def _build_one(self, item: Item) -> LogPiece:
        placed = self._cursor.note(item)
        if isinstance(item, StreamEnd):
            return self._finish("end", orjson.dumps({"state": item.state}), (placed,))
        assert not isinstance(item, Line)
        data = {"kind": item.kind, "attempt": item.attempt, "text": item.text}
        return self._finish("mark", orjson.dumps(data), (placed,))

    def _finish(self, kind: str, data: bytes, items: tuple[Placed, ...]) -> LogPiece:
        position = self._cursor.dump()
        return LogPiece(kind, data, position, items, encode_raw(kind, data, position))


def _build_placed(line: Line, placed: Placed) -> Object:
    """With its number among the lines of its time, as `jobs.logs.windows` counts them."""
    return {**build_line(line), "same": placed.place[2] - 1 if placed.place else 0}


def encode_pieces(batches: Sequence[Sequence[LogPiece]]) -> bytes:
    return b"".join(piece.frame for piece in itertools.chain.from_iterable(batches))
