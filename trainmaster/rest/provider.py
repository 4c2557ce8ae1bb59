"""Where an identity provider's keys come from: a file, an address, or the issuer's own description of itself.

Only over https (http to this machine), in a thread, with a limit in time and size.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any

import orjson

from trainmaster.kit.addresses import is_private
from trainmaster.rest.jwks import Fetch, KeysUnavailable

_SECONDS = 10.0
_MOST_BYTES = 1024 * 1024
_DESCRIPTION = "/.well-known/openid-configuration"


def build_fetch(issuer: str, keys: str, ca: str) -> Fetch:
    """`keys`: an address, or a file, or "" to ask the issuer. `ca`: a file with who signs its certificate, or ""."""

    async def fetch() -> Any:
        return await asyncio.to_thread(_read_keys, issuer, keys, ca)

    return fetch


def _read_keys(issuer: str, keys: str, ca: str) -> Any:
    if keys and "://" not in keys:
        try:
            return orjson.loads(Path(keys).read_bytes())
        except (OSError, ValueError) as error:
            raise KeysUnavailable(f"{keys}: {error}") from None
    if keys:
        return _get(keys, ca)
    described = _get(issuer.rstrip("/") + _DESCRIPTION, ca)
    if not isinstance(described, dict) or described.get("issuer") != issuer:
        raise KeysUnavailable(f"{issuer}{_DESCRIPTION} does not describe the issuer {issuer}")
    return _get(str(described.get("jwks_uri")), ca)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """To private addresses only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not is_private(newurl):
            raise KeysUnavailable(f"{req.full_url} leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _get(url: str, ca: str) -> Any:
    if not is_private(url):
        raise KeysUnavailable(f"{url} is not https")
    try:
        tls = ssl.create_default_context(cafile=ca or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), _Redirects())
        with opener.open(url, timeout=_SECONDS) as answer:
            body = answer.read(_MOST_BYTES + 1)
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        raise KeysUnavailable(f"{url}: {error}") from None
    if len(body) > _MOST_BYTES:
        raise KeysUnavailable(f"{url} answers with more than {_MOST_BYTES} bytes")
    try:
        return orjson.loads(body)
    except ValueError:
        raise KeysUnavailable(f"{url} does not answer with JSON") from None
