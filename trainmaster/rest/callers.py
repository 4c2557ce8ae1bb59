"""Who calls, and the `Client` that acts as them: a bearer token is reviewed by the server behind (TokenReview).

Embedded, the caller's client is `client.as_user(identity)`; on a cluster it carries the caller's own token, so that
the cluster decides. No answer is kept: a token that was revoked does not work for the next request.

What a request reads and writes goes through `SeenClient`, which remembers the newest revision that it saw. An answer
leaves the process once that is durable (`Caller.settle`; the edge awaits it). Writes are
told to the audit log (`trail`).
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
from trainmaster.rest.audit_trail import Deed, Trail
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation.naming import make_user

TOKEN_REVIEWS = GVR("authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS = GVR("authorization.k8s.io", "v1", "selfsubjectaccessreviews")
_MASTERS = "system:masters"
_DEFAULTS = (ListOptions(), WatchOptions(), WriteOptions(), DeleteOptions(), LogOptions())
_LIST, _WATCH, _WRITE, _DELETE, _LOG = _DEFAULTS

T = TypeVar("T")

Act = Callable[[ActingIdentity, str], Client]
"""(who, their token): the server, acting as them."""
Latest = Callable[[], int]
"""The newest revision that was written; 0 where the server answers only what is durable."""


def always_durable() -> int:
    """`Latest` over HTTP."""
    return 0


class SeenClient:
    """`Client` that remembers the newest revision of what went through it."""

    def __init__(self, inner: Client, latest: Latest, trail: Trail | None = None) -> None:
        self._inner = inner
        self._latest = latest
        self.seen = 0
        self._settled = 0
        self.trail = trail
        """Where writes are told; the edge sets it for the request."""

    async def settle(self) -> None:
        """Called for every piece of an answer, so what is known to be on disk is not asked for again."""
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
        """A deletion is answered without a revision, so everything up to now counts."""
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
        deed = Deed("create", gvr, namespace, name or _get_name(obj), subresource, options.dry_run)
        return self._wrote(await self._do(work, deed, 201))

    async def update(
        self, gvr: GVR, obj: Object, namespace: str = "", *, subresource: str = "", options: WriteOptions = _WRITE
    ) -> Object:
        work = self._inner.update(gvr, obj, namespace, subresource=subresource, options=options)
        deed = Deed("update", gvr, namespace, _get_name(obj), subresource, options.dry_run)
        return self._wrote(await self._do(work, deed))

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
        return self._wrote(await self._do(work, Deed("patch", gvr, namespace, name, subresource, options.dry_run)))

    async def delete(self, gvr: GVR, name: str, namespace: str = "", options: DeleteOptions = _DELETE) -> Object:
        work = self._inner.delete(gvr, name, namespace, options)
        return self._wrote(await self._do(work, Deed("delete", gvr, namespace, name, dry_run=options.dry_run)))

    async def delete_collection(
        self, gvr: GVR, namespace: str = "", list_options: ListOptions = _LIST, options: DeleteOptions = _DELETE
    ) -> Sequence[Object]:
        work = self._inner.delete_collection(gvr, namespace, list_options, options)
        gone = await self._do(work, Deed("deletecollection", gvr, namespace, dry_run=options.dry_run))
        self.seen = max(self.seen, self._latest())
        return gone

    async def _do(self, work: Awaitable[T], deed: Deed, code: int = 200) -> T:
        """The write, and its line in the audit log, however it ends."""
        try:
            done = await work
        except StatusError as error:
            self._tell(deed, error.code)
            raise
        except Exception:
            self._tell(deed, 500)
            raise
        if not deed.name and isinstance(done, dict):
            deed = replace(deed, name=_get_name(done))
        self._tell(deed, code)
        return done

    def _tell(self, deed: Deed, code: int) -> None:
        if self.trail is not None:
            self.trail.note(deed, code)

    def logs(self, name: str, namespace: str, options: LogOptions = _LOG) -> AsyncIterator[bytes]:
        return self._inner.logs(name, namespace, options)

    async def durable(self, revision: int) -> None:
        await self._inner.durable(revision)

    def as_user(self, identity: ActingIdentity) -> SeenClient:
        return SeenClient(self._inner.as_user(identity), self._latest, self.trail)

    async def close(self) -> None:
        """The client belongs to whoever made it."""


class _SeenWatch:
    """`WatchStream` whose events count as seen: nothing of them leaves before it is durable."""

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
    """One request's: who sent it, and the server as they may use it."""

    identity: ActingIdentity
    client: SeenClient

    @property
    def is_administrator(self) -> bool:
        return _MASTERS in self.identity.groups

    @property
    def tenant(self) -> str | None:
        """Whose namespace the caller works in, if they are a tenant (`api.tenancy`)."""
        return read_tenant(self.identity.user)

    @property
    def user_id(self) -> str:
        """What they are called in names of jobs."""
        return make_user(self.tenant or get_short_name(self.identity.user))

    async def check_user(self, user_id: str) -> None:
        """Problem 403 when they act in another's name. Administrators may: whoever can make namespaces."""
        own = self.user_id
        if user_id == own or self.is_administrator:
            return
        attributes = {"verb": "create", "resource": "namespaces"}
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": "SelfSubjectAccessReview"}
        answer = await self.client.create(ACCESS_REVIEWS, {**review, "spec": {"resourceAttributes": attributes}})
        if not read_status(answer).get("allowed"):
            text = f"user_id is {user_id[:64]!r}, and you are {own!r}"
            raise Problem(403, "not-yours", text, hint=f"send user_id {own!r}; only administrators act for others")

    async def settle(self) -> None:
        """Until everything that the answer may tell of is on disk."""
        await self.client.settle()


def read_tenant(user: str) -> str | None:
    prefix, _, name = user.rpartition(":")
    kind, _, namespace = prefix.rpartition(":")
    return namespace if (kind, name) == ("system:serviceaccount", tenancy.NAME) else None


def get_short_name(user: str) -> str:
    """The short form of other callers: the name of a ServiceAccount, the local part of a mail address."""
    return user.rpartition(":")[2].partition("@")[0].lower()


class Callers(Protocol):
    async def identify(self, token: str) -> Caller:
        """StatusError 401 for a token that is nobody's."""
        ...


class ReviewingCallers:
    """`Callers` by TokenReview. `client` is the REST API's own identity."""

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
