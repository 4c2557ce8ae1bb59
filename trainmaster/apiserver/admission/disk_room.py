"""On a disk that is nearly full, users add nothing more: creates and growing updates are answered 507.

Deletes, statuses and our own controllers go on: they are what makes room. An admission plugin, so every way in passes
through it; while there is room it costs one look at a text.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.apiserver.admission.chain import DELETE, AdmissionOperation, Attributes, Plugin

_LITTLE = 128
"""Bytes by which an update may grow: suspending a job, removing a finalizer."""


class StorageRoom(Plugin):
    def __init__(self, find_shortage: Callable[[], str], trusted: str) -> None:
        """`trusted`: the name of our own controllers' identity."""
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
