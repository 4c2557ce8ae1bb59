"""Predicts the output of a Mersenne Twister, as an attacker could with the ids of a few hundred responses."""

from __future__ import annotations

import random
from collections.abc import Sequence

STATE, _MIDDLE = 624, 397
_MATRIX, _UPPER, _LOWER = 0x9908B0DF, 0x80000000, 0x7FFFFFFF


def _untemper(word: int) -> int:
    """The internal state word of an output word."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    inner = word
    for _ in range(5):
        inner = word ^ ((inner << 7) & 0x9D2C5680)
    word = inner
    for _ in range(3):
        inner = word ^ (inner >> 11)
    return inner & 0xFFFFFFFF


def clone(words: list[int]) -> random.Random:
    """A Mersenne Twister in the state after these 624 output words."""
    copy = random.Random()
    copy.setstate((3, (*(_untemper(word) for word in words), STATE), None))
    return copy


def count_foretold(uids: Sequence[str]) -> int:
    """How many uids begin a sequence that a Mersenne Twister would give, judged by the last 32 bits of each.

    These are the first of four words. The recurrence makes them from the first word of 156 uids before, and from the
    second words of that one and of another; of second words the two highest bits are the variant's: 16 guesses.
    """
    numbers = [int(uid.replace("-", ""), 16) for uid in uids]
    first = [_untemper(number & 0xFFFFFFFF) for number in numbers]
    second = [[_untemper(number >> 32 & 0x3FFFFFFF | top << 30) for top in range(4)] for number in numbers]
    foretold = 0
    for at in range(STATE // 4, len(uids)):
        upper = first[at - STATE // 4] & _UPPER
        near, far = second[at - STATE // 4], second[at - (STATE - _MIDDLE + 1) // 4]
        foretold += any(
            first[at] == one ^ ((upper | two & _LOWER) >> 1) ^ (_MATRIX if two & 1 else 0)
            for one in far
            for two in near
        )
    return foretold
