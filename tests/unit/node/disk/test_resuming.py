"""A new job begins with the checkpoint of another one of its namespace, which stays as it was."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import commit, get_folder, get_outputs
from trainmaster import checkpoint
from trainmaster.history.checkpoints.reading import choose_resumable, read_checkpoints
from trainmaster.node.disk.resuming import Resuming
from trainmaster.node.launch.contract import LaunchError

pytestmark = pytest.mark.unit

OLD, NEW, FOREIGN = "old-uid", "new-uid", "foreign-uid"


def make(archive: Path) -> Resuming:
    root = archive / "results"

    def list_kept(namespace: str) -> Sequence[Path]:
        return [root / OLD, root / NEW] if namespace == "ann" else [root / FOREIGN]

    return Resuming(root, list_kept)


def bring(archive: Path, wanted: str, *, namespace: str = "ann", ranks: int = 1) -> None:
    async def main() -> None:
        resuming = make(archive)
        await asyncio.gather(*(resuming.bring(namespace, NEW, wanted) for _ in range(ranks)))

    asyncio.run(main())


@pytest.mark.parametrize("as_directory", [True, False], ids=["directory", "file"])
def test_it_is_copied_and_is_the_one_to_resume_from(tmp_path: Path, as_directory: bool) -> None:
    source = get_folder(tmp_path, OLD) / "step-5"
    commit(saved.save_shards(source) if as_directory else saved.save_torch(source), step=5)
    bring(tmp_path, f"{OLD}/step-5", ranks=3)
    folder = get_folder(tmp_path, NEW)
    assert choose_resumable(folder).name == "step-5"
    (item,) = read_checkpoints(tmp_path, NEW).items
    assert (item.step, item.attempt, item.origin, item.complete) == (5, None, f"{OLD}/step-5", True)
    assert checkpoint.find_newest(folder) == folder / "step-5"
    copied = next(path for path in (folder / "step-5", *(folder / "step-5").rglob("*.distcp")) if path.is_file())
    copied.write_bytes(b"changed by the new job")
    assert read_checkpoints(tmp_path, OLD).items[0].complete
    assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoints", "resumed-from.json"]
    if os.geteuid() == 0:
        assert copied.stat().st_mode & 0o777 == 0o666, "ranks may run as another user"


def test_one_from_the_outputs_is_given_a_marker(tmp_path: Path) -> None:
    saved.save_trainer(get_outputs(tmp_path, OLD) / "run" / "checkpoint-7", 7)
    bring(tmp_path, f"{OLD}/outputs/run/checkpoint-7")
    assert choose_resumable(get_folder(tmp_path, NEW)).name == "checkpoint-7"
    marker = json.loads((get_folder(tmp_path, NEW) / "checkpoint-7" / ".complete").read_text())
    assert marker["step"] == 7 and marker["files"]["trainer_state.json"]["bytes"] > 0


def test_of_another_namespace_nothing_is_told(tmp_path: Path) -> None:
    commit(saved.save_torch(get_folder(tmp_path, FOREIGN) / "secret.pt"))
    get_folder(tmp_path, OLD)
    texts = set()
    for wanted in (f"{FOREIGN}/secret.pt", f"{FOREIGN}/none.pt", "unknown/none.pt", f"{OLD}/none.pt"):
        with pytest.raises(LaunchError) as refused:
            bring(tmp_path, wanted)
        texts.add(refused.value.message.replace(wanted.partition("/")[0], "UID").replace("secret", "none"))
    assert texts == {"there is no checkpoint none.pt of a job UID in this namespace"}
    assert not (tmp_path / "results" / NEW / "checkpoints").exists()


@pytest.mark.parametrize(
    "wanted", ["", "x", f"../{FOREIGN}/a", f"{OLD}/../{FOREIGN}/secret.pt", f"{OLD}//etc", f"{OLD}/a\n", "/etc/passwd"]
)
def test_what_is_no_reference_leads_nowhere(tmp_path: Path, wanted: str) -> None:
    commit(saved.save_torch(get_folder(tmp_path, FOREIGN) / "secret.pt"))
    get_folder(tmp_path, OLD)
    with pytest.raises(LaunchError):
        bring(tmp_path, wanted)


def test_a_damaged_one_starts_nothing(tmp_path: Path) -> None:
    source = commit(saved.save_torch(get_folder(tmp_path, OLD) / "a.pt"))
    os.truncate(source, 30)
    with pytest.raises(LaunchError, match=r"is not complete: a\.pt has 30 bytes"):
        bring(tmp_path, f"{OLD}/a.pt")


def test_what_the_new_job_has_saved_since_is_not_replaced(tmp_path: Path) -> None:
    commit(saved.save_torch(get_folder(tmp_path, OLD) / "a.pt"), at=1)
    bring(tmp_path, f"{OLD}/a.pt")
    (get_folder(tmp_path, NEW) / "a.pt").unlink()
    bring(tmp_path, f"{OLD}/a.pt")
    assert not (get_folder(tmp_path, NEW) / "a.pt").exists()


def test_a_job_that_has_begun_gets_nothing_any_more(tmp_path: Path) -> None:
    commit(saved.save_torch(get_folder(tmp_path, OLD) / "a.pt"))
    get_folder(tmp_path, NEW)
    (tmp_path / "results" / NEW / "resume.js.0").write_text('{"checkpoint": "", "seats": {}}')
    bring(tmp_path, f"{OLD}/a.pt")
    assert choose_resumable(get_folder(tmp_path, NEW)).name == ""


@pytest.mark.parametrize("left", ["draft", "file without a marker"])
def test_a_copy_that_was_interrupted_is_made_again(tmp_path: Path, left: str) -> None:
    commit(saved.save_torch(get_folder(tmp_path, OLD) / "a.pt"), step=3)
    folder = get_folder(tmp_path, NEW)
    place = folder if left != "draft" else folder.parent / "bringing"
    saved.save_file(place / "a.pt", b"half")
    bring(tmp_path, f"{OLD}/a.pt")
    assert choose_resumable(folder).name == "a.pt"


def test_a_disk_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(saved.save_torch(get_folder(tmp_path, OLD) / "a.pt"))
    monkeypatch.setattr("trainmaster.node.disk.resuming._SPARE_BYTES", 1 << 60)
    with pytest.raises(LaunchError, match=r"left, and a\.pt needs"):
        bring(tmp_path, f"{OLD}/a.pt")
