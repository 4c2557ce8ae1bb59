"""Rules about metadata of all kinds: what the server sets, what may change, what a name must match.

Pure functions on parsed objects. Messages are upstream's, including duplicate causes for immutable metadata (upstream
checks it twice and reports both).
"""

from __future__ import annotations

from collections.abc import Collection

from trainmaster.api import fields, status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.reading import list_items, read_text
from trainmaster.kit.ids import Ids

# The 63 characters of a DNS label, minus the suffix of five.
_LONGEST_BASE = 58

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def complete_new(metadata: Object, uid: str, now: str, *, generation: bool) -> None:
    """Sets the fields of a new object that only the server decides."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "managedFields"):
        metadata.pop(name, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if generation:
        metadata["generation"] = 1


def generate_name(base: str, ids: Ids) -> str:
    return base[:_LONGEST_BASE] + ids.suffix()


def fit_namespace(kind: Kind, metadata: Object, namespace: str) -> None:
    """Sets the namespace if the body omits it, and refuses a different one. Cluster-scoped kinds have none."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    given = metadata.get("namespace")
    if not given:
        metadata["namespace"] = namespace
    elif given != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(metadata: Object, name: str) -> None:
    given = metadata.get("name")
    if not given:
        raise status.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def keep_immutable(metadata: Object, old: Object) -> None:
    """Restores fields that an update cannot change. Other differences are refused by `update_errors`."""
    metadata.pop("selfLink", None)
    if not metadata.get("uid"):
        metadata["uid"] = old["uid"]
    for name in ("creationTimestamp", "generation"):
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    if "deletionTimestamp" in old:
        metadata["deletionTimestamp"] = old["deletionTimestamp"]
    if metadata.get("deletionGracePeriodSeconds") is None and "deletionGracePeriodSeconds" in old:
        metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def update_errors(metadata: Object, old: Object) -> list[FieldError]:
    """Errors for forbidden changes of metadata."""
    errors: list[FieldError] = []
    if "deletionTimestamp" in old:
        known = list_items(old, "finalizers")
        added = [name for name in list_items(metadata, "finalizers") if name not in known]
        if added:
            words = ", ".join(fields.render_value(name) for name in sorted(added))
            errors.append(
                fields.forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{words}}}",
                )
            )
    for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(name) != old.get(name):
            errors.append(fields.invalid(f"metadata.{name}", metadata.get(name), "field is immutable"))
    return errors * 2


def invalid(kind: Kind, obj: Object, errors: list[FieldError]) -> status.Invalid:
    return status.invalid(kind.group, kind.kind, read_text(obj, "metadata", "name"), errors)


def options_invalid(options_kind: str, errors: list[FieldError]) -> status.Invalid:
    """The error for invalid query parameters or an invalid DELETE body."""
    return status.invalid("meta.k8s.io", options_kind, "", errors)


def is_deletable(kind: Kind, obj: Object) -> bool:
    """Whether the object is being deleted and nothing prevents its removal."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds") and not kind.deletions.is_held(obj)


def differs_outside_metadata(kind: Kind, new: Object, old: Object) -> bool:
    """Whether metadata.generation has to be incremented."""
    apart = ("metadata", "status") if kind.status else ("metadata",)
    return _without(new, apart) != _without(old, apart) and not (kind.light and _is_binding(kind.light, new, old))


def _is_binding(light: Collection[str], new: Object, old: Object) -> bool:
    """Whether the write binds a Pod. Upstream uses a subresource, which does not increment generation."""
    spec: Object = old["spec"]
    first = [name for name in light if name not in spec and name in new["spec"]]
    return bool(first) and _without(new["spec"], first) == spec


def _without(obj: Object, names: Collection[str]) -> Object:
    return {name: value for name, value in obj.items() if name not in names}
