"""What an installation keeps about logins, and its changes as pure functions. `storage` keeps it in a Secret.

It has the sealing keys, the logins that were ended before their time, and open one-time links. A login itself is not
kept: it is in the browser. Everything here expires, and every list has a limit, so that it fits into a Secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from trainmaster.kit.ids import Ids

DAY = 24 * 3600
LONGEST_SECONDS = 7 * DAY
"""How long a login can live at most."""
IDLE_SECONDS = DAY // 2
"""How long a login lives without a request."""
LINK_SECONDS = 120
_KEY_SECONDS = 30 * DAY
_GRACE_SECONDS = 600
"""Clocks of replicas, and requests under way when a login ends."""
_MOST_LINKS = 100
_MOST_LINKS_OF_ONE = 5
_MOST_VOID = 3_000
_MOST_VOID_OF_ONE = 20


@dataclass(frozen=True, slots=True)
class SealingKey:
    id: str
    secret: str
    since: int
    """Unix time, as all times here."""


@dataclass(frozen=True, slots=True)
class EndedLogin:
    user: str
    until: int
    """Until then a copy of its cookie could still be accepted."""


@dataclass(frozen=True, slots=True)
class OpenLink:
    """A one-time link, by the hash of its text."""

    user: str
    until: int
    sealed: str
    """What the link gives, sealed with the link itself."""


@dataclass(frozen=True, slots=True)
class LoginState:
    installation: str = ""
    """Part of the cookie's name, because cookies know no ports and one host can serve several homes."""
    keys: tuple[SealingKey, ...] = ()
    """The newest, which seals, first; the others still open."""
    ended: Mapping[str, EndedLogin] = field(default_factory=dict)
    """By the id of the login."""
    cuts: Mapping[str, int] = field(default_factory=dict)
    """User -> the time, in milliseconds, up to which all logins of that user have ended. "" stands for all users."""
    links: Mapping[str, OpenLink] = field(default_factory=dict)

    def find_key(self, id: str) -> SealingKey | None:
        return next((key for key in self.keys if key.id == id), None)

    def has_ended(self, id: str, user: str, begun: int) -> bool:
        return id in self.ended or begun <= max(self.cuts.get(user, 0), self.cuts.get("", 0))


EMPTY = LoginState()


def renew_keys(state: LoginState, now: int, ids: Ids) -> LoginState:
    """Makes a new sealing key when there is none or it is old. The previous one opens until its logins have expired."""
    kept = tuple(
        key
        for at, key in enumerate(state.keys)
        if at == 0 or state.keys[at - 1].since + LONGEST_SECONDS + _GRACE_SECONDS > now
    )
    if not kept or now - kept[0].since >= _KEY_SECONDS:
        kept = (SealingKey(ids.suffix(8), ids.token(), now), *kept)
    return replace(state, installation=state.installation or ids.suffix(8), keys=kept)


def end_login(state: LoginState, id: str, user: str, milliseconds: int) -> LoginState:
    """The entry is needed as long as a copy of the cookie would be accepted without a request in between."""
    now = milliseconds // 1000
    ended = {key: one for key, one in state.ended.items() if one.until > now}
    ended[id] = EndedLogin(user, now + IDLE_SECONDS + _GRACE_SECONDS)
    cuts = {who: since for who, since in state.cuts.items() if since // 1000 + LONGEST_SECONDS + _GRACE_SECONDS > now}
    if sum(one.user == user for one in ended.values()) > _MOST_VOID_OF_ONE:
        ended = {key: one for key, one in ended.items() if one.user != user}
        cuts[user] = milliseconds
    if len(ended) + len(cuts) > _MOST_VOID:
        ended, cuts = {}, {"": milliseconds}
    return replace(state, ended=ended, cuts=cuts)


def end_all(state: LoginState, milliseconds: int) -> LoginState:
    return replace(state, ended={}, cuts={"": milliseconds}, links={})


def add_link(state: LoginState, digest: str, link: OpenLink, now: int) -> LoginState | None:
    """None if too many are open. The oldest of the same user give way."""
    links = {key: one for key, one in state.links.items() if one.until > now}
    mine = sorted((key for key in links if links[key].user == link.user), key=lambda key: links[key].until)
    for key in mine[: max(0, len(mine) + 1 - _MOST_LINKS_OF_ONE)]:
        del links[key]
    if len(links) >= _MOST_LINKS:
        return None
    return replace(state, links={**links, digest: link})


def drop_link(state: LoginState, digest: str) -> LoginState:
    return replace(state, links={key: one for key, one in state.links.items() if key != digest})


def hash_link(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def encode_state(state: LoginState) -> bytes:
    return orjson.dumps(asdict(state), option=orjson.OPT_SORT_KEYS)


def decode_state(raw: bytes) -> LoginState:
    """ValueError for anything that `encode_state` has not written."""
    try:
        found: dict[str, Any] = orjson.loads(raw)
        return LoginState(
            found["installation"],
            tuple(SealingKey(**key) for key in found["keys"]),
            {id: EndedLogin(**one) for id, one in found["ended"].items()},
            {str(user): int(since) for user, since in found["cuts"].items()},
            {digest: OpenLink(**one) for digest, one in found["links"].items()},
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a state of logins: {type(error).__name__}") from None
