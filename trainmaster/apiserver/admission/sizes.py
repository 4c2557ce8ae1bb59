"""How large one object may be: in bytes, as etcd's limit upstream, and in values, which is what CPU depends on.

Every write passes `State.put`, so nothing larger is ever stored, whoever writes it: a caller, REST, a controller or the
node. Bodies and patched objects are measured earlier too, before anything walks through them.

An object that is larger already (written by a version without these limits) may shrink, stay or be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.status import StatusError

_BYTES_OF_A_VALUE = 2
"""A digit and a comma: shorter texts need not be counted."""
_OWNERSHIP = 3
"""A stored object also says in managedFields who owns each of its fields."""


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    most_bytes: int = 1536 * 1024
    most_values: int = 30_000

    def check_stored(self, value: object, raw: bytes, previous: bytes | None) -> None:
        """StatusError 413 when `value`, whose JSON text is `raw`, is too large to stand in place of `previous`."""
        if len(raw) > self.most_bytes and (previous is None or len(raw) > max(len(previous), self.most_bytes)):
            raise refuse_bytes(len(raw), self.most_bytes)
        most = self.most_values * _OWNERSHIP
        if len(raw) > most * _BYTES_OF_A_VALUE and has_more_values(value, raw, most):
            if previous is not None and len(raw) <= len(previous):
                return
            raise refuse_values(most)


def refuse_bytes(size: int, most: int) -> StatusError:
    """Upstream's words, which come from etcd, and the limit."""
    text = f"etcdserver: request is too large: the object has {size} bytes, more than {most} (limits.object_bytes)"
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")


def refuse_values(most: int) -> StatusError:
    text = f"the object has more than {most} values, fields and list items together (limits.object_values)"
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {text}")


def has_more_values(value: object, raw: bytes, most: int) -> bool:
    """Whether `value`, whose JSON text is `raw`, holds more than `most` values; cheap for nearly every text."""
    if len(raw) <= most * _BYTES_OF_A_VALUE:
        return False
    # Counting goes no further than `most`; looking through a long text for commas would cost more.
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
