"""The maximum size of an object: in bytes, like etcd's limit upstream, and in JSON values, which determine CPU time.

Every write goes through `RegistryState.put`, so no larger object is ever stored. Request bodies and patched objects are
also checked earlier, before they are processed.

An object that is already larger (written by a version without these limits) may be updated unless it grows, or deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.status import StatusError

_BYTES_OF_A_VALUE = 2
"""A value has at least two bytes, such as a digit and a comma, so values of shorter texts need not be counted."""
_OWNERSHIP = 3
"""A stored object may have this many times as many values as a request, because of managedFields."""


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    most_bytes: int = 1536 * 1024
    most_values: int = 30_000

    def check_stored(self, value: object, raw: bytes, previous: bytes | None) -> None:
        """StatusError 413 if `value`, whose JSON text is `raw`, is too large to replace `previous`."""
        if len(raw) > self.most_bytes and (previous is None or len(raw) > max(len(previous), self.most_bytes)):
            raise refuse_bytes(len(raw), self.most_bytes)
        most = self.most_values * _OWNERSHIP
        if len(raw) > most * _BYTES_OF_A_VALUE and has_more_values(value, raw, most):
            if previous is not None and len(raw) <= len(previous):
                return
            raise refuse_values(most)


def refuse_bytes(size: int, most: int) -> StatusError:
    """Upstream's message, which comes from etcd, and the limit."""
    text = f"etcdserver: request is too large: the object has {size} bytes, more than {most} (limits.object_bytes)"
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")


def refuse_values(most: int) -> StatusError:
    text = f"the object has more than {most} values, fields and list items together (limits.object_values)"
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")


def has_more_values(value: object, raw: bytes, most: int) -> bool:
    """Whether `value`, whose JSON text is `raw`, contains more than `most` values; cheap for nearly every text."""
    if len(raw) <= most * _BYTES_OF_A_VALUE:
        return False
    # Counting stops at `most`, which is cheaper than counting the commas of a long text.
    return _exceeds(value, most)


def _exceeds(value: object, most: int) -> bool:
    left, waiting = most, [value] if isinstance(value, dict | list) else []
    while waiting:
        item = waiting.pop()
        children = item.values() if isinstance(item, dict) else item
        left -= len(children)
        if left < 0:
            return True
        waiting.extend(child for child in children if isinstance(child, dict | list))
    return False
