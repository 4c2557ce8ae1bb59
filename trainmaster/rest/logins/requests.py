"""What a request shows of itself, and which requests are refused before anybody is identified. Pure.

The plain door is HTTP on loopback (docs/decisions/0022-a-plain-door-on-loopback.md): it takes only loopback names, so
that a page of another site cannot reach it under a name of its own (DNS rebinding), and no token crosses it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.rest.problems import Problem

LOGIN_HEADER = b"x-trainmaster-login"
SINGLE_HEADERS = frozenset({b"authorization", b"content-length", b"host", b"origin", b"sec-fetch-site", LOGIN_HEADER})
"""Headers that may stand once only, because layers might use different values."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_DASHBOARD = "`trainmaster dashboard` prints a one-time link"
_COOKIE_PATH = re.compile(r"/(?:[A-Za-z0-9._~%+-]+/)*")
_LONGEST_PATH = 256
_MOST_COOKIES = 8

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ShownCredentials:
    """The credentials of a request: a token, or the key of a login with the request's cookies."""

    token: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    cookies: bytes = field(default=b"", repr=False)
    is_plain: bool = False


def read_credentials(headers: Headers, *, is_plain: bool) -> ShownCredentials:
    """Raises Problem if there are none, or several."""
    key = headers.get(LOGIN_HEADER, b"").decode("latin-1").strip()
    if key and b"authorization" in headers:
        detail = "the request has a token and the key of a login"
        raise Problem(400, "bad-request", detail, hint="send one of the two")
    if key:
        return ShownCredentials(key=key, cookies=headers.get(b"cookie", b""), is_plain=is_plain)
    return ShownCredentials(token=_read_token(headers), is_plain=is_plain)


def _read_token(headers: Headers) -> str:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    try:
        text = token.strip().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if scheme.lower() != b"bearer" or not text:
        raise Problem(401, "unauthorized", "this path needs a token, and the request has none")
    return text


def list_cookies(header: bytes, name: str) -> list[str]:
    """The values of all cookies with this name: another program on this host could have set one for a longer path."""
    found = []
    for part in header.decode("latin-1").split(";"):
        key, _, value = part.partition("=")
        if key.strip() == name:
            found.append(value.strip())
    return found[:_MOST_COOKIES]


def check_plain_door(headers: Headers) -> None:
    """For every request that came over plain HTTP."""
    if not is_loopback_name(headers.get(b"host", b"").decode("latin-1")):
        detail = "this address serves only requests for localhost"
        raise Problem(421, "foreign-host", detail, hint="open the address that `trainmaster dashboard` prints")
    if b"authorization" in headers:
        raise build_use_tls("tokens are not accepted over plain HTTP")


def build_use_tls(detail: str) -> Problem:
    hint = f"send it to the https address (`rest.url` in `trainmaster status -o json`); in a browser, {_DASHBOARD}"
    return Problem(400, "use-tls", detail, hint=hint)


def is_loopback_name(host: str) -> bool:
    """From the header Host, with any port: `ssh -L` can give it another one."""
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    name = name.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_origin(headers: Headers) -> None:
    """For writes that bring no token: they must come from our own page. A browser tells by itself whether they do."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        # More exact than Origin: behind a proxy, Host may be another name than that in the address line.
        is_own = site.strip().lower() == b"same-origin"
    elif (origin := headers.get(b"origin")) is not None:
        is_own = origin.strip().lower().partition(b"://")[2] == headers.get(b"host", b"").strip().lower() != b""
    else:
        is_own = True
    if not is_own:
        detail = "the request comes from a page of another site"
        raise Problem(403, "foreign-origin", detail, hint="use the page of this server, or send a token")


def find_path_problem(path: str) -> str:
    """What is wrong with the path of a cookie; "" if nothing is."""
    if len(path) > _LONGEST_PATH or not _COOKIE_PATH.fullmatch(path) or "/../" in path or "/./" in path:
        return "must be a path that begins and ends with a slash, such as / or /trainmaster/"
    return ""


def strip_prefix(path: str, prefix: str) -> str | None:
    """The path below the prefix of a proxy (`rest.base_path`), or the path itself if it is not below. None for the
    prefix without its slash."""
    if not prefix or not path.startswith(prefix):
        return path
    rest = path[len(prefix) :]
    if not rest:
        return None
    return rest if rest.startswith("/") else path
