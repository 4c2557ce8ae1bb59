"""Idempotency keys: repeating a request whose answer was lost returns what the first one created.

A key is stored only on what the request creates: its hash is a label there, and the name is derived from it if none was
requested. So it survives a restart, its storage is bounded by the jobs and their history, and two concurrent requests
conflict on the name, which the server assigns only once.
"""

from __future__ import annotations

import hashlib

import orjson

from trainmaster.rest.callers import Caller


def hash_key(caller: Caller, namespace: str, key: str) -> str:
    """For this caller in this namespace: another caller's key is a different key."""
    text = "\0".join((caller.identity.user, namespace, key))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]


def hash_body(body: object) -> str:
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:40]
