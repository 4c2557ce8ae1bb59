"""Refuses creates and growing updates of users with 507 while the disk is nearly full.

Deletes, status updates and our own controllers are always allowed, because they free space. As an admission plugin it
covers every write; while there is space it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin

_LITTLE = 128
"""Bytes by which an update may grow, for example to suspend a job."""


class StorageRoom(Plugin):
    def __init__(self, find_shortage: Callable[[], str], trusted: str) -> None:
        """`trusted`: the user name of our own controllers."""
        self._find_shortage = find_shortage
        self._trusted = trusted

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return operation is not DELETE

    def validate(self, attributes: Attributes) -> None:
        text = self._find_shortage()
        if not text or attributes.dry_run or attributes.call.identity.user == self._trusted:
            return
        if attributes.old is not None and _measure(attributes.new) <= _measure(attributes.old) + _LITTLE:
            return
        raise status.insufficient_storage(text)


def _measure(obj: Object) -> int:
    return len(orjson.dumps(obj, default=str))
