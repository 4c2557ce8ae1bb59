"""Streams: a watch as newline-delimited JSON, a followed log as plain text.

A plain watch joins the frames' shared lines, so an event is serialized once for all watchers. Tables are rendered per
watcher. A watch that cannot continue ends with an ERROR event that contains the Status, as upstream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import orjson

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.status import StatusError
from trainmaster.apiserver.contract import Frame, Frames
from trainmaster.apiserver.http import forms
from trainmaster.apiserver.http.messages import JSON, Query
from trainmaster.apiserver.http.negotiate import Form
from trainmaster.kit.clock import Clock


def _nothing() -> None:
    return None


class Pipe(Protocol):
    """A connection in the middle of a stream."""

    def is_ready(self) -> bool: ...

    def send_now(self, payload: bytes) -> None: ...


def _pull_only(pipe: Pipe) -> None:
    return None


@dataclass(slots=True)
class _FrameOutlet:
    """Implements `contract.Outlet` on a pipe."""

    pipe: Pipe
    join: Callable[[Sequence[Frame]], bytes]

    def is_ready(self) -> bool:
        return self.pipe.is_ready()

    def deliver(self, frames: Sequence[Frame]) -> None:
        self.pipe.send_now(self.join(frames))


@dataclass(slots=True)
class StreamResponse:
    """A chunked answer. `pieces` is read until it ends; `close` is always called."""

    pieces: AsyncIterator[bytes]
    content_type: bytes = JSON
    headers: bytes = b""
    close: Callable[[], None] = _nothing
    attach: Callable[[Pipe], None] = _pull_only
    """Called once the head was sent: pieces that arrive while the reader of `pieces` waits may be written to the
    pipe."""
    head_first: bool = True
    """Whether the head is sent before there is data. Otherwise an early refusal becomes the answer."""
    build_error: Callable[[StatusError], bytes] | None = None
    """How a running stream reports why it ends; None if it cannot."""


def watch_stream(frames: Frames, form: Form, kind: Kind, query: Query, clock: Clock) -> StreamResponse:
    if form in (Form.JSON, Form.YAML):
        join, content_type = _join_lines, JSON
    else:
        join = partial(_render_all, forms.event_renderer(form, kind, query, clock))
        content_type = forms.CONTENT_TYPES[form]
    return StreamResponse(
        _pieces(frames, join),
        content_type=content_type,
        close=frames.close,
        attach=lambda pipe: frames.deliver_to(_FrameOutlet(pipe, join)),
        build_error=_error_line,
    )


async def _pieces(frames: Frames, join: Callable[[Sequence[Frame]], bytes]) -> AsyncIterator[bytes]:
    try:
        async for batch in frames:
            if batch:
                yield join(batch)
    except StatusError as error:
        yield _error_line(error)


def _join_lines(batch: Sequence[Frame]) -> bytes:
    return batch[0].line if len(batch) == 1 else b"".join([frame.line for frame in batch])


def _render_all(render: Callable[[Frame], bytes], batch: Sequence[Frame]) -> bytes:
    return b"".join([frame.line if frame.type == "ERROR" else render(frame) for frame in batch])


def _error_line(error: StatusError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.to_object())
