"""Who an operator is, from the token that is mounted into its Pod."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from trainmaster.operator.own_pod import find_own_pod

pytestmark = pytest.mark.unit

BOUND = {"kubernetes.io": {"namespace": "ns", "pod": {"name": "op-1", "uid": "u-1"}, "serviceaccount": {"name": "op"}}}


def write(directory: Path, claims: object) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    (directory / "token").write_text(f"head.{payload}.signature")


def test_a_bound_token_names_its_pod(tmp_path: Path) -> None:
    write(tmp_path, BOUND)
    assert find_own_pod(tmp_path) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "op-1", "namespace": "ns", "uid": "u-1"},
    }


@pytest.mark.parametrize("claims", [[], {}, {"kubernetes.io": {}}, {"kubernetes.io": {"pod": "op-1"}}])
def test_another_token_names_none(tmp_path: Path, claims: object) -> None:
    write(tmp_path, claims)
    assert find_own_pod(tmp_path) is None


@pytest.mark.parametrize("text", ["", "opaque", "a.%%%.b", "a.bm90IGpzb24.b"])
def test_what_is_no_token_names_none(tmp_path: Path, text: str) -> None:
    assert find_own_pod(tmp_path) is None
    (tmp_path / "token").write_text(text)
    assert find_own_pod(tmp_path) is None
