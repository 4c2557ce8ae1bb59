"""Quantities. Expected forms are those that a kube-apiserver 1.36 stores."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api.formats import quantity
from trainmaster.api.formats.quantity import ERROR, canonical, is_valid, parse
from trainmaster.api.training import devices

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("given_value", "want"),
    [
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1e3", "1e3"),
        ("1E3", "1E3"),
        ("100e-3", "100e-3"),
        ("0.1m", "1m"),
        ("1.0000000001", "1001m"),
        (2, "2"),
        (2.0, "2"),
        (2.5, "2500m"),
        (0.1, "100m"),
        ("-1", "-1"),
        ("1000", "1k"),
        ("1000000", "1M"),
        ("1024", "1024"),
        ("2048", "2048"),
        ("1Ki", "1Ki"),
        ("0Gi", "0"),
        (".5", "500m"),
        ("1000k", "1M"),
        ("100Ei", "9223372036854775807"),
        ("1u", "1m"),
        (" 1", "1"),
        ("1.5e3", "1500"),
    ],
)
def test_the_stored_form_is_upstreams(given_value: Any, want: str) -> None:
    assert canonical(given_value) == want


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "1Zi", "K", "1 Gi", "--1", True])
def test_what_is_not_a_quantity_is_refused_with_upstreams_text(text: Any) -> None:
    assert not is_valid(text)
    with pytest.raises(ValueError, match="quantities must match") as caught:
        parse(text)
    assert str(caught.value) == ERROR


@pytest.mark.parametrize(
    ("text", "want"), [("1.5Gi", 3 * 2**29), ("100m", Fraction(1, 10)), ("2k", 2000), ("1e3", 1000)]
)
def test_a_quantity_has_an_exact_value(text: str, want: Any) -> None:
    assert parse(text) == want


_suffixes = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"])


@given(st.integers(0, 10**6), _suffixes)
def test_the_stored_form_keeps_the_value_and_is_stable(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse(canonical(text)) == parse(text)
    assert canonical(canonical(text)) == canonical(text)


@pytest.mark.parametrize(
    "text", ["9" * 129, "0." + "9" * 1_000_000, "1e101", "1e999999999", "1e-999999999", "٣", "1" + " " * 200]
)
def test_numbers_that_are_dear_to_read_are_none(text: str) -> None:
    assert not quantity.is_valid(text)
    for read in (quantity.parse, quantity.canonical):
        with pytest.raises(ValueError, match="quantities must match"):
            read(text)
    assert devices.count_gpus({"limits": {"nvidia.com/gpu": text}}) == 0
