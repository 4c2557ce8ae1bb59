"""Removes the checkpoints that the policy of a running job does not keep (annotations `keep-checkpoints`).

The keeper of the history reports jobs; every few seconds one thread looks at those that have a policy. It does nothing
for a job that has no new checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from trainmaster.api.training.checkpoints import read_policy
from trainmaster.history.checkpoints.model import Policy
from trainmaster.history.results import RESULTS
from trainmaster.kit.clock import Clock

if TYPE_CHECKING:
    from trainmaster.jobs.models.training import TrainingJob

log = logging.getLogger(__name__)

SECONDS = 15.0


class Upkeep:
    def __init__(self, archive: Path, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._policies: dict[str, Policy] = {}
        """By uid, of jobs that run and of those that have ended since the last look."""
        self._ended: set[str] = set()
        self._seen: dict[str, list[str]] = {}
        """The committed checkpoints of each job at the last look."""

    def see(self, job: TrainingJob) -> None:
        policy = Policy(*read_policy(job.raw))
        if not policy.is_given:
            self.forget(job.uid)
        elif not job.is_finished:
            if self._policies.get(job.uid) != policy:
                self._seen.pop(job.uid, None)
            self._policies[job.uid] = policy
        elif job.uid in self._policies:
            self._ended.add(job.uid)

    def forget(self, uid: str) -> None:
        self._policies.pop(uid, None)
        self._seen.pop(uid, None)
        self._ended.discard(uid)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(SECONDS)
            for uid, policy in list(self._policies.items()):
                has_ended = uid in self._ended
                await asyncio.to_thread(self._look, uid, policy)
                if has_ended:
                    self.forget(uid)

    def _look(self, uid: str, policy: Policy) -> None:
        try:
            # Imported here because few jobs have a policy, and a server should start quickly.
            from trainmaster.history.checkpoints.reading import CHECKPOINTS, list_committed  # noqa: PLC0415

            committed = list_committed(self._archive / RESULTS / uid / CHECKPOINTS)
            if committed != self._seen.get(uid):
                removed = apply_policy(self._archive, uid, policy)
                if removed:
                    text = {"action": "checkpoints.pruned", "uid": uid, "count": len(removed)}
                    log.info("checkpoints removed", extra=text)
                self._seen[uid] = [name for name in committed if name not in removed]
        except OSError as error:
            log.warning(
                "checkpoints not pruned", extra={"action": "checkpoints.failed", "uid": uid, "error": str(error)}
            )


def apply_policy(archive: Path, uid: str, policy: Policy) -> list[str]:
    """Returns the names of what was removed. Blocks."""
    from trainmaster.history.checkpoints.keeping import (  # noqa: PLC0415 - as above
        decide_removals,
        explain_kept,
        remove,
        sweep,
    )
    from trainmaster.history.checkpoints.notes import read_attempts  # noqa: PLC0415
    from trainmaster.history.checkpoints.reading import CHECKPOINTS, read_checkpoints  # noqa: PLC0415

    folder = archive / RESULTS / uid
    sweep(folder / CHECKPOINTS)
    found = read_checkpoints(archive, uid, outputs=False)
    items = explain_kept(found.items, policy, read_attempts(folder).resumed)
    return [item.name for item in decide_removals(items, policy) if remove(item)]
