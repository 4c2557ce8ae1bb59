"""Asks a REST API for a one-time link to its dashboard, as the holder of a token."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass

from trainmaster.cli import exits

_ANSWER_SECONDS = 30.0
"""The first request of all loads the code of the REST API."""
_PATH = "/api/v1/login-links"


@dataclass(frozen=True, slots=True)
class LoginLink:
    url: str
    expires_at: str


def fetch_link(server: str, token: str, ca_pem: str, page: str, *, read_only: bool) -> LoginLink:
    """`server` is the address of the REST API, `page` that of the dashboard. Failure if it refuses."""
    address = urllib.parse.urlsplit(server)
    if address.scheme != "https" or not address.netloc:
        raise exits.Failure(f"{server} is no https address, and a token must not be sent to others", exits.USAGE)
    context = ssl.create_default_context()
    try:
        if ca_pem:
            context.load_verify_locations(cadata=ca_pem)
        status, body = _post(address, context, token, json.dumps({"read_only": read_only}).encode())
    except ssl.SSLCertVerificationError as error:
        text = f"{server} shows a certificate that is not trusted here: {error.verify_message}; name its CA with --ca"
        raise exits.Failure(text, exits.NOT_READY) from None
    except (OSError, http.client.HTTPException) as error:
        raise exits.Failure(f"{server} does not answer: {error}", exits.NOT_READY) from None
    found = _read(body)
    if status != 201 or "link" not in found:
        raise exits.Failure(_explain(server, status, found))
    link = urllib.parse.quote(str(found["link"]), safe="")
    return LoginLink(f"{page}#/login?link={link}", str(found["expires_at"]))


def _post(address: urllib.parse.SplitResult, context: ssl.SSLContext, token: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection(address.netloc, timeout=_ANSWER_SECONDS, context=context)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", address.path.rstrip("/") + _PATH, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _read(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _explain(server: str, status: int, problem: dict[str, object]) -> str:
    if "detail" not in problem:
        return f"{server} answers {status} and does not seem to be the REST API of Trainmaster"
    hint = f"; {problem['hint']}" if "hint" in problem else ""
    return f"{problem['detail']}{hint}"
