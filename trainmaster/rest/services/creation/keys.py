"""Idempotency keys: whoever sends a request twice because the first answer was lost gets what the first one made.

Nothing is stored for a key but on what the request makes: its hash is a label there, and the name is derived from it
where none was asked for. So it survives a restart, is bounded by the jobs and their history, and two requests at the
same time meet in the name, which the server behind gives only once.
"""

from __future__ import annotations

import hashlib

import orjson

from trainmaster.rest.callers import Caller


def hash_key(caller: Caller, namespace: str, key: str) -> str:
    """Of this caller in this namespace: another caller's key is another key."""
    text = "\0".join((caller.identity.user, namespace, key))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


def hash_body(body: object) -> str:
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:40]
