"""Writes as data: what a reconciler's plan consists of.

The engine applies a sequence of them: in-process as one transaction (`apiserver.local`), over HTTP one after the
other, stopping at the first refusal (`apply_in_order`).
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
    decoded: bool = False
    """The object is as decoding would leave it: of known fields with values of the right types, because it was built
    that way, or from a part of a stored object. In-process it is then not decoded again."""


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
    """A write that was refused; nothing behind it was tried, and in-process nothing before it was kept either."""

    write: Write
    error: StatusError


@dataclass(frozen=True, slots=True)
class Applied:
    refusal: WriteRefusal | None
    revision: int
    """The highest revision written; await `client.durable` before anything leaves the process."""
    versions: tuple[tuple[GVR, str], ...] = ()
    """(kind, resourceVersion) of what was written over a network: a view that is behind them shows a past in which
    they have not happened."""


async def apply_in_order(client: Client, writes: Sequence[Write], *, field_manager: str) -> Applied:
    """Carries out the writes one by one through any client and stops at the first refusal.

    A connection that breaks is a refusal that time heals (503). Whether such a write has happened is not known, nor
    after another error of the server, so the object is read once more: what it is now, the view has to show before
    anybody decides again.
    """
    options = WriteOptions(field_manager=field_manager)
    versions: list[tuple[GVR, str]] = []
    for write in writes:
        try:
            versions.append((write.gvr, _get_version(await _apply(client, write, options))))
        except StatusError as error:
            if error.code >= 500:
                versions += await _look_after(client, write)
            return Applied(WriteRefusal(write, error), 0, tuple(versions))
        except OSError as error:
            versions += await _look_after(client, write)
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


async def _look_after(client: Client, write: Write) -> list[tuple[GVR, str]]:
    """The version of what was to be written; nothing when the server does not say."""
    meta = write.obj["metadata"] if isinstance(write, Create) else {"namespace": write.namespace, "name": write.name}
    try:
        found = await client.get(write.gvr, meta["name"], meta.get("namespace", ""))
    except (StatusError, OSError):
        return []
    return [(write.gvr, _get_version(found))]


def _get_version(answer: Object) -> str:
    """ "" for a Status, which is the answer to some deletions."""
    return read_text(answer, "metadata", "resourceVersion")
