"""The short way for merge patches that touch only annotations, labels, and fields that a kind declares light.

The binding of a Pod is one, and so is the annotation that says why something waits. The rest of the object was decoded
and validated when it was stored, and is shared with the new one. Like `status_patch` this does nothing at all when it
meets anything out of the ordinary: then `patch` goes the long way, which also words the refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import Object
from trainmaster.api.patches import managed_fields, merge
from trainmaster.api.validation import metadata as metadata_rules
from trainmaster.apiserver.admission.chain import AdmissionOperation, Attributes
from trainmaster.apiserver.contract import Call, Written
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import intake
from trainmaster.client.contract import WriteOptions
from trainmaster.store.contract import StoredRecord

_PARTS = frozenset(("metadata", "spec"))
_LOCKS = frozenset(("uid", "resourceVersion"))
_TEXTS = frozenset(("annotations", "labels"))


def find_written(
    state: RegistryState, call: Call, kind: Kind, record: StoredRecord, patch: object, options: WriteOptions
) -> Written | None:
    """The result of the patch; None when this is not the way for it."""
    if kind.light is None or type(patch) is not dict or not patch or not patch.keys() <= _PARTS:
        return None
    old = state.parsed.get(record)
    meta = old["metadata"]
    if "deletionTimestamp" in meta or not _is_light(kind.light, patch, old):
        return None
    new = merge.apply(old, patch)
    if "metadata" not in patch:
        new["metadata"] = dict(meta)
    if not all(new["metadata"].get(name, True) for name in _TEXTS) or metadata_rules.check(kind, new):
        return None
    if call.track_fields:
        intake.track(state, call, kind, old, new, options)
    attributes = Attributes(
        call,
        kind,
        AdmissionOperation.UPDATE,
        meta.get("namespace", ""),
        meta["name"],
        new,
        old,
        dry_run=options.dry_run,
    )
    state.admission.mutate(attributes)
    call.warnings.extend(kind.warnings(new, old))
    state.admission.validate(attributes)
    new = managed_fields.keep_times(old, new)
    if new == old:
        return Written(record.value, record.revision)
    written = state.put(kind, new, record)
    return Written(written.value, written.revision)


def _is_light(light: Mapping[str, Callable[[str], list[str]]], patch: Object, old: Object) -> bool:
    """Locks that hold, texts, and light fields that were not set before, each with a value that is fine."""
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
