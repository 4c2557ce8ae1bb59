"""What the sources of live data share that read one job, or tell a state by its hash."""

from __future__ import annotations

import zlib

from trainmaster.api.meta import GVR
from trainmaster.api.status import StatusError
from trainmaster.client.follow import Begin, Change, follow
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.clock import Clock
from trainmaster.rest.callers import SeenClient
from trainmaster.rest.services.live.sources import Source


class JobSource(Source):
    def __init__(self, client: SeenClient, clock: Clock, job: TrainingJob) -> None:
        super().__init__()
        self._client = client
        self._clock = clock
        self._job = job
        self.last = "Deleted"
        """The state that it had, once the source has ended."""

    async def _follow(
        self, gvr: GVR, begin: Begin, change: Change, *, field_selector: str = "", label_selector: str = ""
    ) -> None:
        """Objects in the namespace of the job."""
        await follow(
            self._client,
            self._clock,
            gvr,
            begin,
            change,
            namespace=self._job.namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            trouble=check_trouble,
        )


def check_trouble(error: Exception) -> None:
    """Raises permanent errors, which end the stream; others are retried."""
    if isinstance(error, StatusError) and error.code in (401, 403):
        raise error


def hash_state(data: bytes) -> str:
    """A short text that differs if the state does, for ids."""
    return f"{zlib.crc32(data):08x}"
