"""Authenticates callers by TokenReview, and provides the `Client` that acts as them.

In embedded mode the caller's client is `client.as_user(identity)`; on a cluster it uses the caller's own token, so that
the cluster authorizes requests. Results are not cached, so a revoked token fails at the next request.

Reads and writes of a request go through `SeenClient`, which remembers the newest revision that it saw. An answer is
sent once that revision is durable (`Caller.settle`, awaited by the edge). Writes are recorded in the audit log
(`Trail`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self, TypeVar

from trainmaster.api import status, tenancy
from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import list_items, read_fields, read_status, read_text
from trainmaster.api.status import StatusError
from trainmaster.client.contract import (
    ActingIdentity,
    Client,
    DeleteOptions,
    ListOptions,
    LogOptions,
    ObjectList,
    PatchType,
    WatchEvent,
    WatchOptions,
    WatchStream,
    WriteOptions,
)
from trainmaster.rest.audit_trail import AuditedWrite, Trail
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.naming import make_user

TOKEN_REVIEWS = GVR("authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_MASTERS = "system:masters"
_DEFAULTS = (ListOptions(), WatchOptions(), WriteOptions(), DeleteOptions(), LogOptions())
_LIST, _WATCH, _WRITE, _DELETE, _LOG = _DEFAULTS

T = TypeVar("T")

Act = Callable[[ActingIdentity, str], Client]
"""(identity, token) -> a client that acts as them."""
Latest = Callable[[], int]
"""The newest written revision; 0 if the server returns only durable data."""


def always_durable() -> int:
    """`Latest` over HTTP."""
    return 0


class SeenClient:
    """A `Client` that remembers the newest revision it has seen."""

    def __init__(self, inner: Client, latest: Latest, trail: Trail | None = None) -> None:
        self._inner = inner
        self._latest = latest
        self.seen = 0
        self._settled = 0
        self.trail = trail
        """Where writes are recorded; the edge sets it for the request."""

    async def settle(self) -> None:
        """Called for every piece of an answer, so a revision that is known to be durable is not awaited again."""
        seen = self.seen
        if seen > self._settled:
            await self._inner.durable(seen)
            self._settled = max(self._settled, seen)

    def _see(self, obj: Object) -> Object:
        self._note(read_text(obj, "metadata", "resourceVersion"))
        return obj

    def _note(self, version: str) -> None:
        if version.isdigit():
            self.seen = max(self.seen, int(version))

    def _wrote(self, obj: Object) -> Object:
        """The answer to a deletion has no revision, so the newest written one is used."""
        self.seen = max(self.seen, self._latest())
        return obj

    async def get(self, gvr: GVR, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        return self._see(await self._inner.get(gvr, name, namespace, subresource=subresource))

    async def list(self, gvr: GVR, namespace: str = "", options: ListOptions = _LIST) -> ObjectList:
        found = await self._inner.list(gvr, namespace, options)
        for item in found.items:
            self._see(item)
        return found

    def watch(self, gvr: GVR, namespace: str = "", options: WatchOptions = _WATCH) -> WatchStream:
        return _SeenWatch(self._inner.watch(gvr, namespace, options), self._see)

    async def create(
        self,
        gvr: GVR,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
        options: WriteOptions = _WRITE,
    ) -> Object:
        work = self._inner.create(gvr, obj, namespace, subresource=subresource, name=name, options=options)
        write = AuditedWrite("create", gvr, namespace, name or _get_name(obj), subresource, options.dry_run)
        return self._wrote(await self._do(work, write, 201))

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "", options: WriteOptions = _WRITE
    ) -> Object:
        work = self._inner.update(gvr, obj, namespace, subresource=subresource, options=options)
        write = AuditedWrite("update", gvr, namespace, _get_name(obj), subresource, options.dry_run)
        return self._wrote(await self._do(work, write))

    async def patch(
        self,
        gvr: GVR,
        name: str,
        patch_type: PatchType,
        patch: object,
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions = _WRITE,
    ) -> Object:
        work = self._inner.patch(gvr, name, patch_type, patch, namespace, subresource=subresource, options=options)
        return self._wrote(
            await self._do(work, AuditedWrite("patch", gvr, namespace, name, subresource, options.dry_run))
        )

    async def delete(self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions = _DELETE) -> Object:
        work = self._inner.delete(gvr, name, namespace, options)
        return self._wrote(await self._do(work, AuditedWrite("delete", gvr, namespace, name, dry_run=options.dry_run)))

    async def delete_collection(
        self, gvr: GVR, namespace: str = "", list_options: ListOptions = _LIST, options: DeleteOptions = _DELETE
    ) -> Sequence[Object]:
        work = self._inner.delete_collection(gvr, namespace, list_options, options)
        gone = await self._do(work, AuditedWrite("deletecollection", gvr, namespace, dry_run=options.dry_run))
        self.seen = max(self.seen, self._latest())
        return gone

    async def _do(self, work: Awaitable[T], write: AuditedWrite, code: int = 200) -> T:
        """Performs the write and logs it, whatever its result."""
        try:
            done = await work
        except StatusError as error:
            self._tell(write, error.code)
            raise
        except Exception:
            self._tell(write, 500)
            raise
        if not write.name and isinstance(done, dict):
            write = replace(write, name=_get_name(done))
        self._tell(write, code)
        return done

    def _tell(self, write: AuditedWrite, code: int) -> None:
        if self.trail is not None:
            self.trail.note(write, code)

    def logs(self, name: str, namespace: str, options: LogOptions = _LOG) -> AsyncIterator[bytes]:
        return self._inner.logs(name, namespace, options)

    async def durable(self, revision: int) -> None:
        await self._inner.durable(revision)

    def as_user(self, identity: ActingIdentity) -> SeenClient:
        return SeenClient(self._inner.as_user(identity), self._latest, self.trail)

    async def close(self) -> None:
        """Does nothing: the client belongs to its creator."""


class _SeenWatch:
    """A `WatchStream` whose events count as seen: they are sent only when durable."""

    def __init__(self, inner: WatchStream, see: Callable[[Object], Object]) -> None:
        self._inner = inner
        self._see = see

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        event = await anext(self._inner)
        self._see(event.object)
        return event


def _get_name(obj: Object) -> str:
    metadata = obj.get("metadata")
    return read_text(metadata, "name") if isinstance(metadata, dict) else ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and a client that acts as them."""

    identity: ActingIdentity
    client: SeenClient
    read_only: bool = False
    """May change nothing, whatever its roles say: the caller has a read-only login of the dashboard."""

    @property
    def is_administrator(self) -> bool:
        return _MASTERS in self.identity.groups

    @property
    def tenant(self) -> str | None:
        """The tenant that the caller belongs to, if any (`api.tenancy`)."""
        return read_tenant(self.identity.user)

    @property
    def user_id(self) -> str:
        """The caller's id in names of jobs."""
        return make_user(self.tenant or get_short_name(self.identity.user))

    async def check_user(self, user_id: str) -> None:
        """Raises Problem 403 if the caller acts for another user. Administrators (who can create namespaces) may."""
        own = self.user_id
        if user_id != own and not await self.may_administrate():
            text = f"user_id is {user_id[:64]!r}, and you are {own!r}"
            raise Problem(403, "not-yours", text, hint=f"send user_id {own!r}; only administrators act for others")

    async def may_administrate(self) -> bool:
        """Whether the caller can create namespaces, as administrators can."""
        if self.is_administrator:
            return True
        attributes = {"verb": "create", "resource": "namespaces"}
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SelfSubjectAccessReview"}
        answer = await self.client.create(ACCESS_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})
        return bool(read_status(answer).get("allowed"))

    async def check_administrator(self) -> None:
        """Raises Problem 403 for others."""
        if not await self.may_administrate():
            raise Problem(403, "forbidden", "this is for administrators, who may create namespaces")

    async def settle(self) -> None:
        """Waits until everything that the answer may contain is on disk."""
        await self.client.settle()


