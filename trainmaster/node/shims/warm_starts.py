"""Warm starts on this node: chooses the warm zygote of each Pod, and prepares it for the Pods that follow.

A Pod for which no zygote is ready starts cold. Its zygote is started when the Pod has ended, so that the imports do not
compete with those of the Pod itself, and so that they include what the program imported (`learned`). A Pod that asks
for a warm start by its annotation has it started at once. While a zygote with more imports is started, Pods use the
previous one; if it fails, they use one without those imports. What Pods used is kept for the next server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from trainmaster.api.labels import WARM
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.node.images.layer_hook import IMPORTS
from trainmaster.node.shims.learned import FILE, LearnedImports, Learner, RecentUses, WarmUse
from trainmaster.node.shims.supervisor import Supervisor
from trainmaster.node.shims.warm import WarmSettings, WarmZygote, build_zygote, decide_warm
from trainmaster.shim.protocol import PLAIN, ContainerSpec

_REMEMBERED = 3
_DEFAULT = "default"
"""The namespace of jobs that name none."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A running Pod that could have started warm."""

    namespace: str
    layer: str
    teaches: bool
    decide: Callable[[LearnedImports | None], WarmZygote | None]


class WarmStarts:
    def __init__(
        self,
        settings: WarmSettings,
        level: str,
        root: Path,
        supervisor: Supervisor,
        is_memory_short: Callable[[], bool],
    ) -> None:
        """`root`: where what was learned is kept."""
        self._settings = settings
        self._level = level
        self._learner = Learner(root)
        self._recent = RecentUses(root)
        self._supervisor = supervisor
        self._is_memory_short = is_memory_short
        self._candidates: dict[str, _Candidate] = {}
        self._learned: dict[str, list[WarmZygote]] = {}
        """Zygotes with learned imports, the newest last, by the key of the one without."""

    def choose(
        self, pod: Pod, spec: ContainerSpec, image: Environment, *, is_owners: bool
    ) -> tuple[ContainerSpec, WarmZygote | None]:
        """The container with what it needs for a warm start, and the zygote; None if it is executed normally."""
        self._supervisor.zygotes.stop_idle_warm()
        teaches = is_owners and self._level != PLAIN
        decide = partial(decide_warm, pod, spec, image, self._settings, self._level)
        basic = decide(None)
        if basic is None:
            return spec, None
        found = decide(self._learner.find(image.layer, pod.namespace)) if teaches else basic
        assert found is not None, "what was learned only adds imports"
        if teaches:
            usable = (found, *reversed(self._learned.get(basic.key, ())), basic)
            found = next(filter(self._supervisor.zygotes.is_warm, usable), found)
        self._candidates.setdefault(pod.uid, _Candidate(pod.namespace, image.layer, teaches, decide))
        if pod.annotations.get(WARM) == "true":
            self._supervisor.prepare_warm(found)
        env = {IMPORTS: f"{spec.env['HOME']}/{FILE}", **spec.env} if teaches else spec.env
        return replace(spec, warm=found.key, env=env), found

    async def note_end(self, uid: str, home: Path) -> None:
        """Called when the Pod has ended, while its home still exists."""
        candidate = self._candidates.pop(uid, None)
        if candidate is None:
            return
        found = basic = candidate.decide(None)
        if candidate.teaches:
            await asyncio.to_thread(self._learner.learn, candidate.layer, candidate.namespace, home)
            found = candidate.decide(self._learner.find(candidate.layer, candidate.namespace))
        if basic is None or found is None:
            return  # the environment is gone
        wanted = self._pick(basic, found)
        if self._supervisor.zygotes.needs_warm(wanted) and not self._is_memory_short():
            await asyncio.to_thread(self._recent.note, _describe_use(found))
            self._supervisor.prepare_warm(wanted)

    def _pick(self, basic: WarmZygote, found: WarmZygote) -> WarmZygote:
        """The zygote to prepare; those with what was learned are remembered."""
        if found == basic or self._supervisor.zygotes.has_failed(found):
            return basic
        known = [zygote for zygote in self._learned.get(basic.key, ()) if zygote.key != found.key]
        self._learned[basic.key] = [*known, found][-_REMEMBERED:]
        return found

    # Before the first Pod

    def list_expected(self) -> list[WarmUse]:
        """What the next Pods may need, the most likely first: what the last ones needed, and the server's own
        environment. Blocks."""
        if self._settings.mode != "auto" or not self._settings.budget:
            return []
        recent = self._recent.list()[::-1]
        return recent if any(use.namespace == _DEFAULT for use in recent) else [*recent, WarmUse(_DEFAULT, "")]

    def find_zygote(self, use: WarmUse, image: Environment) -> WarmZygote | None:
        """The zygote to prepare for it; None if the environment has no torch."""
        basic = build_zygote(use.namespace, image, self._settings)
        learned = self._learner.find(image.layer, use.namespace)
        if basic is None or learned is None or not use.teaches or self._level == PLAIN:
            return basic
        found = build_zygote(use.namespace, image, self._settings, learned, use.environ, use.varying)
        assert found is not None, "what was learned only adds imports"
        return self._pick(basic, found)


def _describe_use(zygote: WarmZygote) -> WarmUse:
    return WarmUse(zygote.namespace, zygote.label, bool(zygote.learned), zygote.environ, zygote.varying)
