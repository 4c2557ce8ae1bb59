"""Uids, suffixes and tokens: well-formed, different in every process, and not to be computed from earlier ones."""

from __future__ import annotations

import os
import random
import uuid

import pytest

from trainmaster.kit.ids import Ids, SeededIds, SystemIds

pytestmark = pytest.mark.unit

_STATE, _MIDDLE = 624, 397
_MATRIX, _UPPER, _LOWER = 0x9908B0DF, 0x80000000, 0x7FFFFFFF


def _untemper(word: int) -> int:
    """The Mersenne Twister's inner word behind one that it gave out."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    inner = word
    for _ in range(5):
        inner = word ^ ((inner << 7) & 0x9D2C5680)
    word = inner
    for _ in range(3):
        inner = word ^ (inner >> 11)
    return inner & 0xFFFFFFFF


def _clone(words: list[int]) -> random.Random:
    """A Mersenne Twister in the state of the one that gave out these 624 words."""
    copy = random.Random()
    copy.setstate((3, (*(_untemper(word) for word in words), _STATE), None))
    return copy


def _count_foretold(ids: Ids, rounds: int = 400) -> int:
    """How many uids begin a sequence that a Mersenne Twister would give, judged by the last 32 bits of each.

    These are the first of four words. The recurrence makes them from the first word of 156 uids before, and from the
    second words of that one and of another; of second words the two highest bits are the variant's: 16 guesses.
    """
    numbers = [int(ids.uid().replace("-", ""), 16) for _ in range(rounds)]
    first = [_untemper(number & 0xFFFFFFFF) for number in numbers]
    second = [[_untemper(number >> 32 & 0x3FFFFFFF | top << 30) for top in range(4)] for number in numbers]
    foretold = 0
    for at in range(_STATE // 4, rounds):
        upper = first[at - _STATE // 4] & _UPPER
        near, far = second[at - _STATE // 4], second[at - (_STATE - _MIDDLE + 1) // 4]
        foretold += any(
            first[at] == one ^ ((upper | two & _LOWER) >> 1) ^ (_MATRIX if two & 1 else 0)
            for one in far
            for two in near
        )
    return foretold


def test_a_mersenne_twister_is_cloned_and_foretold_from_what_it_gave_out() -> None:
    """So the next test can fail. It is what an attacker did with the request ids of 420 answers."""
    source = random.Random(7)
    copy = _clone([source.getrandbits(32) for _ in range(_STATE)])
    assert [copy.getrandbits(32) for _ in range(100)] == [source.getrandbits(32) for _ in range(100)]
    assert _count_foretold(SeededIds(7)) == 400 - _STATE // 4


def test_uids_cannot_be_computed_from_those_before() -> None:
    assert _count_foretold(SystemIds()) == 0


def test_uids_are_version_4_of_the_rfc_variant_and_all_different() -> None:
    ids = SystemIds()
    made = [ids.uid() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert all(str(parsed := uuid.UUID(text)) == text and parsed.version == 4 for text in made)
    assert {uuid.UUID(text).variant for text in made} == {uuid.RFC_4122}


def test_every_digit_of_a_uid_is_random_but_for_version_and_variant() -> None:
    ids = SystemIds()
    made = [ids.uid() for _ in range(2000)]
    seen = ["".join(sorted({text[at] for text in made})) for at in range(36)]
    assert {at for at, digits in enumerate(seen) if digits != "0123456789abcdef"} == {8, 13, 14, 18, 19, 23}
    assert (seen[14], seen[19]) == ("4", "89ab")


def test_a_forked_child_makes_others_than_its_parent() -> None:
    ids = SystemIds()
    ids.uid()
    ids.suffix()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, f"{ids.uid()} {ids.suffix(20)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode().split()
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 2
    assert [ids.uid(), ids.suffix(20)] != theirs
    assert theirs[0] not in {ids.uid() for _ in range(300)}


def test_suffixes_have_the_length_asked_for_and_use_all_letters() -> None:
    ids = SystemIds()
    assert [len(ids.suffix(length)) for length in (1, 5, 40, 2000)] == [1, 5, 40, 2000]
    assert set(ids.suffix(5000)) == set("bcdfghjklmnpqrstvwxz2456789")


def test_a_seed_repeats_its_sequence() -> None:
    one, other = SeededIds(3), SeededIds(3)
    assert [one.uid(), one.suffix(), one.token(), one.jitter()] == [
        other.uid(),
        other.suffix(),
        other.token(),
        other.jitter(),
    ]
