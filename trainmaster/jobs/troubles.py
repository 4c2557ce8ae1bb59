"""What keeps Pods of a job from starting, or from staying, read from what kubelets and schedulers say about them. Pure.

Used by the TrainJob controller on a cluster (`status.waiting`), by `explain` and by `doctor`. A Pod that is merely
starting has no trouble, and neither has one that is being stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trainmaster.api.meta import Fields
from trainmaster.api.reading import read_text
from trainmaster.jobs.models.events import ObjectEvent
from trainmaster.jobs.models.pods import Pod, count_restarts, read_last_terminated, read_terminated, read_waiting

UNSCHEDULABLE, IMAGE, CRASHING, REFUSED = "Unschedulable", "ErrImagePull", "CrashLoopBackOff", "FailedCreate"
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_SAME = {"ImagePullBackOff": IMAGE}
"""Kubelets change between these while they try again; the message says the same."""
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*": (?:ErrImagePull: )?')


class PodTrouble(NamedTuple):
    reason: str
    """As in `status.waiting`."""
    message: str
    pod: str = ""
    """Empty if there is no Pod because the server refused it."""


def find_trouble(pods: Iterable[Pod]) -> PodTrouble | None:
    """Of the Pod that is first by name among those with the most basic trouble; None if no Pod has any."""
    found = sorted((_RANKS.get(one.reason, 1), one.pod, one) for pod in pods for one in list_troubles(pod))
    if not found:
        return None
    first = found[0][2]
    others = {one.pod for _, _, one in found if one.reason == first.reason} - {first.pod}
    more = f"; the same for {len(others)} other Pod{'s' if len(others) > 1 else ''}" if others else ""
    return first._replace(message=f"Pod {first.pod}: {first.message}{more}")


_RANKS = {UNSCHEDULABLE: 0, CRASHING: 2}


def list_troubles(pod: Pod) -> Iterator[PodTrouble]:
    if pod.is_deleting or pod.is_over:
        return
    unscheduled = pod.unscheduled
    if unscheduled.get("reason") == UNSCHEDULABLE:
        yield PodTrouble(UNSCHEDULABLE, str(unscheduled.get("message") or "no node fits"), pod.name)
    for entry in pod.all_container_statuses:
        reason = CRASHING if _is_crashing(entry) else read_text(read_waiting(entry), "reason")
        if reason not in _STARTING:
            yield PodTrouble(_SAME.get(reason, reason), f"container {entry['name']}: {_describe(entry)}", pod.name)


def _is_crashing(container: Fields) -> bool:
    """From the second restart on, kubelets report the back-off only after most of it has passed."""
    return bool(count_restarts(container) and read_terminated(container).get("exitCode"))


def _describe(container: Fields) -> str:
    waiting = read_waiting(container)
    ended = read_terminated(container) or read_last_terminated(container)
    message = _BACK_OFF.sub("", read_text(waiting, "message"))
    if (waiting and waiting.get("reason") != CRASHING) or not ended:
        return message or str(waiting.get("reason"))
    # The kubelet's own text has the current back-off, which changes with every restart, and not the cause.
    why = ended.get("reason") or "Error"
    end = f"exit code {ended.get('exitCode')}{'' if why in ('Error', 'Completed') else f' ({why})'}"
    return f"it ended with {end} and is restarted again and again, with growing pauses"


def find_refusal(jobs: Iterable[str], events: Sequence[ObjectEvent]) -> PodTrouble | None:
    """Why the server refused Pods of these Jobs (uids): the Job controller reports it only in events."""
    wanted = frozenset(jobs)
    refusals = [one for one in events if one.reason == REFUSED and one.involved.get("uid") in wanted]
    newest = max(refusals, key=lambda one: one.last_at, default=None)
    if newest is None:
        return None
    return PodTrouble(REFUSED, f'job "{newest.involved.get("name")}": {newest.message}')
