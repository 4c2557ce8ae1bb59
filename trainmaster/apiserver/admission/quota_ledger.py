"""Updates `status.used` of ResourceQuotas: requests of Pods and claims, numbers of objects, their bytes.

The usage of an object is added when it is written and subtracted when it is deleted, so no namespace is scanned,
however large it is. Admission relies on the usage of Pods and claims, so that is updated at once; numbers of objects
are only shown, and are updated once per second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from fractions import Fraction

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.pods.quotas import Usage
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import RESOURCE_QUOTAS
from trainmaster.api.tenancy import OBJECT_BYTES, PIDS, STORAGE
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.quotas import BUCKET, list_counts, show
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.work import KeyedWorker
from trainmaster.store.contract import Event, EventType, StoredRecord

_MEASURED_BY_NODE = (PIDS, STORAGE)
"""Resources that the node measures and enforces. The node writes their `status.used`, so they are skipped here."""
_SHOW_SECONDS = 1.0


class _Account:
    """The requests of the Pods and claims of one namespace, and their sum."""

    __slots__ = ("entries", "total")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Usage] = {}
        self.total: Usage = {}

    def set(self, key: tuple[str, str], usage: Usage) -> bool:
        """Returns whether the sum has changed."""
        before = self.entries.get(key, {})
        if before == usage:
            return False
        for sign, amounts in ((-1, before), (1, usage)):
            for name, value in amounts.items():
                self.total[name] = self.total.get(name, Fraction(0)) + sign * value
        if usage:
            self.entries[key] = usage
        else:
            del self.entries[key]
        return True


class QuotaController:
    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self.worker: KeyedWorker[str] = KeyedWorker("quotas", self._count, state.clock, state.store)
        self._contents = {
            stored.bucket(kind): kind
            for kind in state.catalogue.kinds
            if kind.namespaced and not (kind.review or kind.measured) and kind.storage is None
        }
        self._measured = {bucket: kind for bucket, kind in self._contents.items() if kind.quotas.measure is not None}
        self._accounts: dict[str, _Account] = {}
        self._shown: dict[str, float] = {}
        """Namespace to the time of its last, or next, count of objects."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._end: Callable[[], None] = state.store.subscribe(self._follow)
        for record in state.store.scan(BUCKET):
            self.worker.add(stored.split_name(record.name)[0])

    async def run(self) -> None:
        await self.worker.run()

    def close(self) -> None:
        self._end()
        for timer in self._timers.values():
            timer.cancel()

    def _follow(self, events: Sequence[Event]) -> None:
        if not self._state.store.count(BUCKET):
            self._accounts.clear()
            return
        namespaces: dict[str, bool] = {}
        for event in events:
            namespace, _ = stored.split_name(event.record.name)
            if namespace:
                namespaces[namespace] = self._note(namespace, event) or namespaces.get(namespace, False)
        for namespace, at_once in namespaces.items():
            if not self._state.store.count(BUCKET, f"{namespace}/"):
                self._accounts.pop(namespace, None)
            elif at_once:
                self.worker.add(namespace)
            else:
                self._count_soon(namespace)

    def _note(self, namespace: str, event: Event) -> bool:
        """Returns whether admission depends on the change."""
        record = event.record
        if record.bucket == BUCKET:
            return event.type is EventType.PUT and _has_new_limits(self._state, event)
        kind = self._measured.get(record.bucket)
        account = self._accounts.get(namespace)
        if kind is None or account is None:
            return False
        usage = self._measure(kind, record) if event.type is EventType.PUT else {}
        return account.set((record.bucket, record.name), usage)

    def _measure(self, kind: Kind, record: StoredRecord) -> Usage:
        return {} if kind.quotas.measure is None else kind.quotas.measure(self._state.parsed.get(record))

    def _count_soon(self, namespace: str) -> None:
        """Counts at once for the first change; further changes are batched."""
        now = self._state.clock.monotonic()
        due = self._shown.get(namespace, 0.0) + _SHOW_SECONDS
        if due <= now:
            self.worker.add(namespace)
        elif namespace not in self._timers:
            self._timers[namespace] = asyncio.get_running_loop().call_later(due - now, self._count_later, namespace)

    def _count_later(self, namespace: str) -> None:
        self._timers.pop(namespace, None)
        self.worker.add(namespace)

    def _count(self, namespace: str) -> None:
        self._shown[namespace] = self._state.clock.monotonic()
        kind = self._state.catalogue.find(RESOURCE_QUOTAS)
        assert kind is not None
        for record in self._state.store.scan(BUCKET, f"{namespace}/"):
            quota = self._state.parsed.get(record)
            hard = read_fields(quota, "spec", "hard")
            before = read_fields(quota, "status", "used")
            usage = self._get_usage(namespace)
            used = {
                name: before.get(name, "0") if name in _MEASURED_BY_NODE else show(usage.get(name, Fraction(0)), limit)
                for name, limit in sorted(hard.items())
            }
            now = {"hard": dict(hard), "used": used}
            if quota.get("status") != now:
                self._state.put(kind, {**quota, "metadata": dict(quota["metadata"]), "status": now}, record)

    def _get_usage(self, namespace: str) -> Usage:
        store = self._state.store
        total: Usage = dict(self._get_account(namespace).total)
        for bucket, kind in self._contents.items():
            total |= dict.fromkeys(list_counts(kind), Fraction(store.count(bucket, f"{namespace}/")))
        total[OBJECT_BYTES] = Fraction(store.measure(namespace))
        return total

    def _get_account(self, namespace: str) -> _Account:
        """The account; on first use it is computed from all objects of the namespace."""
        account = self._accounts.get(namespace)
        if account is None:
            account = self._accounts[namespace] = _Account()
            for bucket, kind in self._measured.items():
                for record in self._state.store.scan(bucket, f"{namespace}/"):
                    account.set((bucket, record.name), self._measure(kind, record))
        return account


def _has_new_limits(state: RegistryState, event: Event) -> bool:
    """Whether the spec of a quota has changed. Status-only writes come from admission, this controller or the node."""
    if event.previous is None:
        return True
    new: Object = state.parsed.get(event.record)
    old: Object = stored.parse(event.previous.value)
    return bool(new["spec"] != old["spec"])
