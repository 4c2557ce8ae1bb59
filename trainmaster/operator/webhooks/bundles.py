"""Keeps `caBundle` right where API servers look for the CAs of our own certificate. For the leader.

That is in both webhook configurations; in the APIService of the records likewise (`operator.records.serving`). Nothing
else in these objects is touched; it belongs to whoever installed them. An object into which cert-manager injects a CA
is left alone.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items, read_annotations, read_text
from trainmaster.api.resources import MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainmaster.api.status import Conflict, StatusError
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.operator.webhooks.keys import SecretKeys

log = logging.getLogger(__name__)

CONFIGURATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)
_PAUSE = BackoffPolicy(first=1.0, cap=60.0)
"""Between two looks, so that two who disagree do not keep the API server busy; longer if writing fails."""
_INJECTED = "cert-manager.io/inject-"


@dataclass(frozen=True, slots=True)
class BundleTarget:
    """An object with a `caBundle` for API servers."""

    gvr: GVR
    name: str
    repair: Callable[[Object, str], Object | None]
    """The object with this bundle (base64); None if it has it already, or it is not ours to set."""
    missing: str
    """What does not work without it."""


class BundleKeeper:
    def __init__(self, client: Client, keys: SecretKeys, clock: Clock, targets: Sequence[BundleTarget]) -> None:
        self._targets = {target.gvr: target for target in targets}
        self._client = client
        self._keys = keys
        self._clock = clock
        self._found: dict[GVR, Object | None] = {}
        """As last seen; None: it does not exist."""
        self._news = asyncio.Event()

    async def run(self) -> NoReturn:
        self._keys.notices.append(self._news.set)
        try:
            async with Scope("bundles") as scope:
                for gvr in self._targets:
                    scope.spawn_forever(self._follow(gvr), name=f"bundles.{gvr.plural}")
                failures = 0
                while True:
                    await self._news.wait()
                    self._news.clear()
                    results = [await self._repair(*pair) for pair in tuple(self._found.items())]
                    failures = 0 if all(results) else failures + 1
                    await self._clock.sleep(_PAUSE.delay(failures + 1))
                    if failures:
                        self._news.set()
        finally:
            self._keys.notices.remove(self._news.set)

    async def _follow(self, gvr: GVR) -> NoReturn:
        async def begin(items: list[Object]) -> None:
            self._note(gvr, items[0] if items else None)

        async def change(event: WatchEvent) -> None:
            self._note(gvr, None if event.type == "DELETED" else event.object)

        selector = f"metadata.name={self._targets[gvr].name}"
        await follow(self._client, self._clock, gvr, begin, change, field_selector=selector)

    def _note(self, gvr: GVR, found: Object | None) -> None:
        if found is None and self._found.get(gvr, {}) is not None:
            target = self._targets[gvr]
            text = f"there is no {gvr.plural.removesuffix('s')} {target.name}: {target.missing}"
            log.warning(text, extra={"action": "webhooks.missing", "what": gvr.plural})
        self._found[gvr] = found
        self._news.set()

    async def _repair(self, gvr: GVR, found: Object | None) -> bool:
        """False if it has to be tried again."""
        keys = self._keys.keys
        if keys is None or found is None:
            return True
        wanted = self._targets[gvr].repair(found, base64.b64encode(keys.bundle.encode()).decode())
        if wanted is None:
            return True
        try:
            await self._client.update(gvr, wanted)
        except Conflict:
            # The watch shows the newer one.
            return True
        except (StatusError, OSError) as error:
            log.warning("caBundle not written", extra={"action": "webhooks.bundle", "error": str(error)})
            return False
        log.info("caBundle written", extra={"action": "webhooks.bundle", "what": gvr.plural})
        return True


def repair(configuration: Object, bundle: str) -> Object | None:
    """The configuration with this `caBundle` in every webhook; None if it has it already, or it is not ours to set."""
    if is_injected(configuration):
        return None
    webhooks = list_items(configuration, "webhooks")
    if all(read_text(hook, "clientConfig", "caBundle") == bundle for hook in webhooks):
        return None
    repaired = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in webhooks]
    return {**configuration, "webhooks": repaired}


def is_injected(obj: Object) -> bool:
    """Whether cert-manager keeps its `caBundle`."""
    return any(key.startswith(_INJECTED) for key in read_annotations(obj))


def list_webhook_targets(name: str) -> list[BundleTarget]:
    """Both webhook configurations, which have this name."""
    missing = "nothing is checked when jobs are written"
    return [BundleTarget(gvr, name, repair, missing) for gvr in CONFIGURATIONS]
