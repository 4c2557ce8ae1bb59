"""Package indexes from the server's environment, and which part of their configuration others may see. Pure.

The process that downloads gets all of it. A sandbox gets the URLs without their credentials, and messages show none
either.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Mapping

_FROM_UV = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_NO_INDEX": ("UV_NO_INDEX",),
}
_PLACES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
_PROXIES = ("PIP_PROXY", *(f"{word}_proxy" for word in ("http", "https", "all", "no")))
_PROXIES += tuple(name.upper() for name in _PROXIES[1:])
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SHOWN = ("PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_PRE", "PIP_PREFER_BINARY", "PIP_TIMEOUT", "PIP_RETRIES")
_CHANGING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_NO_BINARY", "PIP_ONLY_BINARY", "PIP_EDITABLE")
"""Options that would change what a download does."""
_USERINFO = re.compile(r"(?<=://)[^/\s@]+(?:@[^/\s@]+)*(?=@)")
_UNSAFE = r"\x1b\[[0-9;]*[A-Za-z]|[^\x20-\x7e\xa0-\ud7ff]"
"""Compiled on first use: that takes 3 ms, and every start loads this module."""
_SHOWN_VERSIONS = 3
_DISTRACTING = "Ignored the following"
"""The beginning of a line with all versions for other Pythons, or that were withdrawn."""
_LAST_LINES = 5
_LONGEST = 1000


def build_fetch_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """For the server's own process: its environment, with uv's variables translated to pip's."""
    kept = {name: text for name, text in environ.items() if not name.startswith("PYTHON") and name not in _CHANGING}
    for ours, theirs in _FROM_UV.items():
        found = next((environ[name] for name in (ours, *theirs) if environ.get(name)), "")
        if found:
            # A named index of uv is NAME=URL.
            kept[ours] = " ".join(re.sub(r"^[A-Za-z0-9_-]+=(?=[a-z+]+://)", "", place) for place in found.split())
    return kept


def build_sandbox_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """For a sandbox: the same URLs, proxies and authorities of certificates, without credentials."""
    known = build_fetch_environ(environ)
    found = {name: redact(known[name], ()) for name in (*_PLACES, *_PROXIES) if known.get(name)}
    found = {name: text.replace("****@", "") for name, text in found.items()}
    return {**found, **{name: known[name] for name in (*_SHOWN, *_CERTIFICATES) if known.get(name)}}


def has_credentials(environ: Mapping[str, str]) -> bool:
    known = build_fetch_environ(environ)
    return any(_USERINFO.search(known.get(name, "")) for name in _PLACES)


def list_secrets(environ: Mapping[str, str]) -> list[str]:
    """Passwords and user names in the URLs, both quoted and unquoted."""
    found: dict[str, None] = {}
    for text in environ.values():
        for match in _USERINFO.findall(text):
            _, _, password = match.partition(":")
            for part in (match, password):
                found |= dict.fromkeys((part, urllib.parse.unquote(part)))
    return sorted((secret for secret in found if len(secret) > 3), key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    text = _USERINFO.sub("****", text)
    for secret in secrets:
        text = text.replace(secret, "****")
    return text


def list_local_places(environ: Mapping[str, str]) -> list[str]:
    """Directories of this machine among the indexes, and the certificates to trust."""
    known = build_fetch_environ(environ)
    plain = [urllib.parse.unquote(word.removeprefix("file://")) for word in known.get("PIP_FIND_LINKS", "").split()]
    plain += [known.get(name, "") for name in _CERTIFICATES]
    return [word for word in dict.fromkeys(plain) if word.startswith("/")]


def pick_reason(output: str, secrets: Iterable[str]) -> str:
    """The installer's last message, as one line that is safe to show."""
    lines = [re.sub(_UNSAFE, "", line).strip() for line in redact(output, secrets).splitlines()]
    lines = [line for line in lines if line and not line.lower().startswith(("[notice]", "warning:"))]
    said = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    said = [_shorten_versions(line) for line in said if not line.startswith(_DISTRACTING)]
    # Why pip found nothing, which it mentions in passing.
    cause = next((line for line in lines if said and line.startswith("Could not fetch URL")), "")
    return " | ".join([*filter(None, [cause]), *(said or lines)[-_LAST_LINES:]])[:_LONGEST]


def _shorten_versions(line: str) -> str:
    """With the last versions of the list in it."""
    head, mark, rest = line.partition("(from versions: ")
    names, end, tail = rest.partition(")")
    versions = names.split(", ")
    if len(versions) > _SHOWN_VERSIONS:
        names = ", ".join(["...", *versions[-_SHOWN_VERSIONS:]])
    return f"{head}{mark}{names}{end}{tail}"
