"""Leader election with a coordination.k8s.io Lease: of several operators on a cluster, one works.

The holder renews; others take over when they have seen no renewal for the duration of the Lease. Only the local clock
counts, from when a record was first seen, so clocks of machines need not agree. Writes carry the resourceVersion that
was read, so two candidates cannot both win.

Invariants: a holder that cannot renew stops (`LeaseLost`) before anybody else may start. Before each of its writes it
calls `check`, so that a process that stood still (SIGSTOP, a suspended machine) sends nothing after others may have
taken the Lease. Used by `operator.mode`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations, read_spec
from trainmaster.api.resources import LEASES
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock, format_micro_time
from trainmaster.kit.ids import Ids
from trainmaster.kit.scopes import Scope

log = logging.getLogger(__name__)


VERSION = "trainmaster.dev/version"
"""Annotation of a Lease: the version of the program that holds it, or held it last."""


class LeaseLost(Exception):
    """The Lease could not be renewed in time, or somebody else holds it: stop immediately."""


class LeaseExpired(StatusError):
    """A write that was not sent, because the Lease may belong to somebody else by now."""

    def __init__(self, name: str) -> None:
        super().__init__(503, "ServiceUnavailable", f"not sent: the lease {name} is not held any more")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Raises ValueError if two could lead at the same time."""

    duration: int = 15
    """Seconds without a renewal after which others may take over. An integer, as in the API."""
    deadline: float = 10.0
    """Seconds without a successful renewal after which the holder writes nothing and stops. Less than `duration`."""
    period: float = 2.0
    """Seconds between two renewals, and the longest that one may take."""
    wait: float = 1.0
    """Seconds between two attempts to take the Lease."""

    def __post_init__(self) -> None:
        # An attempt may take a period, and a period lies between two attempts: the holder must have stopped by then.
        if not 0 < self.deadline + 2 * self.period < self.duration:
            raise ValueError("a lease needs deadline + 2 * period < duration")


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    namespace: str
    name: str
    identity: str
    """Unique among all candidates: a host or Pod name with a random suffix."""
    times: LeaseTimes = LeaseTimes()
    version: str = ""
    """Of the program, for people: while a Deployment is upgraded, two versions take turns."""


