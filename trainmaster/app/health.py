"""Readiness checks of the server, and gauges of the store and the process.

`/readyz` fails while a commit hangs because the disk does not respond. There is no check for failed commits, because a
failed commit ends the process.
"""

from __future__ import annotations

from functools import partial

from trainmaster.app.gauges import read_resident_bytes
from trainmaster.app.metrics import MEMORY, STORE_REVISION
from trainmaster.engine.manager import Manager
from trainmaster.kit.clock import Clock
from trainmaster.kit.metrics import Metrics
from trainmaster.node.host.components import Check, name_controller
from trainmaster.node.host.registration import NodeKeeper
from trainmaster.store.contract import Store

LONGEST_COMMIT_SECONDS = 10.0
"""Longer than any commit on a working disk, shorter than the timeout of a probe."""


class CommitCheck:
    """Returns "" if commits succeed, otherwise how long the disk has not responded."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reached = store.durable_revision
        self._since = clock.monotonic()

    def __call__(self) -> str:
        reached, now = self._store.durable_revision, self._clock.monotonic()
        if reached >= self._store.revision or reached != self._reached:
            self._reached, self._since = reached, now
            return ""
        waited = now - self._since
        return f"no commit for {waited:.0f} s" if waited > LONGEST_COMMIT_SECONDS else ""


def build_checks(store: Store, clock: Clock, manager: Manager, keeper: NodeKeeper) -> dict[str, Check]:
    """A check per part of the control plane, by the name of its Pod. Returns "" if the part is ready, else why not."""
    checks: dict[str, Check] = {"trainmaster-apiserver": CommitCheck(store, clock)}
    for name in manager.names:
        checks[name_controller(name)] = partial(manager.find_trouble, name)
    checks["trainmaster-node"] = lambda: keeper.trouble
    return checks


def declare_gauges(metrics: Metrics, store: Store) -> None:
    metrics.gauge(
        STORE_REVISION,
        lambda: {("newest",): float(store.revision), ("durable",): float(store.durable_revision)},
    )
    metrics.gauge(MEMORY, read_resident_bytes)