def read_tenant(user: str) -> str | None:
    prefix, _, name = user.rpartition(":")
    kind, _, namespace = prefix.rpartition(":")
    return namespace if (kind, name) == ("system:serviceaccount", tenancy.NAME) else None


def get_short_name(user: str) -> str:
    """The short form for callers that are not tenants: the name of a ServiceAccount, or the local part of an e-mail
    address."""
    return user.rpartition(":")[2].partition("@")[0].lower()


class Callers(Protocol):
    async def identify(self, token: str) -> Caller:
        """Raises StatusError 401 for an invalid token."""
        ...


class ReviewingCallers:
    """`Callers` by TokenReview. `client` has the REST API's own identity."""

    def __init__(self, client: Client, act: Act, latest: Latest = always_durable) -> None:
        self._client = client
        self._act = act
        self._latest = latest

    async def identify(self, token: str) -> Caller:
        review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": {"token": token}}
        answer = read_status(await self._client.create(TOKEN_REVIEWS, review))
        user = read_fields(answer, "user")
        if answer.get("authenticated") is not True or not user.get("username"):
            raise status.unauthorized()
        identity = read_identity(user)
        return Caller(identity, SeenClient(self._act(identity, token), self._latest))


def read_identity(user: Fields) -> ActingIdentity:
    extra = {str(key): tuple(map(str, values)) for key, values in read_fields(user, "extra").items()}
    groups = tuple(map(str, list_items(user, "groups")))
    return ActingIdentity(str(user["username"]), read_text(user, "uid"), groups, extra)
