"""Begins, recognises and ends logins of the dashboard. A login has two halves: a cookie that programs in the page
cannot read, and a key that only the page has. The cookie is the caller's token, sealed; nothing opens it but both.

Nothing about a valid login is stored here, so it survives a restart and any replica knows it. Its token is reviewed
for every request, as that of every caller.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import orjson

from trainmaster.api.status import StatusError
from trainmaster.kit.clock import Clock, format_time
from trainmaster.kit.ids import Ids
from trainmaster.rest.callers import Caller, Callers
from trainmaster.rest.logins import state as states
from trainmaster.rest.logins.failures import LoginFailures
from trainmaster.rest.logins.requests import ShownCredentials, list_cookies
from trainmaster.rest.logins.sealing import seal, unseal
from trainmaster.rest.logins.state import LoginState
from trainmaster.rest.logins.storage import LoginStorage, StateChanged, StoredState
from trainmaster.rest.problems import Problem

log = logging.getLogger(__name__)

RENEW_SECONDS = 600
"""How old a cookie may become before an answer brings a new one."""
FRESH_SECONDS = 2.0
"""How soon a replica knows what another one has written."""
LONGEST_TOKEN = 2_500
"""Browsers keep cookies of up to 4,096 bytes."""
_TRIES = 20
_MOST_REMEMBERED = 4_096
_HINT = "log in again: `trainmaster dashboard` prints a one-time link"
_COOKIE, _LINK = "cookie", "link"


@dataclass(frozen=True, slots=True)
class Login:
    id: str
    token: str = field(repr=False)
    user: str
    read_only: bool
    is_plain: bool
    """Whether it began at the plain door; it is valid there only."""
    path: str
    """Of its cookie."""
    begun: int
    """In milliseconds; the other times are in seconds."""
    used: int
    """When the cookie was made."""
    ends: int


@dataclass(frozen=True, slots=True)
class LoginWish:
    """What the page asks for, and how it came here."""

    address: str
    is_plain: bool
    path: str = "/"
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class NewLogin:
    key: str = field(repr=False)
    login: Login
    cookie: str = field(repr=False)
    """The value of Set-Cookie."""


@dataclass(frozen=True, slots=True)
class NewLink:
    text: str = field(repr=False)
    expires: str


@dataclass(frozen=True, slots=True)
class Credential:
    """How a caller was identified: by a token, or by a login."""

    token: str = field(repr=False)
    login: Login | None = None
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class _Grant:
    """What a token or a link gives."""

    token: str = field(repr=False)
    user: str
    read_only: bool
    ends: int


class Logins:
    def __init__(
        self, callers: Callers, storage: LoginStorage, clock: Clock, ids: Ids, *, read_only: bool = False
    ) -> None:
        """`read_only`: every login is (`dashboard.read_only`)."""
        self._callers = callers
        self._storage = storage
        self._clock = clock
        self._ids = ids
        self._read_only = read_only
        self._failures = LoginFailures(clock)
        self._known = StoredState(states.EMPTY)
        self._known_at: float | None = None
        self._used: dict[str, int] = {}
        """When logins were last used, by id: a stream is used as long as it is open, and brings no new cookie."""

    # Ways in

    async def begin_with_token(self, token: str, wish: LoginWish) -> NewLogin:
        with self._failures.attempt(wish.address):
            caller = await self._review(token, "the token is not valid: it is mistyped, expired or revoked")
        if len(token) > LONGEST_TOKEN:
            detail = f"the token has {len(token)} bytes, and a login can keep {LONGEST_TOKEN}"
            raise Problem(422, "token-too-long", detail, hint="log in with a token of a ServiceAccount")
        return await self._begin(_Grant(token, caller.identity.user, False, self._decide_end(token)), wish)

    async def begin_with_link(self, text: str, wish: LoginWish) -> NewLogin:
        grant = await self._use_link(text, wish.address)
        await self._review(grant.token, "the token behind this link is not valid any more")
        return await self._begin(grant, wish)

    async def _review(self, token: str, refusal: str) -> Caller:
        try:
            return await self._callers.identify(token)
        except StatusError as error:
            if error.code != 401:
                raise
            raise _refuse(refusal) from None

    async def _begin(self, grant: _Grant, wish: LoginWish) -> NewLogin:
        now, begun = int(self._clock.unix()), int(self._clock.unix() * 1000)
        state = await self._change(lambda state: states.renew_keys(state, now, self._ids))
        read_only = grant.read_only or wish.read_only or self._read_only
        key, id = self._ids.token(), self._ids.uid()
        login = Login(id, grant.token, grant.user, read_only, wish.is_plain, wish.path, begun, now, grant.ends)
        fields = {"action": "rest.login", "user": grant.user, "address": wish.address, "read_only": read_only}
        log.info("login", extra=fields)
        return NewLogin(key, login, self._build_cookie(state, login, key))

    def _decide_end(self, token: str) -> int:
        longest = int(self._clock.unix()) + states.LONGEST_SECONDS
        expires = read_expiry(token)
        return longest if expires is None else min(longest, expires)

    # Requests

    async def recognise(self, shown: ShownCredentials) -> Credential:
        """Raises Problem 401 unless both halves belong together and the login has not ended."""
        if shown.token:
            return Credential(shown.token)
        login = await self._open(shown)
        if login is None:
            detail = "the request has the key of a login without its cookie, or of another login"
            raise _refuse(detail)
        return Credential(login.token, login, shown.key)

    async def identify(self, credential: Credential) -> Caller:
        """Reviews the token, and that the login has not ended. Called for every request, and again and again for
        streams."""
        login = credential.login
        if login is None:
            return await self._callers.identify(credential.token)
        self._check(login, await self._read())
        caller = await self._review(credential.token, "the token of this login is not valid any more")
        self._note_use(login.id)
        return replace(caller, read_only=login.read_only or self._read_only)

    async def renew(self, credential: Credential) -> str:
        """A new cookie if that of the request is old, else ""."""
        login, now = credential.login, int(self._clock.unix())
        if login is None or now - login.used < RENEW_SECONDS:
            return ""
        state = await self._read()
        return self._build_cookie(state, replace(login, used=now), credential.key) if state.keys else ""

    async def _open(self, shown: ShownCredentials) -> Login | None:
        """None unless a cookie of the request fits the key."""
        state = await self._read()
        values = list_cookies(shown.cookies, _name_cookie(state, shown.is_plain))
        if any(state.find_key(value.partition(".")[0]) is None for value in values) or not state.keys:
            # Another replica may have made the key a moment ago.
            state = await self._read(fresh=True)
            values = list_cookies(shown.cookies, _name_cookie(state, shown.is_plain))
        for value in values:
            id, _, sealed = value.partition(".")
            sealing = state.find_key(id)
            content = sealing and unseal(sealing.secret, shown.key, _COOKIE, sealed)
            login = _read_login(content) if content else None
            if login is not None and login.is_plain == shown.is_plain:
                return login
        return None

    def _check(self, login: Login, state: LoginState) -> None:
        now = int(self._clock.unix())
        if state.has_ended(login.id, login.user, login.begun):
            raise _refuse("this login was ended")
        if now >= login.ends:
            raise _refuse("this login has expired: it is a week old, or its token has expired")
        if now - max(login.used, self._used.get(login.id, 0)) > states.IDLE_SECONDS:
            raise _refuse("this login has expired: it was not used for 12 hours")

    def _note_use(self, id: str) -> None:
        now = int(self._clock.unix())
        self._used.pop(id, None)
        self._used[id] = now
        if len(self._used) > _MOST_REMEMBERED:
            del self._used[next(iter(self._used))]  # that of the longest ago

    # Ends

    async def end(self, login: Login) -> str:
        """Ends the login here and at all replicas. Returns a Set-Cookie that removes its cookie."""
        now = int(self._clock.unix() * 1000)
        state = await self._change(lambda state: states.end_login(state, login.id, login.user, now))
        return _write_cookie(_name_cookie(state, login.is_plain), "", login, 0)

    async def end_all(self) -> None:
        """When somebody else may have received halves of logins."""
        stored = await self._storage.read()
        if stored.version:
            await self._change(lambda state: states.end_all(state, int(self._clock.unix() * 1000)))

    # One-time links

    async def make_link(self, credential: Credential, caller: Caller, *, read_only: bool) -> NewLink:
        """A link with which somebody becomes this caller, once. Its login ends no later than the one that asked."""
        if len(credential.token) > LONGEST_TOKEN:
            detail = f"your token has {len(credential.token)} bytes, and a login can keep {LONGEST_TOKEN}"
            raise Problem(422, "token-too-long", detail, hint="ask with a token of a ServiceAccount")
        now, text, user = int(self._clock.unix()), self._ids.token(), caller.identity.user
        ends = self._decide_end(credential.token) if credential.login is None else credential.login.ends
        content = orjson.dumps([credential.token, user, read_only or caller.read_only, ends])
        entropy, until = self._ids.token(), now + states.LINK_SECONDS

        def add(state: LoginState) -> LoginState:
            state = states.renew_keys(state, now, self._ids)
            sealing = state.keys[0]
            sealed = f"{sealing.id}.{seal(sealing.secret, text, _LINK, content, entropy)}"
            added = states.add_link(state, states.hash_link(text), states.OpenLink(user, until, sealed), now)
            if added is None:
                detail = "too many one-time links are open"
                raise Problem(429, "too-many-links", detail, hint="they expire in two minutes", retry_after=30)
            return added

        await self._change(add)
        log.info("login link", extra={"action": "rest.login_link", "user": user, "read_only": read_only})
        return NewLink(text, format_time(datetime.fromtimestamp(until, UTC)))

    async def _use_link(self, text: str, address: str) -> _Grant:
        """Takes the link away, so that nobody else can use it. A valid one is accepted however many have failed before:
        others at the same address must not keep anybody out."""
        digest, now = states.hash_link(text), int(self._clock.unix())
        if digest not in (await self._read()).links:
            with self._failures.attempt(address):
                if digest not in (await self._read(fresh=True)).links:
                    raise _refuse_link()
        taken: list[tuple[LoginState, states.OpenLink | None]] = []

        def take(state: LoginState) -> LoginState:
            taken[:] = [(state, state.links.get(digest))]
            return states.drop_link(state, digest)

        await self._change(take)
        ((state, link),) = taken
        id, _, sealed = link.sealed.partition(".") if link is not None else ("", "", "")
        sealing = state.find_key(id)
        content = sealing and unseal(sealing.secret, text, _LINK, sealed)
        if link is None or link.until <= now or not content:
            self._failures.note(address)
            raise _refuse_link()
        return _Grant(*orjson.loads(content))

    # The state

    async def _read(self, *, fresh: bool = False) -> LoginState:
        now = self._clock.monotonic()
        if fresh or self._known_at is None or now - self._known_at >= FRESH_SECONDS:
            self._known = await self._storage.read()
            self._known_at = now
        return self._known.state

    async def _change(self, edit: Callable[[LoginState], LoginState]) -> LoginState:
        for _ in range(_TRIES):
            stored = await self._storage.read()
            wanted = edit(stored.state)
            if wanted != stored.state:
                try:
                    stored = await self._storage.write(wanted, stored.version)
                except StateChanged:
                    continue
            self._known, self._known_at = stored, self._clock.monotonic()
            return stored.state
        raise Problem(503, "unavailable", "too many logins begin or end at this moment", retry_after=1)

    def _build_cookie(self, state: LoginState, login: Login, key: str) -> str:
        sealing = state.keys[0]
        fields = {name: getattr(login, name) for name in Login.__slots__}
        sealed = seal(sealing.secret, key, _COOKIE, orjson.dumps(fields), self._ids.token())
        left = login.ends - int(self._clock.unix())
        return _write_cookie(_name_cookie(state, login.is_plain), f"{sealing.id}.{sealed}", login, left)


def _name_cookie(state: LoginState, is_plain: bool) -> str:
    """Another one for the plain door: browsers let a page over HTTP replace no cookie of one over TLS."""
    return f"trainmaster-{state.installation}{'-plain' if is_plain else ''}"


def _write_cookie(name: str, value: str, login: Login, seconds: int) -> str:
    secure = "" if login.is_plain else "; Secure"
    return f"{name}={value}; Path={login.path}; Max-Age={max(0, seconds)}; HttpOnly; SameSite=Strict{secure}"


def _read_login(content: bytes) -> Login | None:
    """None for one of another version."""
    try:
        return Login(**orjson.loads(content))
    except TypeError:
        return None


def _refuse(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, hint=_HINT)


def _refuse_link() -> Problem:
    return _refuse("this link was used already, or it has expired: it is valid once, for two minutes")


def read_expiry(token: str) -> int | None:
    """The time at which a JWT expires; None for other tokens. Not verified here: the token has been reviewed."""
    parts: Sequence[str] = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return None
    expires = claims.get("exp") if isinstance(claims, dict) else None
    return int(expires) if isinstance(expires, int | float) else None
