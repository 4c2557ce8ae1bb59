"""Uids, suffixes and tokens: well-formed, different in every process, and not to be computed from earlier ones."""

from __future__ import annotations

import os
import random
import uuid

import pytest

from tests.support.twister import STATE, clone, count_foretold
from trainmaster.kit.ids import Ids, SeededIds, SystemIds

pytestmark = pytest.mark.unit


def draw(ids: Ids) -> list[str]:
    return [ids.uid() for _ in range(400)]


def test_a_mersenne_twister_is_cloned_and_foretold_from_what_it_gave_out() -> None:
    """So the next test can fail. It is what an attacker did with the request ids of 420 answers."""
    source = random.Random(7)
    copy = clone([source.getrandbits(32) for _ in range(STATE)])
    assert [copy.getrandbits(32) for _ in range(100)] == [source.getrandbits(32) for _ in range(100)]
    assert count_foretold(draw(SeededIds(7))) == 400 - STATE // 4


def test_uids_cannot_be_computed_from_those_before() -> None:
    assert count_foretold(draw(SystemIds())) == 0


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
