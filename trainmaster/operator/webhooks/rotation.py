"""When a certificate of our own is replaced, for webhooks or records, and in which steps. Pure.

API servers trust what stands in `caBundle`, and see a change of it only after a moment. So a new certificate is stored
first; both CAs are trusted from then on; it serves some time later, and some time after that the old CA is dropped. No
request fails meanwhile. Only how long a step has been *seen* by whoever takes the next one counts, in boot time, so the
clocks of machines need not agree.

    ca.crt tls.crt tls.key                  what serves
    next-ca.crt next-tls.crt next-tls.key   what will serve
    old-ca.crt                              what served before
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations, read_fields
from trainmaster.auth.pki import ServerKeys
from trainmaster.kit.clock import format_time, parse_time
from trainmaster.operator import key_data

SECRET = "trainmaster-webhook-tls"
"""Of the webhooks."""
_NEXT, _OLD_CA = "next-", "old-ca.crt"
_NEXT_EXPIRES = "trainmaster.dev/next-expires"
_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class RotationTimes:
    days: int = 365
    """How long a certificate is valid."""
    renew_days: int = 30
    """How long before its end it is replaced."""
    overlap: float = 120.0
    """Seconds for which both CAs are trusted before the new certificate serves."""
    retire: float = 1800.0
    """Seconds after which the old CA is not trusted any more."""


@dataclass(frozen=True, slots=True)
class WebhookKeys:
    """The content of the Secret."""

    current: ServerKeys
    expires: datetime
    names: tuple[str, ...]
    next: ServerKeys | None = None
    next_expires: datetime | None = None
    old_ca: str = ""

    @property
    def bundle(self) -> str:
        """All CAs that API servers should trust now."""
        found = [self.current.ca, self.next.ca if self.next is not None else "", self.old_ca]
        return "".join(f"{text.strip()}\n" for text in dict.fromkeys(found) if text)


Issue = Callable[[], ServerKeys]
"""Makes a certificate with a CA of its own."""


@dataclass(frozen=True, slots=True)
class RotationStep:
    """What to do now, or how long there is nothing to do."""

    keys: WebhookKeys | None = None
    """To be stored in place of the known ones."""
    what: str = ""
    wait: float = 0.0


def decide_step(
    keys: WebhookKeys | None, names: Sequence[str], now: datetime, seen: float, times: RotationTimes, issue: Issue
) -> RotationStep:
    """`seen`: the seconds since the current content of the Secret was first seen."""
    wanted = tuple(sorted(names))
    expires = now + timedelta(days=times.days)
    if keys is None or not is_usable(keys, names, now):
        # Nobody can use the old one, so there is no reason to wait.
        made = WebhookKeys(issue(), expires, wanted, old_ca="" if keys is None else keys.current.ca)
        return RotationStep(made, "made a certificate")
    if keys.next is not None and keys.next_expires is not None:
        if seen < times.overlap:
            return RotationStep(wait=times.overlap - seen)
        promoted = WebhookKeys(keys.next, keys.next_expires, wanted, old_ca=keys.current.ca)
        return RotationStep(promoted, "serving with the new certificate")
    renew = keys.expires - timedelta(days=times.renew_days)
    if now >= renew:
        prepared = dataclasses.replace(keys, next=issue(), next_expires=expires)
        return RotationStep(prepared, "made the next certificate")
    left = (renew - now).total_seconds()
    if not keys.old_ca:
        return RotationStep(wait=min(left, _LONGEST))
    if seen < times.retire:
        return RotationStep(wait=min(left, times.retire - seen))
    return RotationStep(dataclasses.replace(keys, old_ca=""), "trusting the old certificate no more")


def is_usable(keys: WebhookKeys, names: Sequence[str], now: datetime) -> bool:
    return keys.names == tuple(sorted(names)) and now < keys.expires


def read_secret(secret: Fields) -> WebhookKeys | None:
    """None if something is missing or cannot be read: then everything is made again."""
    data: Mapping[str, str] = read_fields(secret, "data")
    marks = read_annotations(secret)
    try:
        current = key_data.decode(data)
        if current is None:
            return None
        following = key_data.decode(data, _NEXT)
        next_expires = parse_time(marks[_NEXT_EXPIRES]) if following is not None else None
        expires, names = parse_time(marks[key_data.EXPIRES]), tuple(marks[key_data.NAMES].split(","))
        return WebhookKeys(
            current, expires, names, following, next_expires, key_data.decode_text(data.get(_OLD_CA, ""))
        )
    except (KeyError, ValueError):
        return None


def build_secret(keys: WebhookKeys, namespace: str, version: str = "", name: str = SECRET) -> Object:
    """`version`: the resourceVersion of the Secret that it replaces."""
    data = key_data.encode(keys.current)
    marks = {key_data.EXPIRES: format_time(keys.expires), key_data.NAMES: ",".join(keys.names)}
    if keys.next is not None and keys.next_expires is not None:
        data |= key_data.encode(keys.next, _NEXT)
        marks[_NEXT_EXPIRES] = format_time(keys.next_expires)
    if keys.old_ca:
        data[_OLD_CA] = key_data.encode_text(keys.old_ca)
    secret = key_data.build_secret(name, namespace, data, marks)
    if version:
        secret["metadata"]["resourceVersion"] = version
    return secret
