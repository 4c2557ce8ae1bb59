"""Validation of names, labels and qualified keys. Each function returns a list of errors, empty if there are none.

Messages are upstream's. Used for metadata here, and by kinds for the names inside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Complaints = list[str]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PORT_NAME = re.compile(r"[-a-z0-9]+")
_ENVIRONMENT = re.compile(r"[ -<>-~]+")

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def label(text: str) -> Complaints:
    """An RFC 1123 label."""
    complaints = ["must be no more than 63 characters"] if len(text) > 63 else []
    if _LABEL.fullmatch(text) is None:
        complaints.append("must not contain dots" if _SUBDOMAIN.fullmatch(text) else LABEL_TEXT)
    return complaints


def label_1035(text: str) -> Complaints:
    complaints = ["must be no more than 63 characters"] if len(text) > 63 else []
    if _LABEL_1035.fullmatch(text) is None:
        complaints.append(_LABEL_1035_TEXT)
    return complaints


def subdomain(text: str) -> Complaints:
    """An RFC 1123 subdomain, the form of most object names."""
    complaints = ["must be no more than 253 characters"] if len(text) > 253 else []
    if _SUBDOMAIN.fullmatch(text) is None:
        complaints.append(_SUBDOMAIN_TEXT)
    return complaints


def path_segment(text: str) -> Complaints:
    """What may stand in a URL path as one segment, the form of RBAC names."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


def anything(text: str) -> Complaints:
    return []


RULES: dict[str, Callable[[str], Complaints]] = {
    "subdomain": subdomain,
    "label": label,
    "path": path_segment,
    "any": anything,
}
"""By `Kind.name_form`."""


_REMEMBERED = 512
"""Maximum length of cached texts; longer ones are invalid, and caching them would waste memory."""


def qualified(text: str) -> tuple[str, ...]:
    """A label or annotation key: an optional DNS prefix, a slash, and a name."""
    return _qualified(text) if len(text) <= _REMEMBERED else _qualified.__wrapped__(text)


@lru_cache(maxsize=4096)
def _qualified(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    complaints: Complaints = []
    if "/" in prefix:
        text = f"a valid label key {_QUALIFIED_TEXT}"
        return (f"{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    if slash:
        if not prefix:
            complaints.append("prefix part must be non-empty")
        else:
            complaints += [f"prefix part {complaint}" for complaint in subdomain(prefix)]
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name) > 63:
        complaints.append("name part must be no more than 63 bytes")
    if _QUALIFIED.fullmatch(name) is None:
        complaints.append(f"name part {_QUALIFIED_TEXT}")
    return tuple(complaints)


def label_value(text: str) -> tuple[str, ...]:
    return _label_value(text) if len(text) <= _REMEMBERED else _label_value.__wrapped__(text)


@lru_cache(maxsize=4096)
def _label_value(text: str) -> tuple[str, ...]:
    complaints = ["must be no more than 63 bytes"] if len(text) > 63 else []
    if _LABEL_VALUE.fullmatch(text) is None:
        complaints.append(_LABEL_VALUE_TEXT)
    return tuple(complaints)


def config_key(text: str) -> Complaints:
    """A key of a ConfigMap or Secret."""
    complaints = ["must be no more than 253 characters"] if len(text) > 253 else []
    if _CONFIG_KEY.fullmatch(text) is None:
        complaints.append(_CONFIG_KEY_TEXT)
    elif text == ".":
        complaints.append("must not be '.'")
    elif text == "..":
        complaints.append("must not be '..'")
    elif text.startswith(".."):
        complaints.append("must not start with '..'")
    return complaints


def port_name(text: str) -> Complaints:
    """A short service name (RFC 6335)."""
    complaints = ["must be no more than 15 characters long"] if len(text) > 15 else []
    if _PORT_NAME.fullmatch(text) is None:
        complaints.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any(letter.islower() for letter in text):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in text:
        complaints.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        complaints.append("must not begin or end with a hyphen")
    return complaints


def environment(text: str) -> Complaints:
    if _ENVIRONMENT.fullmatch(text) is not None:
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def port_number(value: int) -> Complaints:
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]
