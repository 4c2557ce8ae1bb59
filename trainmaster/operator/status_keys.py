"""The certificate of the operator's status server: one Secret, created by the first replica, used by all.

    Secret trainmaster-progress-tls: ca.crt, tls.crt, tls.key

It is created again, including its CA, when an operator starts and it is for other names or about to expire; running
jobs get the new CA through their ConfigMap. The CA's key is not kept, because nothing else is ever signed with it.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields
from trainmaster.api.resources import SECRETS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.auth.pki import Pki
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock, format_time

SECRET = "trainmaster-progress-tls"
_EXPIRES = "trainmaster.dev/expires"
_NAMES = "trainmaster.dev/names"
_DAYS, _RENEW_DAYS = 365, 30
_PARTS = ("ca.crt", "tls.crt", "tls.key")
_TRIES = 5


@dataclass(frozen=True, slots=True)
class StatusKeys:
    ca: str
    certificate: str
    key: str

    def build_tls(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory() as folder:
            # The library reads files only; they are deleted before anybody connects.
            place = Path(folder, "pair.pem")
            place.touch(0o600)
            place.write_text(self.certificate + self.key)
            context.load_cert_chain(place)
        return context


async def ensure_keys(client: Client, namespace: str, names: Sequence[str], clock: Clock) -> StatusKeys:
    """The keys in the Secret, created or renewed if necessary. Several replicas agree on one."""
    for _ in range(_TRIES):
        try:
            found = await client.get(SECRETS, SECRET, namespace)
        except NotFound:
            found = None
        if found is not None and _is_good(found, names, clock):
            return _read(found)
        wanted = _build(namespace, names, clock)
        try:
            if found is None:
                return _read(await client.create(SECRETS, wanted, namespace))
            wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            return _read(await client.update(SECRETS, wanted, namespace))
        except (AlreadyExists, Conflict):
            continue
    raise OSError(f"the Secret {namespace}/{SECRET} changes all the time")


def _is_good(secret: Object, names: Sequence[str], clock: Clock) -> bool:
    marks, data = read_annotations(secret), read_fields(secret, "data")
    soon = format_time(clock.now() + timedelta(days=_RENEW_DAYS))
    return (
        all(data.get(part) for part in _PARTS) and marks.get(_NAMES) == _join(names) and soon < marks.get(_EXPIRES, "")
    )


def _build(namespace: str, names: Sequence[str], clock: Clock) -> Object:
    with tempfile.TemporaryDirectory() as folder:
        pki = Pki(Path(folder), clock)
        pki.ensure(names)
        files = dict(zip(_PARTS, (pki.ca.certificate, pki.server.certificate, pki.server.key), strict=True))
        data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    expires = format_time(clock.now() + timedelta(days=_DAYS))
    marks = {_EXPIRES: expires, _NAMES: _join(names)}
    meta = {"name": SECRET, "namespace": namespace, "annotations": marks}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}


def _read(secret: Object) -> StatusKeys:
    return StatusKeys(*(base64.b64decode(secret["data"][part]).decode() for part in _PARTS))


def _join(names: Sequence[str]) -> str:
    return ",".join(sorted(names))
