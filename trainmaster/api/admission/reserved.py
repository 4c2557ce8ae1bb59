"""Labels and annotations that only controllers may set, in an object and the templates in it.

Services, history, logs and progress reports find the members of a job by them, so a tenant who could write them could
make objects look as if they belonged to somebody's job. Only what a write adds is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmaster.api import status
from trainmaster.api.labels import LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME
from trainmaster.api.meta import GVR, Fields
from trainmaster.api.status import StatusError

MASTERS = "system:masters"
"""The group that may do everything: the owner of a server, and its own controllers."""
_BARE = frozenset((LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME))
_SHOWN = 5
"""Maximum number of problems in one refusal."""


def list_added(new: Fields, old: Fields | None, prefixes: tuple[str, ...]) -> Iterator[str]:
    """A problem for each reserved label or annotation that the new object has and the old one has not."""
    known = set(_list_marks(old or {}, prefixes))
    for mark in _list_marks(new, prefixes):
        if mark not in known:
            yield f"{mark[0]}: {mark[1]} is written by controllers only"


def refuse(gvr: GVR, name: str, namespace: str, problems: Sequence[str]) -> StatusError:
    """A write in the namespace of a tenant."""
    text = f"namespace {namespace} belongs to a tenant: {'; '.join(problems[:_SHOWN])}"
    return status.forbidden(gvr, name, text)


def _list_marks(obj: object, prefixes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(place, key, value) of reserved labels and annotations of the object and the templates in it.

    Not recursive, because a tenant decides how deep an object is.
    """
    left: list[tuple[str, object]] = [("", obj)]
    while left:
        place, value = left.pop()
        if isinstance(value, list):
            left += [(f"{place}[{number}]", entry) for number, entry in enumerate(value)]
            continue
        for name, inner in value.items() if isinstance(value, dict) else ():
            where = f"{place}.{name}" if place else name
            if name in ("labels", "annotations") and isinstance(inner, dict):
                found = (key for key in inner if key in _BARE or key.startswith(prefixes))
                yield from ((where, key, str(inner[key])) for key in found)
            elif isinstance(inner, (dict, list)) and name not in ("managedFields", "status"):
                left.append((where, inner))
