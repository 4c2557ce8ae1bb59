"""The certificate of the webhooks, or of the records, in a TLS context that is kept current: new connections get what
is current, and established ones are not touched.

`SecretKeys` follows the Secret that the replicas share; the first one creates it, and the leader takes the steps of
`rotation`. `MountedKeys` reads a directory that somebody else keeps current, such as cert-manager, who then keeps
`caBundle` right too.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from trainmaster.api.meta import Object
from trainmaster.api.resources import SECRETS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.auth.issuing import issue_apart
from trainmaster.auth.pki import ServerKeys
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.operator import tls
from trainmaster.operator.webhooks.rotation import (
    SECRET,
    RotationStep,
    RotationTimes,
    WebhookKeys,
    build_secret,
    decide_step,
    is_usable,
    read_secret,
)

log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""How often a mounted directory is looked at; nothing tells a process of a change in a mounted Secret."""
_RETRY = BackoffPolicy(first=2.0, cap=60.0)
_TRIES = 5


class SecretKeys:
    """`context` and `keys` are there once `start` has returned."""

    context: ssl.SSLContext

    def __init__(
        self,
        client: Client,
        namespace: str,
        names: tuple[str, ...],
        clock: Clock,
        times: RotationTimes,
        secret: str = SECRET,
    ) -> None:
        self._client = client
        self._secret = secret
        self._namespace = namespace
        self._names = names
        self._clock = clock
        self._times = times
        self._version = ""
        self._seen_at = 0.0
        self._served: ServerKeys | None = None
        self.keys: WebhookKeys | None = None
        """As last seen; None if the Secret is gone or cannot be read. The context then stays what it was."""
        self.notices: list[Callable[[], None]] = []
        """Called after every change."""

    @property
    def expires(self) -> datetime | None:
        """When the certificate that serves expires."""
        return None if self.keys is None else self.keys.expires

    async def start(self) -> None:
        """Returns once there is a certificate, which is made if necessary; several replicas agree on one."""
        for _ in range(_TRIES):
            try:
                self._take(await self._client.get(SECRETS, self._secret, self._namespace))
            except NotFound:
                self._take(None)
            if self.keys is not None and is_usable(self.keys, self._names, self._clock.now()):
                return
            with suppress(AlreadyExists, Conflict):
                await self._store(self._client, self._decide())
        raise OSError(f"the Secret {self._namespace}/{SECRET} changes all the time")

    def renew_context(self) -> ssl.SSLContext:
        """Another context, for a port that changes what else it does; it is kept current instead of the old one."""
        assert self._served is not None, "it was started"
        self.context = tls.build_context(self._served.certificate, self._served.key)
        return self.context

    async def follow(self) -> NoReturn:
        """For every replica: keeps the context current."""

        async def begin(found: list[Object]) -> None:
            self._take(found[0] if found else None)

        async def change(event: WatchEvent) -> None:
            self._take(None if event.type == "DELETED" else event.object)

        await follow(
            self._client,
            self._clock,
            SECRETS,
            begin,
            change,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._secret}",
        )

    async def rotate(self, client: Client) -> NoReturn:
        """For the leader: takes every step of a rotation when its time has come. `client` is the leader's."""
        news = asyncio.Event()
        self.notices.append(news.set)
        failures = 0
        try:
            while True:
                news.clear()
                step = self._decide()
                wait = step.wait
                if step.keys is not None:
                    # The watch shows what was stored, or what somebody else was quicker to store.
                    failures = 0 if await self._try_to_store(client, step) else failures + 1
                    wait = _RETRY.delay(failures + 1)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await news.wait()
        finally:
            self.notices.remove(news.set)

    def _decide(self) -> RotationStep:
        seen = self._clock.boot() - self._seen_at
        return decide_step(self.keys, self._names, self._clock.now(), seen, self._times, self._issue)

    def _issue(self) -> ServerKeys:
        return issue_apart(self._names, self._clock, self._times.days)

    async def _try_to_store(self, client: Client, step: RotationStep) -> bool:
        try:
            await self._store(client, step)
        except (AlreadyExists, Conflict):
            return True
        except (StatusError, OSError) as error:
            log.warning("certificate not stored", extra={"action": "webhooks.certificate", "error": str(error)})
            return False
        log.info(step.what, extra={"action": "webhooks.certificate", "secret": f"{self._namespace}/{self._secret}"})
        return True

    async def _store(self, client: Client, step: RotationStep) -> None:
        assert step.keys is not None
        wanted = build_secret(step.keys, self._namespace, self._version, self._secret)
        if self._version:
            await client.update(SECRETS, wanted, self._namespace)
        else:
            await client.create(SECRETS, wanted, self._namespace)

    def _take(self, secret: Object | None) -> None:
        version = "" if secret is None else str(secret["metadata"]["resourceVersion"])
        if version != self._version:
            self._seen_at = self._clock.boot()
        self._version = version
        self.keys = None if secret is None else read_secret(secret)
        if self.keys is not None:
            self._serve(self.keys.current)
        for notice in self.notices:
            notice()

    def _serve(self, keys: ServerKeys) -> None:
        if keys == self._served:
            return
        try:
            if self._served is None:
                self.context = tls.build_context(keys.certificate, keys.key)
            else:
                tls.load_pair(self.context, keys.certificate, keys.key)
        except ssl.SSLError as error:
            # The leader replaces what cannot be used.
            self.keys = None
            text = "the Secret holds no usable certificate"
            log.warning(text, extra={"action": "webhooks.certificate", "secret": self._secret, "error": str(error)})
        else:
            self._served = keys


class MountedKeys:
    """tls.crt and tls.key in a directory. Raises OSError if they cannot be used at the start."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._served = ("", "")
        try:
            certificate, key = self._read()
        except OSError as error:
            text = f"cannot read {error.filename}: {error.strerror}; the directory must hold tls.crt and tls.key"
            raise OSError(text) from None
        try:
            self.context = tls.build_context(certificate, key)
        except ssl.SSLError as error:
            raise OSError(f"{directory}: tls.crt and tls.key are not a certificate and its key: {error}") from None
        self._served = (certificate, key)

    @property
    def expires(self) -> datetime | None:
        return tls.read_end(self._served[0])

    def _read(self) -> tuple[str, str]:
        return (self._directory / "tls.crt").read_text(), (self._directory / "tls.key").read_text()

    def renew_context(self) -> ssl.SSLContext:
        """As that of `SecretKeys`."""
        self.context = tls.build_context(*self._served)
        return self.context

    async def follow(self) -> NoReturn:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Serves with the files as they are now. Files that do not fit together, because they are being replaced, are
        tried again at the next look."""
        try:
            found = self._read()
            if found == self._served:
                return
            tls.load_pair(self.context, *found)
        except (OSError, ValueError) as error:
            # An ssl.SSLError is an OSError; a ValueError is about bytes that are no text.
            place = str(self._directory)
            log.warning(
                "certificate not read",
                extra={"action": "webhooks.certificate", "directory": place, "error": str(error)},
            )
            return
        self._served = found
        log.info("serving with the new certificate", extra={"action": "webhooks.certificate"})
