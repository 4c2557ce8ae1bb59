"""The short way for the most frequent write: a merge patch of the status, by a controller or the node.

Everything but the status stays what it was when it was stored, so it is neither copied nor looked at again. Whenever
something is out of the ordinary (a lock that does not match, a field to drop, a plugin that wants to see it, another
part of the object in the patch) nothing is done here, and `patch` goes the long way, which also words the refusals.
"""

from __future__ import annotations

from typing import TypeGuard

from trainmaster.api import validation
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import is_clean
from trainmaster.api.meta import Object
from trainmaster.api.patches import managed_fields, merge
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata
from trainmaster.client.contract import WriteOptions
from trainmaster.store.contract import StoredRecord

_LOCKS = frozenset(("uid", "resourceVersion"))


def find_written(
    state: RegistryState, call: Call, kind: Kind, record: StoredRecord, patch: object, options: WriteOptions
) -> Written | None:
    """The result of the patch; None when this is not the way for it."""
    old = state.parsed.get(record)
    before = old.get("status", {})
    if kind.from_storage is not None or not _is_plain(patch, old) or type(before) is not dict:
        return None
    if not state.admission.ignores_status(kind):
        return None
    after = merge.apply(before, patch["status"])
    meta: Object = {**old["metadata"]}
    new = {**old, "metadata": meta, "status": after}
    if not is_clean(kind, new, "status"):
        return None
    if call.track_fields:
        intake.track(state, call, kind, old, new, options, subresource="status")
        new = managed_fields.keep_times(old, new)
    if validation.validate(kind, new, old, subresource="status"):
        return None
    call.warnings.extend(kind.warnings(new, old))
    if after == before and new == old:
        return Written(record.value, record.revision)
    if metadata.is_deletable(kind, new):
        return None
    written = state.put(kind, new, record, arranged=True)
    return Written(written.value, written.revision)


def _is_plain(patch: object, old: Object) -> TypeGuard[Object]:
    """Of status alone, and of the object that stands there."""
    if type(patch) is not dict or type(patch.get("status")) is not dict:
        return False
    if len(patch) == 1:
        return True
    locks = patch.get("metadata")
    if len(patch) != 2 or type(locks) is not dict:
        return False
    meta = old["metadata"]
    return not any(name not in _LOCKS or value != meta[name] for name, value in locks.items())
