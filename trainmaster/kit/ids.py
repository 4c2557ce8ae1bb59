"""Injected randomness and unique ids, so that a run can be replayed from a seed.

Uids name directories and are visible to everybody (`Audit-Id`), so the next one must not be predictable.
"""

from __future__ import annotations

import os
import random
import secrets
import weakref
from typing import Protocol

# Kubernetes' alphabet for generated names: no vowels and no look-alikes, so no words appear by accident.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_EVEN = 256 // len(_NAME_ALPHABET) * len(_NAME_ALPHABET)
_TO_LETTERS = bytes(ord(_NAME_ALPHABET[byte % len(_NAME_ALPHABET)]) for byte in range(256))
_UNEVEN = bytes(range(_EVEN, 256))
_BLOCK = 512

_UIDS = 256
_DIGIT_PLACES = tuple(at for at in range(36) if at not in (8, 13, 18, 23))
_TO_VARIANT = bytes.maketrans(b"0123456789abcdef", b"89ab" * 4)
_UUID_RANDOM = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
_UUID_FIXED = 0x00000000_0000_4000_8000_000000000000


class Ids(Protocol):
    def uid(self) -> str:
        """A version 4 UUID."""
        ...

    def suffix(self, length: int = 5) -> str:
        """Random letters for generated names."""
        ...

    def token(self) -> str:
        """An unguessable secret of 256 bits, URL-safe."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemIds:
    """Ids from the system's random number generator.

    They are generated in blocks, because one system call per id would be noticeable on every request. A forked child
    discards the block that it shares with its parent.
    """

    def __init__(self) -> None:
        self._uids: list[str] = []
        self._letters = ""
        _alive.add(self)

    def uid(self) -> str:
        if not self._uids:
            self._uids = _make_uids()
        return self._uids.pop()

    def suffix(self, length: int = 5) -> str:
        while len(self._letters) < length:
            # Bytes beyond the last complete alphabet are dropped, so that all letters are equally likely.
            self._letters += os.urandom(_BLOCK).translate(_TO_LETTERS, _UNEVEN).decode()
        letters, self._letters = self._letters[:length], self._letters[length:]
        return letters

    def token(self) -> str:
        return secrets.token_urlsafe(32)

    def jitter(self) -> float:
        return secrets.randbits(53) * 2.0**-53

    def forget(self) -> None:
        """Discards ids that were generated but not handed out yet."""
        self._uids.clear()
        self._letters = ""


_alive: weakref.WeakSet[SystemIds] = weakref.WeakSet()


def _forget_all() -> None:
    for ids in _alive:
        ids.forget()


os.register_at_fork(after_in_child=_forget_all)


def _make_uids() -> list[str]:
    """Generates a block of version 4 UUIDs. The version and variant digits are set in all of them at once."""
    digits = os.urandom(16 * _UIDS).hex().encode()
    made = bytearray(b"-" * (36 * _UIDS))
    for source, target in enumerate(_DIGIT_PLACES):
        made[target::36] = digits[source::32]
    made[14::36] = b"4" * _UIDS
    made[19::36] = digits[16::32].translate(_TO_VARIANT)
    text = made.decode()
    return [text[at : at + 36] for at in range(0, len(text), 36)]


class SeededIds:
    """The same sequence for the same seed. Predictable, so not for production."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uid(self) -> str:
        bits = self._random.getrandbits(128) & _UUID_RANDOM | _UUID_FIXED
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self, length: int = 5) -> str:
        return "".join(self._random.choices(_NAME_ALPHABET, k=length))

    def token(self) -> str:
        return f"{self._random.getrandbits(256):064x}"

    def jitter(self) -> float:
        return self._random.random()
