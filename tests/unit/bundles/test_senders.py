"""Code that a namespace sent counts for it, as long as it is there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from trainmaster.bundles import senders
from trainmaster.rest.problems import Problem
from trainmaster.rest.services.creation import code
from trainmaster.rest.services.creation.code import build_tree, store_bundle

pytestmark = pytest.mark.unit

TREE = build_tree({"train.py": b"print(1)\n"}, "train.py", "/files")


def test_sent_code_is_found_by_namespace_until_it_is_forgotten(tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    digest = store_bundle(bundles, TREE, "ann")
    (place,) = senders.list_sent(bundles, "ann")
    assert place.name == digest.replace(":", "-") and senders.list_sent(bundles, "bob") == []
    place.rename(tmp_path / "gone")
    assert senders.list_sent(bundles, "ann") == []
    assert list((tmp_path / "senders" / "ann").iterdir()) == []


def test_a_full_disk_answers_507(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(code, "_store_bundle", refuse)
    with pytest.raises(Problem) as caught:
        store_bundle(tmp_path, TREE, "ann")
    assert caught.value.status == 507
