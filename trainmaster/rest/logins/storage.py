"""Keeps the state of logins in a Secret of the installation, so that it survives restarts and replicas share it.

Without the permission to keep the Secret (`trainmaster rest` with an account of your own) it is kept in memory, with a
warning: logins then end with the process.
"""

from __future__ import annotations

import base64
import binascii
import logging
from dataclasses import dataclass
from typing import Protocol

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import SECRETS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.client.contract import Client
from trainmaster.rest.logins.state import EMPTY, LoginState, decode_state, encode_state

log = logging.getLogger(__name__)

SECRET = "trainmaster-logins"
_FIELD = "state"


@dataclass(frozen=True, slots=True)
class StoredState:
    state: LoginState
    version: str = ""
    """What a write has to name; "" if nothing is stored yet."""


class StateChanged(Exception):
    """Somebody else has written meanwhile: read again."""


class LoginStorage(Protocol):
    async def read(self) -> StoredState: ...

    async def write(self, state: LoginState, version: str) -> StoredState:
        """Raises StateChanged unless `version` is the current one."""
        ...


class MemoryStorage:
    def __init__(self) -> None:
        self._stored = StoredState(EMPTY)

    async def read(self) -> StoredState:
        return self._stored

    async def write(self, state: LoginState, version: str) -> StoredState:
        if version != self._stored.version:
            raise StateChanged
        self._stored = StoredState(state, str(int(version or 0) + 1))
        return self._stored


class SecretStorage:
    """`client` has the REST API's own identity."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._where = f"{namespace}/{SECRET}"
        self._instead: MemoryStorage | None = None

    async def read(self) -> StoredState:
        if self._instead is not None:
            return await self._instead.read()
        try:
            return self._decode(await self._client.get(SECRETS, SECRET, self._namespace))
        except NotFound:
            return StoredState(EMPTY)
        except StatusError as error:
            if error.code != 403:
                raise
            return await self._use_memory(error).read()

    async def write(self, state: LoginState, version: str) -> StoredState:
        if self._instead is not None:
            return await self._instead.write(state, version)
        body = self._encode(state, version)
        try:
            if version:
                saved = await self._client.update(SECRETS, body, self._namespace)
            else:
                saved = await self._client.create(SECRETS, body, self._namespace)
        except (AlreadyExists, Conflict):
            raise StateChanged from None
        except StatusError as error:
            # Not found: an update whose Secret was deleted, or a creation without the namespace.
            if error.code == 404 and version:
                raise StateChanged from None
            if error.code not in (403, 404):
                raise
            memory = self._use_memory(error)
            return await memory.write(state, (await memory.read()).version)
        written = read_text(saved, "metadata", "resourceVersion")
        if written.isdigit():
            await self._client.durable(int(written))
        return StoredState(state, written)

    def _use_memory(self, error: StatusError) -> MemoryStorage:
        # docs/rest.md says which role is missing.
        fields = {"action": "rest.logins_in_memory", "secret": self._where, "error": error.message}
        log.warning("logins of the dashboard end with this process", extra=fields)
        self._instead = MemoryStorage()
        return self._instead

    def _encode(self, state: LoginState, version: str) -> Object:
        metadata = {"name": SECRET, "namespace": self._namespace}
        if version:
            metadata["resourceVersion"] = version
        data = {_FIELD: base64.b64encode(encode_state(state)).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}

    def _decode(self, found: Object) -> StoredState:
        version = read_text(found, "metadata", "resourceVersion")
        try:
            raw = base64.b64decode(read_text(read_fields(found, "data"), _FIELD), validate=True)
            return StoredState(decode_state(raw), version)
        except (ValueError, binascii.Error) as error:
            fields = {"action": "rest.logins_lost", "secret": self._where, "error": str(error)}
            log.warning("the Secret of logins is unreadable and will be replaced; all logins end", extra=fields)
            return StoredState(EMPTY, version)
