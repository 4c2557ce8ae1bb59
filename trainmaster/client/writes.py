"""Writes as data: the content of a reconciler's plan.

The engine applies a sequence of them: in-process as one transaction (`apiserver.local`), over HTTP one after the other,
stopping at the first refusal (`apply_in_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_text
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions


@dataclass(frozen=True, slots=True)
class Create:
    gvr: GVR
    obj: Object
    """With metadata.name and, for namespaced kinds, metadata.namespace."""
    proven: bool = False
    """The object has the form that decoding produces, and is valid. What defaults and admission change in it is not
    shared with other objects. In-process it is then not copied, decoded and validated again."""


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


@dataclass(frozen=True, slots=True)
class Applied:
    refusal: WriteRefusal | None
    revision: int
    """The highest revision written; await `client.durable` before anything leaves the process."""
    versions: tuple[tuple[GVR, str], ...] = ()
    """(kind, resourceVersion) of objects written over a network: a view that has not reached them does not show these
    writes."""


async def apply_in_order(client: Client, writes: Sequence[Write], *, field_manager: str) -> Applied:
    """Applies the writes one by one through any client and stops at the first refusal.

    A broken connection is a temporary refusal (503). Whether such a write was applied is unknown, as after other server
    errors, so the object is read again: the view must show its current version before the next decision.
    """
    options = WriteOptions(field_manager=field_manager)
    versions: list[tuple[GVR, str]] = []
    for write in writes:
        try:
            versions.append((write.gvr, _get_version(await _apply(client, write, options))))
        except StatusError as error:
            if error.code >= 500:
                versions += await _read_versions(client, write)
            return Applied(WriteRefusal(write, error), 0, tuple(versions))
        except OSError as error:
            versions += await _read_versions(client, write)
            lost = StatusError(503, "ServiceUnavailable", f"no answer from the server: {error}")
            return Applied(WriteRefusal(write, lost), 0, tuple(versions))
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


async def _read_versions(client: Client, write: Write) -> list[tuple[GVR, str]]:
    """The version of the object that was to be written; empty if the server does not answer."""
    meta = write.obj["metadata"] if isinstance(write, Create) else {"namespace": write.namespace, "name": write.name}
    try:
        found = await client.get(write.gvr, meta["name"], meta.get("namespace", ""))
    except (StatusError, OSError):
        return []
    return [(write.gvr, _get_version(found))]


def _get_version(answer: Object) -> str:
    """ "" for a Status, which is the answer to some deletions."""
    return read_text(answer, "metadata", "resourceVersion")
