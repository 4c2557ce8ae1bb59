"""Nothing opens what was sealed but both halves, for the same purpose."""

from __future__ import annotations

import pytest

from trainmaster.rest.logins.sealing import seal, unseal

pytestmark = pytest.mark.unit


def test_both_halves_open_it_and_nothing_else_does() -> None:
    sealed = seal("secret", "half", "cookie", b"token", "entropy")
    assert unseal("secret", "half", "cookie", sealed) == b"token"
    for secret, half, purpose in (
        ("other", "half", "cookie"),
        ("secret", "other", "cookie"),
        ("secret", "half", "link"),
    ):
        assert unseal(secret, half, purpose, sealed) is None
    assert "token" not in sealed


def test_what_was_changed_opens_nothing() -> None:
    sealed = seal("secret", "half", "cookie", b"token", "entropy")
    for at in range(len(sealed) - 1):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        assert unseal("secret", "half", "cookie", changed) is None, at


@pytest.mark.parametrize(
    "sealed", ["", "A", "AAAA", "A" * 20, "A" * 10_000, "\u00e9" * 40, "*" * 40, "A=" * 20, " " * 40]
)
def test_what_was_never_sealed_opens_nothing(sealed: str) -> None:
    assert unseal("secret", "half", "cookie", sealed) is None


def test_the_same_text_is_sealed_differently_each_time() -> None:
    assert seal("secret", "half", "cookie", b"token", "1") != seal("secret", "half", "cookie", b"token", "2")
