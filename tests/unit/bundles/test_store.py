"""Bundles that are there: found, checked after a power cut, forgotten when they are old and nobody needs them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainmaster.bundles import store
from trainmaster.bundles.packing import pack
from trainmaster.bundles.store import BundleStore

pytestmark = pytest.mark.unit

DAY = 86400.0


@pytest.fixture
def bundles(tmp_path: Path) -> BundleStore:
    return BundleStore(tmp_path / "bundles")


def make(bundles: BundleStore, tmp_path: Path, text: str) -> str:
    folder = tmp_path / f"source-{text}"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return pack(folder, bundles.root).digest


def test_an_unknown_digest_is_none_and_what_is_no_digest_is_an_error(bundles: BundleStore) -> None:
    assert bundles.find("sha256:" + "0" * 64) is None
    for text in ("", "sha256:12", "../../etc", "sha256:" + "0" * 63 + "/"):
        with pytest.raises(ValueError, match="is not a digest"):
            bundles.find(text)


def test_after_a_power_cut_a_whole_bundle_is_found_and_a_torn_one_is_not(
    bundles: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, torn, cut = (make(bundles, tmp_path, text) for text in ("whole", "torn", "cut"))
    (bundles.get_place(torn) / "tree" / "train.py").write_text("\0\0\0\0")
    (bundles.get_place(cut) / "bundle.json").write_text("")
    (bundles.get_place(cut) / "tree" / "train.py").unlink()
    monkeypatch.setattr(store, "read_boot_id", lambda: "another boot")
    assert bundles.find(whole) is not None
    assert bundles.find(torn) is None
    assert bundles.find(cut) is None
    assert bundles.list_digests() == [whole]


def test_what_was_made_durable_is_not_read_again(
    bundles: BundleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = make(bundles, tmp_path, "a")
    bundles.make_durable(digest)
    bundles.make_durable(digest)
    monkeypatch.setattr(store, "read_boot_id", lambda: "another boot")
    monkeypatch.setattr(store, "hash_file", lambda path: pytest.fail("read again"))
    assert bundles.find(digest) is not None


def test_old_bundles_that_nobody_mentions_are_forgotten(bundles: BundleStore, tmp_path: Path) -> None:
    used, unused, young = (make(bundles, tmp_path, text) for text in ("used", "unused", "young"))
    for digest in (used, unused):
        os.utime(bundles.get_place(digest), (1000, 1000))
    draft = bundles.make_draft()
    (draft / "tree").mkdir()
    os.utime(draft, (1000, 1000))
    cache = next((bundles.root / "cache").iterdir())
    os.utime(cache, (1000 - 40 * DAY, 1000 - 40 * DAY))
    candidates = bundles.list_unused({used}, before=1000 + DAY)
    assert candidates == [unused]
    assert bundles.forget(candidates, before=1000 + DAY) == [unused]
    assert bundles.list_digests() == sorted([used, young])
    assert not draft.exists()
    assert not cache.exists()
    assert len(list((bundles.root / "cache").iterdir())) == 2


def test_a_bundle_that_is_packed_again_between_the_question_and_the_end_stays(
    bundles: BundleStore, tmp_path: Path
) -> None:
    digest = make(bundles, tmp_path, "a")
    os.utime(bundles.get_place(digest), (1000, 1000))
    candidates = bundles.list_unused(set(), before=1000 + DAY)
    again = pack(tmp_path / "source-a", bundles.root)
    assert again.reused
    assert bundles.forget(candidates, before=1000 + DAY) == []
    assert bundles.find(digest) is not None


def test_nothing_is_forgotten_while_somebody_packs(bundles: BundleStore, tmp_path: Path) -> None:
    digest = make(bundles, tmp_path, "a")
    os.utime(bundles.get_place(digest), (1000, 1000))
    with bundles.locked(), bundles.locked():
        assert bundles.forget([digest], before=1000 + DAY) == []
    assert bundles.forget([digest], before=1000 + DAY) == [digest]


def test_several_may_pack_the_same_at_once(bundles: BundleStore, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(50):
        (folder / f"{number}.py").write_text(str(number))
    with ThreadPoolExecutor(8) as pool:
        packed = list(pool.map(lambda _: pack(folder, bundles.root), range(16)))
    assert {bundle.digest for bundle in packed} == set(bundles.list_digests())
    assert len(bundles.list_digests()) == 1
    assert [name for name in os.listdir(bundles.root) if name.startswith(".")] == []
    assert [name for name in os.listdir(bundles.root / "cache") if name.endswith(".tmp")] == []


def test_there_is_nothing_to_forget_in_a_home_without_code(bundles: BundleStore) -> None:
    assert bundles.list_digests() == []
    assert bundles.list_unused(set(), before=1e12) == []
    assert bundles.forget([], before=1e12) == []
    assert not bundles.root.exists()