class Lease:
    def __init__(self, client: Client, settings: LeaseSettings, *, clock: Clock, ids: Ids) -> None:
        self._client = client
        self._settings = settings
        self._times = settings.times
        self._clock = clock
        self._ids = ids
        self._seen: tuple[str | None, str | None] | None = None
        self._seen_at = 0.0
        self._renewed_at = -math.inf
        self._released = False
        self._version_seen = ""
        self.refusal: StatusError | None = None
        """The server's answer to the last attempt, if it did not succeed because of that."""

    @property
    def is_held(self) -> bool:
        """In boot time, so that time spent stopped or suspended counts."""
        return self._clock.boot() - self._renewed_at < self._times.deadline

    def check(self) -> None:
        """Raises LeaseExpired unless the Lease is held."""
        if not self.is_held:
            raise LeaseExpired(self._settings.name)

    def check_reports(self) -> None:
        """The same for events about what was done as the leader, which may still be sent after the Lease was given
        back."""
        if not self._released:
            self.check()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Waits until the Lease is ours. LeaseLost cancels the body; leaving releases the Lease."""
        await self._acquire()
        try:
            async with Scope("lease") as scope:
                scope.spawn_forever(self._renew(), name="lease.renew")
                yield
        finally:
            await self._release()

    async def _acquire(self) -> None:
        told = False
        while True:
            began = self._clock.boot()
            if await self._try():
                self._renewed_at = began
                log.info("leading", extra={"action": "lease.acquired", "identity": self._settings.identity})
                return
            if not told:
                leader = {"holder": self._seen[0] if self._seen else "", "version": self._version_seen}
                log.info("another process leads, waiting", extra={"action": "lease.waiting", **leader})
                told = True
            await self._clock.sleep(self._times.wait * (1.0 + 0.2 * self._ids.jitter()))

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._times.period)
            # Counted from before the request, which the server may have stored immediately and answered late.
            began = self._clock.boot()
            if await self._try():
                self._renewed_at = began
            elif self._seen is not None and self._seen[0] != self._settings.identity:
                raise LeaseLost(f"the lease {self._settings.name} was taken by {self._seen[0] or 'nobody'}")
            elif self._clock.boot() - self._renewed_at >= self._times.deadline:
                raise LeaseLost(f"the lease {self._settings.name} was not renewed for {self._times.deadline:g} s")

    async def _try(self) -> bool:
        """One attempt to acquire or renew; False if it failed for any reason."""
        try:
            async with asyncio.timeout(self._times.period):
                written = await self._write()
        except (StatusError, OSError) as error:
            self.refusal = error if isinstance(error, StatusError) else None
            # Of the time limit, which is an OSError too, there is no text.
            text = str(error) or f"no answer within {self._times.period:g} s"
            log.warning("lease not written", extra={"action": "lease.retry", "error": text})
            return False
        self.refusal = None
        return written

    async def _write(self) -> bool:
        settings = self._settings
        try:
            found = await self._client.get(LEASES, settings.name, settings.namespace)
        except NotFound:
            meta = self._mark({"metadata": {"name": settings.name, "namespace": settings.namespace}})
            lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta, "spec": self._build_spec({})}
            self._note(await self._client.create(LEASES, lease, settings.namespace))
            return True
        self._note(found)
        if not self._is_free(found):
            return False
        wanted = {**found, "metadata": self._mark(found), "spec": self._build_spec(found)}
        self._note(await self._client.update(LEASES, wanted, settings.namespace))
        return True

    def _mark(self, before: Fields) -> Object:
        """The metadata, with our version."""
        marks = {**read_annotations(before), VERSION: self._settings.version}
        meta: Fields = before["metadata"]
        return {**meta, "annotations": marks} if self._settings.version else dict(meta)

    def _is_free(self, lease: Fields) -> bool:
        spec = read_spec(lease)
        if not spec.get("holderIdentity") or spec["holderIdentity"] == self._settings.identity:
            return True
        lasts = spec.get("leaseDurationSeconds") or self._times.duration
        return self._clock.boot() - self._seen_at > lasts

    def _note(self, lease: Fields) -> None:
        """Records when this record was first seen; its own times are another machine's and are ignored."""
        spec = read_spec(lease)
        self._version_seen = read_annotations(lease).get(VERSION, "")
        record = (spec.get("holderIdentity"), spec.get("renewTime"))
        if record != self._seen:
            self._seen, self._seen_at = record, self._clock.boot()

    def _build_spec(self, before: Fields) -> Object:
        spec = read_spec(before)
        now = format_micro_time(self._clock.now())
        mine = spec.get("holderIdentity") == self._settings.identity
        transitions = spec.get("leaseTransitions") or 0
        return {
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._times.duration,
            "acquireTime": spec.get("acquireTime", now) if mine else now,
            "renewTime": now,
            "leaseTransitions": transitions if mine or not spec else transitions + 1,
        }

    async def _release(self) -> None:
        """Releases the Lease, so that the next holder need not wait. If this fails, it waits. Nothing is written as the
        leader from here on, whether the release succeeds or not."""
        settings = self._settings
        self._renewed_at = -math.inf
        try:
            async with asyncio.timeout(self._times.period):
                found = await self._client.get(LEASES, settings.name, settings.namespace)
                spec = read_spec(found)
                if spec.get("holderIdentity") == settings.identity:
                    spec = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.update(LEASES, {**found, "spec": spec}, settings.namespace)
                    self._released = True
                    log.info("lease given back", extra={"action": "lease.released", "identity": settings.identity})
        except (StatusError, OSError) as error:
            log.warning("lease not given back", extra={"action": "lease.kept", "error": str(error)})
