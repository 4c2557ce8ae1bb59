"""Pages of records: the token with which a list continues. Pure; used by the REST API and by the operator's records."""

from __future__ import annotations

import base64
import binascii

import orjson

from trainmaster.history.archive import RecordLine


def build_token(line: RecordLine) -> str:
    """For what comes after this record."""
    return base64.urlsafe_b64encode(orjson.dumps([line.finished, line.created, line.uid])).decode().rstrip("=")


def read_token(token: str) -> tuple[str, str, str] | None:
    """`Filter.after`; None for "". Raises ValueError if it is no token of ours."""
    if not token:
        return None
    try:
        found = orjson.loads(base64.b64decode(token.encode() + b"=" * (-len(token) % 4), b"-_", validate=True))
        ended, created, uid = found
    except (ValueError, binascii.Error, TypeError):
        found = None
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise ValueError("no token of ours: send `continue` as it was answered")
    return ended, created, uid
