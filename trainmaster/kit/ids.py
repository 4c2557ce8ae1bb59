"""Randomness and unique ids, injected, so that a run can be replayed from a seed."""

from __future__ import annotations

import random
import secrets
from typing import Protocol

# Kubernetes' alphabet for generated names: no vowels and no look-alikes, so no words appear by accident.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

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
    def __init__(self) -> None:
        self._random = random.Random(secrets.randbits(128))

    def uid(self) -> str:
        # Version 4 and the RFC's variant put into random bits; uuid.UUID does the same in three times the time.
        bits = self._random.getrandbits(128) & _UUID_RANDOM | _UUID_FIXED
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self, length: int = 5) -> str:
        return "".join(self._random.choices(_NAME_ALPHABET, k=length))

    def token(self) -> str:
        return secrets.token_urlsafe(32)

    def jitter(self) -> float:
        return self._random.random()


class SeededIds(SystemIds):
    """The same sequence for the same seed. Not for production: its tokens can be guessed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def token(self) -> str:
        return f"{self._random.getrandbits(256):064x}"
