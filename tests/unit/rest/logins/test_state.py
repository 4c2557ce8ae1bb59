"""What an installation keeps about logins: it expires, it has limits, and it is read as it was written."""

from __future__ import annotations

import pytest

from trainmaster.kit.ids import SeededIds
from trainmaster.rest.logins.state import (
    DAY,
    EMPTY,
    IDLE_SECONDS,
    LONGEST_SECONDS,
    LoginState,
    OpenLink,
    add_link,
    decode_state,
    drop_link,
    encode_state,
    end_all,
    end_login,
    hash_link,
    renew_keys,
)

pytestmark = pytest.mark.unit

NOW = 1_800_000_000
MS = NOW * 1000


def test_the_first_login_makes_a_key_and_the_name_of_the_installation_and_the_next_ones_keep_them() -> None:
    ids = SeededIds(1)
    made = renew_keys(EMPTY, NOW, ids)
    assert made.installation and len(made.keys) == 1 and len(made.keys[0].secret) >= 43
    assert renew_keys(made, NOW + 29 * DAY, ids) == made


def test_an_old_key_gives_way_and_opens_until_its_logins_have_expired() -> None:
    ids = SeededIds(1)
    first = renew_keys(EMPTY, NOW, ids)
    second = renew_keys(first, NOW + 30 * DAY, ids)
    assert len(second.keys) == 2 and second.keys[1] == first.keys[0] and second.installation == first.installation
    assert second.find_key(first.keys[0].id) == first.keys[0]
    assert renew_keys(second, NOW + 30 * DAY + LONGEST_SECONDS, ids) == second
    later = renew_keys(second, NOW + 30 * DAY + LONGEST_SECONDS + 601, ids)
    assert later.keys == second.keys[:1]


def test_an_ended_login_is_known_as_long_as_a_copy_of_it_could_be_used() -> None:
    state = end_login(EMPTY, "one", "ann", MS)
    assert state.has_ended("one", "ann", MS - 1) and not state.has_ended("two", "ann", MS - 1)
    soon = end_login(state, "two", "ann", MS + IDLE_SECONDS * 1000)
    assert set(soon.ended) == {"one", "two"}
    late = end_login(state, "two", "ann", MS + (IDLE_SECONDS + 601) * 1000)
    assert set(late.ended) == {"two"}


def test_a_user_who_ends_very_many_logins_ends_all_of_them() -> None:
    state = end_login(EMPTY, "hers", "bob", MS)
    for number in range(21):
        state = end_login(state, str(number), "ann", MS + number)
    assert set(state.ended) == {"hers"} and state.cuts == {"ann": MS + 20}
    assert state.has_ended("any", "ann", MS + 20) and not state.has_ended("any", "ann", MS + 21)
    assert not state.has_ended("any", "bob", MS)


def test_the_list_of_ended_logins_fits_into_a_secret() -> None:
    state = EMPTY
    for number in range(3_001):
        state = LoginState(ended={**state.ended, str(number): end_login(EMPTY, "x", f"u{number}", MS).ended["x"]})
    assert len(encode_state(state)) < 512 * 1024
    state = end_login(state, "last", "ann", MS)
    assert not state.ended and state.has_ended("any", "whoever", MS)


def test_all_can_be_ended_with_open_links() -> None:
    state = end_all(LoginState(links={"a": OpenLink("ann", NOW + 9, "x")}), MS)
    assert state.has_ended("any", "ann", MS) and not state.has_ended("any", "ann", MS + 1) and not state.links


def test_a_user_has_few_open_links_and_all_together_have_a_limit() -> None:
    state = EMPTY
    for number in range(7):
        added = add_link(state, str(number), OpenLink("ann", NOW + 60 + number, "x"), NOW)
        assert added is not None
        state = added
    assert set(state.links) == {"2", "3", "4", "5", "6"}
    full = LoginState(links={str(number): OpenLink(f"u{number}", NOW + 60, "x") for number in range(100)})
    assert add_link(full, "new", OpenLink("ann", NOW + 60, "x"), NOW) is None
    assert set((add_link(full, "new", OpenLink("ann", NOW + 200, "x"), NOW + 60) or EMPTY).links) == {"new"}
    assert drop_link(state, "6").links.keys() == {"2", "3", "4", "5"} and drop_link(state, "gone") == state


def test_a_link_is_kept_by_its_hash() -> None:
    assert len(hash_link("a")) == 64 and hash_link("a") != hash_link("b") and hash_link("\udcff")


def test_it_is_read_as_it_was_written() -> None:
    state = end_login(renew_keys(EMPTY, NOW, SeededIds(1)), "one", "ann", MS)
    whole = add_link(end_login(state, "two", "bob", MS), "digest", OpenLink("ann", NOW, "x"), NOW - 1)
    assert whole is not None and decode_state(encode_state(whole)) == whole


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"{}", b"null", b'{"installation":"a","keys":[{"id":1}],"ended":{}}']
)
def test_what_is_no_state_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a state"):
        decode_state(raw)
