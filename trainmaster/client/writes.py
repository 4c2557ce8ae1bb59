"""Writes as data: what a reconciler's plan consists of.

The engine applies a sequence of them: in-process as one transaction (`apiserver.local`), over HTTP one after the
other, stopping at the first refusal (`apply_in_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from trainmaster.api.meta import GVR, Object
from trainmaster.api.status import StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions


@dataclass(frozen=True, slots=True)
class Create:
    gvr: GVR
    obj: Object
    """With metadata.name and, for namespaced kinds, metadata.namespace."""
    decoded: bool = False
    """The object was built for this write and is as decoding would leave it; in-process it is taken as it is."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch. Put uid and resourceVersion into its metadata to make it conditional."""

    gvr: GVR
    namespace: str
    name: str
    patch: dict[str, Any]
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
class Refusal:
    """A write that was refused; nothing behind it was tried, and in-process nothing before it was kept either."""

    write: Write
    error: StatusError


@dataclass(frozen=True, slots=True)
class Applied:
    refusal: Refusal | None
    revision: int
    """The highest revision written; await `client.durable` before anything leaves the process."""


async def apply_in_order(client: Client, writes: Sequence[Write], *, field_manager: str) -> Applied:
    """Carries out the writes one by one through any client and stops at the first refusal."""
    options = WriteOptions(field_manager=field_manager)
    for write in writes:
        try:
            match write:
                case Create(gvr, obj):
                    await client.create(gvr, obj, obj["metadata"].get("namespace", ""), options=options)
                case Patch(gvr, namespace, name, patch, subresource):
                    await client.patch(
                        gvr, name, PatchType.MERGE, patch, namespace, subresource=subresource, options=options
                    )
                case Delete(gvr, namespace, name, uid, resource_version, propagation):
                    await client.delete(
                        gvr,
                        name,
                        namespace,
                        DeleteOptions(propagation=propagation, uid=uid, resource_version=resource_version),
                    )
        except StatusError as error:
            return Applied(Refusal(write, error), 0)
    return Applied(None, 0)
