"""Writes as data: the content of a reconciler's plan.

The engine applies a sequence of them: in-process as one transaction (`apiserver.local`), over HTTP one after the other,
stopping at the first refusal (`apply_in_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.status import AlreadyExists, StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions


@dataclass(frozen=True, slots=True)
class Create:
    gvr: GVR
    obj: Object
    """With metadata.name and, for namespaced kinds, metadata.namespace."""
    proven: bool = False
    """The object has the form that decoding produces, and is valid. What defaults and admission change in it is not
    shared with other objects. In-process it is then not copied, decoded and validated again."""
    existing: Literal["retry", "report", "accept"] = "retry"
    """What it means that an object of that name exists. retry: the view was stale. report: the view does not show the
    kind, so the reconciler has to be told. accept: it is the wanted one, from an earlier attempt."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch. Put uid and resourceVersion into its metadata to make it conditional."""

    gvr: GVR
    namespace: str
    name: str
    patch: Object
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    gvr: GVR
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    propagation: str = "Background"


Write: TypeAlias = Create | Patch | Delete


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """A refused write; later ones were not tried, and in-process earlier ones were rolled back."""

    write: Write
    error: StatusError

    @property
    def is_taken(self) -> bool:
        """Whether the name belongs to an object that the view does not show. Not every 409 says that: a quota that
        many requests change at once also answers it."""
        is_reported = isinstance(self.write, Create) and self.write.existing == "report"
        return is_reported and isinstance(self.error, AlreadyExists)


class Version(NamedTuple):
    gvr: GVR
    namespace: str
    version: str


@dataclass(frozen=True, slots=True)
class Applied:
    refusal: WriteRefusal | None
    revision: int
    """The highest revision written; await `client.durable` before anything leaves the process."""
    versions: tuple[Version, ...] = ()
    """Of objects written over a network: a view that has not reached them does not show these writes."""


Learn: TypeAlias = Callable[[GVR, Object], None]
"""Gets each object as the server stored it."""


async def apply_in_order(
    client: Client, writes: Sequence[Write], *, field_manager: str, learn: Learn | None = None
) -> Applied:
    """Applies the writes one by one through any client and stops at the first refusal.

    A broken connection is a temporary refusal (503). Whether such a write was applied is unknown, as after other server
    errors, so the object is read again: the view must show its current version before the next decision.
    """
    options = WriteOptions(field_manager=field_manager)
    versions: list[Version] = []
    for write in writes:
        try:
            answer = await _apply(client, write, options)
        except AlreadyExists as error:
            if isinstance(write, Create) and write.existing == "accept":
                continue
            return Applied(WriteRefusal(write, error), 0, tuple(versions))
        except StatusError as error:
            if error.code >= 500:
                versions += await _read_versions(client, write)
            return Applied(WriteRefusal(write, error), 0, tuple(versions))
        except OSError as error:
            versions += await _read_versions(client, write)
            lost = StatusError(503, "ServiceUnavailable", f"no answer from the server: {error}")
            return Applied(WriteRefusal(write, lost), 0, tuple(versions))
        if version := read_text(answer, "metadata", "resourceVersion"):
            # A Status, the answer to some deletions, has none.
            versions.append(Version(write.gvr, _get_place(write)[0], version))
            if learn is not None and not isinstance(write, Delete):
                learn(write.gvr, answer)
    return Applied(None, 0, tuple(versions))


async def _apply(client: Client, write: Write, options: WriteOptions) -> Object:
    match write:
        case Create(gvr, obj):
            return await client.create(gvr, obj, obj["metadata"].get("namespace", ""), options=options)
        case Patch(gvr, namespace, name, patch, subresource):
            return await client.patch(
                gvr, name, PatchType.MERGE, patch, namespace, subresource=subresource, options=options
            )
        case Delete(gvr, namespace, name, uid, resource_version, propagation):
            conditions = DeleteOptions(propagation=propagation, uid=uid, resource_version=resource_version)
            return await client.delete(gvr, name, namespace, conditions)


async def _read_versions(client: Client, write: Write) -> list[Version]:
    """The version of the object that was to be written; empty if the server does not answer, or if the view does not
    show the kind and it may therefore not be read."""
    if isinstance(write, Create) and write.existing != "retry":
        return []
    namespace, name = _get_place(write)
    try:
        found = await client.get(write.gvr, name, namespace)
    except (StatusError, OSError):
        return []
    return [Version(write.gvr, namespace, read_text(found, "metadata", "resourceVersion"))]


def _get_place(write: Write) -> tuple[str, str]:
    """(namespace, name)."""
    if isinstance(write, Create):
        meta = write.obj["metadata"]
        return meta.get("namespace", ""), meta["name"]
    return write.namespace, write.name
