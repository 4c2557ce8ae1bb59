"""The certificate of the operator's status server: one Secret, created by the first replica, used by all.

    Secret trainmaster-progress-tls: ca.crt, tls.crt, tls.key

It is created again, including its CA, when an operator starts and it is for other names or about to expire; running
jobs get the new CA through their ConfigMap. The CA's key is not kept, because nothing else is ever signed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields
from trainmaster.api.resources import SECRETS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound
from trainmaster.auth.issuing import issue_apart
from trainmaster.auth.pki import ServerKeys
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock, format_time
from trainmaster.operator import key_data

SECRET = "trainmaster-progress-tls"
_DAYS, _RENEW_DAYS = 365, 30
_TRIES = 5


async def ensure_keys(client: Client, namespace: str, names: Sequence[str], clock: Clock) -> ServerKeys:
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
    has_all = all(data.get(part) for part in key_data.PARTS)
    return (
        has_all and marks.get(key_data.NAMES) == key_data.join_names(names) and soon < marks.get(key_data.EXPIRES, "")
    )


def _build(namespace: str, names: Sequence[str], clock: Clock) -> Object:
    expires = format_time(clock.now() + timedelta(days=_DAYS))
    marks = {key_data.EXPIRES: expires, key_data.NAMES: key_data.join_names(names)}
    data = key_data.encode(issue_apart(names, clock, _DAYS))
    return key_data.build_secret(SECRET, namespace, data, marks)


def _read(secret: Object) -> ServerKeys:
    found = key_data.decode(secret["data"])
    assert found is not None, "it is good, or was just made"
    return found
