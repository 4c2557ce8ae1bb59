"""What a store promised before it died, and the check that it kept its word. Shared by all crash tests.

Writers report an attempt before a write and an acknowledgement after it; outside watchers report what was delivered to
them. After each restart `find_violations` compares that with what is really there:

- an acknowledged write is there, unless a later attempt on the same key, whose outcome is unknown, replaced it;
- nothing else is there: no deleted key comes back, no foreign value appears;
- a watch resumed behind the last delivered event continues so that all lives together saw every revision exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.store.contract import Compacted, Event, Store

BUCKETS = ("a", "b")

Key = tuple[str, str]


@dataclass
class _Known:
    """The last state of a key that is certain. `value` None: the key does not exist."""

    revision: int = 0
    value: str | None = None
    open_attempts: list[str | None] = field(default_factory=list)


class History:
    def __init__(self) -> None:
        self._keys: dict[Key, _Known] = {}
        self._last_seen = dict.fromkeys(BUCKETS, 0)
        self._seen: dict[int, Key] = {}
        self._acked: dict[int, Key] = {}
        self._problems: list[str] = []
        self.acks = 0

    def attempt(self, key: Key, value: str | None) -> None:
        self._keys.setdefault(key, _Known()).open_attempts.append(value)

    def ack(self, key: Key, revision: int) -> None:
        known = self._keys[key]
        self._keys[key] = _Known(revision, known.open_attempts[-1])
        self._acked[revision] = key
        self.acks += 1

    def deliver(self, key: Key, revision: int) -> None:
        """An outside watcher received this event."""
        if revision in self._seen:
            self._problems.append(f"revision {revision} was delivered twice: {self._seen[revision]}, {key}")
        if revision <= self._last_seen[key[0]]:
            self._problems.append(f"revision {revision} was delivered after {self._last_seen[key[0]]}")
        self._seen[revision] = key
        self._last_seen[key[0]] = max(revision, self._last_seen[key[0]])

    def find_violations(self, store: Store) -> list[str]:
        """Checks the store that was opened after a crash; then takes its state as certain, for the next life."""
        problems, self._problems = self._problems, []
        problems += self._check_keys(store)
        problems += self._check_events(store)
        self._settle(store)
        return problems

    def _check_keys(self, store: Store) -> list[str]:
        problems = []
        for key, known in self._keys.items():
            record = store.get(*key)
            value = record.value.decode().strip() if record is not None else None
            as_acked = value == known.value and (record is None or record.revision == known.revision)
            as_attempted = value in known.open_attempts and (record is None or record.revision > known.revision)
            if not as_acked and not as_attempted:
                found = (record.revision if record is not None else 0, value)
                problems.append(f"{key}: acknowledged {(known.revision, known.value)}, found {found}")
        for bucket in BUCKETS:
            for record in store.scan(bucket):
                if (bucket, record.name) not in self._keys:
                    problems.append(f"{bucket}/{record.name} was never written")
        newest = max([0, *self._acked, *self._seen])
        if store.revision < newest:
            problems.append(f"revision went back from {newest} to {store.revision}")
        return problems

    def _check_events(self, store: Store) -> list[str]:
        problems = []
        for bucket in BUCKETS:
            try:
                events = list(_resume(store, bucket, self._last_seen[bucket]))
            except Compacted as error:
                problems.append(f"bucket {bucket} cannot be resumed: {error}")
                continue
            for event in events:
                self.deliver((bucket, event.record.name), event.revision)
        missing = sorted(set(range(1, store.revision + 1)) - set(self._seen))
        if missing:
            problems.append(f"{len(missing)} revisions were never delivered, first {missing[:5]}")
        for revision, key in self._acked.items():
            if self._seen.get(revision, key) != key:
                problems.append(f"revision {revision}: acknowledged for {key}, delivered for {self._seen[revision]}")
        found, self._problems = self._problems, []
        return problems + found

    def _settle(self, store: Store) -> None:
        for key in self._keys:
            record = store.get(*key)
            if record is None:
                self._keys[key] = _Known()
            else:
                self._keys[key] = _Known(record.revision, record.value.decode().strip())


def _resume(store: Store, bucket: str, after: int) -> list[Event]:
    watch = store.watch(bucket, after)
    try:
        return watch.take()
    finally:
        watch.close()
