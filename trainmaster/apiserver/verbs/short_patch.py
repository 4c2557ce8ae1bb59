"""The fast path for the most frequent writes: merge patches of the status, or of labels, annotations and light fields.

Controllers and the node mostly write the status. Besides it, only labels, annotations and fields that a kind declares
light can be patched here, such as the binding of a Pod. The rest of the object was decoded and validated when it was
stored, so it is shared with the new object and not processed again. In all other cases (a lock that does not match, a
field to drop, another part of the object in the patch) this module does nothing, and `patch` takes the slow path, which
also produces the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.api import validation
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.decoding import is_clean
from trainmaster.api.meta import Object
from trainmaster.api.patches import managed_fields, merge
from trainmaster.api.validation import metadata as metadata_rules
from trainmaster.apiserver.admission.chain import UPDATE, Attributes
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake, metadata, proofs
from trainmaster.client.contract import WriteOptions
from trainmaster.store.contract import StoredRecord

_LOCKS = frozenset(("uid", "resourceVersion"))
_TEXTS = frozenset(("annotations", "labels"))
_PARTS = frozenset(("metadata", "spec"))


def find_written(
    state: RegistryState,
    call: Call,
    kind: Kind,
    record: StoredRecord,
    patch: object,
    options: WriteOptions,
    subresource: str,
) -> Written | None:
    """The result of the patch; None if the fast path does not apply."""
    if type(patch) is not dict:
        return None
    old = state.parsed.get(record)
    new = _patch_status(state, call, kind, old, patch) if subresource else _patch_light(kind, old, patch)
    if new is None:
        return None
    if not call.is_own:
        intake.track(state, call, kind, old, new, options, subresource=subresource)
    if subresource:
        call.warnings.extend(kind.warnings(new, old))
    else:
        meta = old["metadata"]
        namespace = meta.get("namespace", "")
        attributes = Attributes(call, kind, UPDATE, namespace, meta["name"], new, old)
        state.admission.mutate(attributes)
        call.warnings.extend(kind.warnings(new, old))
        state.admission.validate(attributes)
    if not call.is_own:
        new = managed_fields.keep_times(old, new)
    if new == old:
        return Written(record.value, record.revision)
    written = state.put(kind, new, record, arranged=bool(subresource))
    return Written(written.value, written.revision)


def _patch_status(state: RegistryState, call: Call, kind: Kind, old: Object, patch: Object) -> Object | None:
    """The new object if the patch changes only the status and no plugin concerns it, else None."""
    change, before = patch.get("status"), old.get("status", {})
    if type(change) is not dict or type(before) is not dict:
        return None
    if len(patch) > 1 and not _has_locks(patch, old["metadata"]):
        return None
    if kind.from_storage is not None or not state.admission.ignores_status(kind):
        return None
    new = {**old, "metadata": {**old["metadata"]}, "status": merge.apply(before, change)}
    if not is_clean(kind, new, "status") or metadata.is_deletable(kind, new):
        return None
    if call.is_own:
        if state.proves:
            proofs.check_status(kind, new, old)
        return new
    return None if validation.validate(kind, new, old, subresource="status") else new


def _has_locks(patch: Object, meta: Object) -> bool:
    """Whether the patch contains nothing but the status and locks, and the locks match."""
    locks = patch.get("metadata")
    if len(patch) != 2 or type(locks) is not dict:
        return False
    return all(name in _LOCKS and value == meta[name] for name, value in locks.items())


def _patch_light(kind: Kind, old: Object, patch: Object) -> Object | None:
    """The new object if the patch changes only labels, annotations and light fields, else None."""
    meta = old["metadata"]
    if kind.light is None or not patch or not patch.keys() <= _PARTS:
        return None
    if "deletionTimestamp" in meta or not _is_light(kind.light, patch, old):
        return None
    new = merge.apply(old, patch)
    if "metadata" not in patch:
        new["metadata"] = dict(meta)
    if not all(new["metadata"].get(name, True) for name in _TEXTS) or metadata_rules.check(kind, new):
        return None
    return new


def _is_light(light: Mapping[str, Callable[[str], list[str]]], patch: Object, old: Object) -> bool:
    """Whether it contains only matching locks, labels and annotations, and valid first values of light fields."""
    head, spec = patch.get("metadata", {}), patch.get("spec", {})
    if type(head) is not dict or type(spec) is not dict:
        return False
    for name, value in head.items():
        if name in _LOCKS:
            if value != old["metadata"][name]:
                return False
        elif name not in _TEXTS or type(value) is not dict or not all(map(_is_text, value.values())):
            return False
    before = old.get("spec", {})
    for name, value in spec.items():
        if name not in light or name in before or type(value) is not str or not value or light[name](value):
            return False
    return True


def _is_text(value: object) -> bool:
    return value is None or type(value) is str
