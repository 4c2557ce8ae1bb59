"""Streams: a watch as newline-delimited JSON, a followed log as plain text.

A plain watch joins the frames' shared lines, so that an event is serialised once for all watchers. Tables are made per
watcher. A watch that can not go on ends with an ERROR event that carries the Status, as upstream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import orjson

from trainmaster.api.kinds import Kind
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Frame, Frames
from trainmaster.apiserver.http import forms
from trainmaster.apiserver.http.messages import JSON, Query
from trainmaster.apiserver.http.negotiate import Form
from trainmaster.kit.clock import Clock


def _nothing() -> None:
    return None


@dataclass(slots=True)
class StreamResponse:
    """A chunked answer. `pieces` is read until it ends; `close` is called in every case."""

    pieces: AsyncIterator[bytes]
    content_type: bytes = JSON
    headers: bytes = b""
    close: Callable[[], None] = _nothing
    head_first: bool = True
    """Whether the head goes out before there is anything to send. Without it, a refusal that comes first becomes the
    answer."""


def watch_stream(frames: Frames, form: Form, kind: Kind, query: Query, clock: Clock) -> StreamResponse:
    if form in (Form.JSON, Form.YAML):
        return StreamResponse(_plain(frames), close=frames.close)
    return StreamResponse(
        _converted(frames, forms.event_renderer(form, kind, query, clock)),
        content_type=forms.CONTENT_TYPES[form],
        close=frames.close,
    )


async def _plain(frames: Frames) -> AsyncIterator[bytes]:
    try:
        async for batch in frames:
            if len(batch) == 1:
                yield batch[0].line
            elif batch:
                yield b"".join([frame.line for frame in batch])
    except StatusError as error:
        yield _error_line(error)


async def _converted(frames: Frames, render: Callable[[Frame], bytes]) -> AsyncIterator[bytes]:
    try:
        async for batch in frames:
            if batch:
                yield _render_all(batch, render)
    except StatusError as error:
        yield _error_line(error)


def _render_all(batch: Sequence[Frame], render: Callable[[Frame], bytes]) -> bytes:
    return b"".join([frame.line if frame.type == "ERROR" else render(frame) for frame in batch])


def _error_line(error: StatusError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.to_object())
