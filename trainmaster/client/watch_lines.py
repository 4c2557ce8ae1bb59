"""The lines of a watch before they are decoded: which of them and how much of each a cache needs. Decoding is most of
what an event costs, and most of a Pod's bytes are its spec and the field ownership in its metadata.

Only for kinds of Kubernetes itself, whose objects are written in a fixed order: kind, apiVersion, metadata (name first,
managedFields last), spec, status. Whatever looks different stays as it is. No string can look like a key, because
quotes within strings are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_UID = re.compile(
    rb'\{"type":"(?:ADDED|MODIFIED|DELETED)","object":\{"kind":"\w+","apiVersion":"[\w./]+","metadata":\{"name":"[^"]*",'
    rb'(?:"generateName":"[^"]*",)?(?:"namespace":"[^"]*",)?"uid":"([^"]+)"'
)
"""The beginning of an event, up to the uid."""
_OWNERSHIP = b',"managedFields":['
_SPEC = b'},"spec":{'
_STATUS = b',"status":{'


def keep_last_states(lines: Sequence[bytes]) -> list[bytes]:
    """Of events that arrived together, without those that a later event of the same object makes obsolete."""
    uids = [found[1] if (found := _UID.match(line)) else b"" for line in lines]
    last = {uid: number for number, uid in enumerate(uids)}
    return [line for number, (line, uid) in enumerate(zip(lines, uids, strict=True)) if not uid or last[uid] == number]


def cut_spec(line: bytes) -> bytes:
    """The event without the object's spec and managedFields."""
    if not _UID.match(line):
        return line
    spec = line.find(_SPEC)
    status = line.rfind(_STATUS)
    if not 0 < spec < status:
        return line
    ownership = line.find(_OWNERSHIP, 0, spec)
    return line[: spec if ownership < 0 else ownership] + b"}" + line[status:]
