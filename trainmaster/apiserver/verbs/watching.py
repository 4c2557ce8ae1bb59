"""GET with watch: the current state if requested, then every change, in order, without gaps or duplicates.

An event is encoded once for all watchers: frames are shared through `FrameCache`. With a selector, an object that
starts to match is ADDED, and one that no longer matches is DELETED with its previous state. Bookmarks tell idle
watchers the current revision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

import orjson

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.apiserver import stored
from trainmaster.apiserver.contract import Frame, Outlet
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import metadata
from trainmaster.apiserver.verbs.listing import current, read_revision
from trainmaster.apiserver.verbs.selection import Selection, parse_selection
from trainmaster.client.contract import WatchOptions
from trainmaster.store.contract import Compacted, Event, EventType, Lagging, StoredRecord, Watch

_BOOKMARK_SECONDS = 60.0
"""As upstream."""
_BATCH = 250
"""Records or events processed before yielding to other tasks."""
_CACHED_FRAMES = 2048


class FrameCache:
    """Frames of recent events by (revision, API version of the kind, type); the oldest are evicted first."""

    def __init__(self, size: int = _CACHED_FRAMES) -> None:
        self._frames: dict[tuple[int, str, str], Frame] = {}
        self._order: deque[tuple[int, str, str]] = deque()
        self._size = size

    def frame(self, state: RegistryState, kind: Kind, type: str, record: StoredRecord) -> Frame:
        key = (record.revision, kind.group, type)
        frame = self._frames.get(key)
        if frame is None:
            same = record if kind.from_storage is None and type != "DELETED" else None
            frame = self._remember(key, Frame(type, state.show(kind, record), record.revision, same))
        return frame

    def left(self, state: RegistryState, kind: Kind, record: StoredRecord, previous: StoredRecord) -> Frame:
        """DELETED for a watcher whose selector no longer matches: the previous state with the new revision."""
        key = (record.revision, kind.group, "LEFT")
        frame = self._frames.get(key)
        if frame is None:
            obj = state.read(kind, previous)
            obj["metadata"]["resourceVersion"] = str(record.revision)
            frame = self._remember(key, Frame("DELETED", stored.dump(obj), record.revision))
        return frame

    def _remember(self, key: tuple[int, str, str], frame: Frame) -> Frame:
        self._frames[key] = frame
        self._order.append(key)
        if len(self._order) > self._size:
            self._frames.pop(self._order.popleft(), None)
        return frame


class RegistryFrames:
    """One watch. See `contract.Frames`."""

    def __init__(
        self,
        state: RegistryState,
        cache: FrameCache,
        kind: Kind,
        selection: Selection,
        options: WatchOptions,
        watch: Watch,
    ) -> None:
        self._state = state
        self._cache = cache
        self._kind = kind
        self._selection = selection
        self._watch = watch
        self._bookmarks = options.bookmarks
        self._initial: deque[StoredRecord] = deque()
        self._initial_revision = 0
        self._announce_end = False
        self._events: deque[Event] = deque()
        self._durable_start = 0
        loop = asyncio.get_running_loop()
        self._deadline = None if options.timeout_seconds is None else loop.time() + options.timeout_seconds
        self._bookmark_at = loop.time() + _BOOKMARK_SECONDS
        self._more = False
        """Whether there are more events that can be sent immediately."""
        self._failure: Exception | None = None
        self._done = False

    def begin_with(self, records: Sequence[StoredRecord], *, announce_end: bool, durable: bool) -> None:
        """Sets the initial state to send, and whether a bookmark follows it."""
        self._initial.extend(records)
        self._initial_revision = self._state.store.revision
        self._announce_end = announce_end
        self._durable_start = self._initial_revision if durable else 0

    def __aiter__(self) -> AsyncIterator[Sequence[Frame]]:
        return self

    async def __anext__(self) -> Sequence[Frame]:
        if self._durable_start:
            revision, self._durable_start = self._durable_start, 0
            await self._state.store.durable(revision)
        while not self._done:
            if self._more:
                # A long history with a fast reader must not block other tasks.
                await asyncio.sleep(0)
            frames = self._initial_frames() if self._initial or self._announce_end else await self._live_frames()
            self._more = bool(self._initial or self._events)
            if frames:
                return frames
        self.close()
        raise StopAsyncIteration

    def close(self) -> None:
        self._done = True
        self._watch.close()

    def deliver_to(self, outlet: Outlet) -> None:
        """See `contract.Frames`."""

        def push() -> bool:
            if not outlet.is_ready():
                return False
            try:
                events = self._watch.take()
                if not events or len(events) > _BATCH:
                    self._events.extend(events)
                    return False
                frames = [frame for event in events if (frame := self._translate(event)) is not None]
                if frames:
                    outlet.deliver(frames)
            except Lagging:
                return False  # `__anext__` will get the same error and report it
            except Exception as error:  # noqa: BLE001 - raised in the watcher's own task
                self._failure = error
                return False
            return True

        self._watch.listen(push)

    def _initial_frames(self) -> list[Frame]:
        frames = []
        for _ in range(min(_BATCH, len(self._initial))):
            record = self._initial.popleft()
            if self._selection.matches(self._kind, record):
                # Old records would evict recent events from the cache.
                frames.append(Frame("ADDED", self._state.show(self._kind, record), record.revision))
        if not self._initial and self._announce_end:
            self._announce_end = False
            frames.append(self._bookmark(self._initial_revision, ends_initial=True))
        return frames

    async def _live_frames(self) -> list[Frame]:
        try:
            if not self._events:
                await self._wait()
            frames = []
            for _ in range(min(_BATCH, len(self._events))):
                frame = self._translate(self._events.popleft())
                if frame is not None:
                    frames.append(frame)
        except Lagging:
            self._done = True
            error = status.too_old(self._watch_revision(), self._state.store.revision)
            return [Frame("ERROR", orjson.dumps(error.to_object()), self._state.store.durable_revision)]
        if not self._events:
            frames.extend(self._due_bookmark())
        return frames

    async def _wait(self) -> None:
        """Waits until there are events, a bookmark is due, or the time limit is reached."""
        self._events.extend(self._watch.take())
        if self._events:
            return
        wake_at = self._deadline
        if self._bookmarks:
            wake_at = self._bookmark_at if wake_at is None else min(wake_at, self._bookmark_at)
        if wake_at is None:
            await self._watch.ready()
        else:
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._watch.ready()
            except TimeoutError:
                self._done = self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline
        if self._failure is not None:
            raise self._failure
        self._events.extend(self._watch.take())
        self._done = self._done or self._watch.closed

    def _translate(self, event: Event) -> Frame | None:
        record, previous, selection = event.record, event.previous, self._selection
        if not selection.covers(record):
            return None
        kind, cache, state = self._kind, self._cache, self._state
        if selection.plain:
            matched, matches = previous is not None, event.type is EventType.PUT
        else:
            matched = previous is not None and selection.matches(kind, previous)
            matches = event.type is EventType.PUT and selection.matches(kind, record)
        if matches:
            return cache.frame(state, kind, "MODIFIED" if matched else "ADDED", record)
        if not matched:
            return None
        if event.type is EventType.DELETE:
            return cache.frame(state, kind, "DELETED", record)
        assert previous is not None
        return cache.left(state, kind, record, previous)

    def _due_bookmark(self) -> list[Frame]:
        now = asyncio.get_running_loop().time()
        if not self._bookmarks or now < self._bookmark_at:
            return []
        self._bookmark_at = now + _BOOKMARK_SECONDS
        return [self._bookmark(self._watch.position)]

    def _bookmark(self, revision: int, *, ends_initial: bool = False) -> Frame:
        meta: dict[str, object] = {"resourceVersion": str(revision)}
        if ends_initial:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta}
        return Frame("BOOKMARK", orjson.dumps(obj), revision)

    def _watch_revision(self) -> int:
        return self._events[-1].revision if self._events else self._initial_revision


def check_options(options: WatchOptions) -> None:
    match = options.resource_version_match
    errors = []
    if options.send_initial_events is not None and match != "NotOlderThan":
        errors.append(
            fields.forbidden(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
        )
    if match and options.send_initial_events is None:
        errors.append(
            fields.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if match not in ("", "NotOlderThan"):
        errors.append(fields.not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if errors:
        raise metadata.options_invalid("ListOptions", errors)


def open_watch(
    state: RegistryState, cache: FrameCache, kind: Kind, namespace: str, options: WatchOptions, *, durable: bool
) -> RegistryFrames:
    check_options(options)
    selection = parse_selection(kind, namespace, options.label_selector, options.field_selector)
    store = state.store
    asked = read_revision(options.resource_version or "0")
    initial = options.send_initial_events
    from_now = initial is True or (initial is None and asked == 0) or (initial is False and asked == 0)
    try:
        if asked > store.revision:
            raise Compacted(asked, store.revision)
        watch = store.watch(stored.bucket(kind), store.revision if from_now else asked, durable=durable)
    except Compacted as error:
        # Also for revisions above the newest one: they are from another store, so waiting would not help.
        raise status.too_old(error.asked, error.oldest) from None
    frames = RegistryFrames(state, cache, kind, selection, options, watch)
    if initial is True or (initial is None and asked == 0):
        records = current(state, kind, selection, "")
        frames.begin_with(records, announce_end=initial is True and options.bookmarks, durable=durable)
    return frames
