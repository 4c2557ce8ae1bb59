"""What `run --resume-from` and `--keep-checkpoints` write on the job."""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path

import pytest

from tests.unit.history.checkpoints import saved
from tests.unit.history.checkpoints.saved import commit
from tests.unit.history.test_archive import GONE, make_trainjob
from trainmaster.api.labels import KEEP_CHECKPOINTS, RESUME_FROM
from trainmaster.cli.context import CommandContext
from trainmaster.cli.launch.resuming import build_annotations
from trainmaster.cli.launch.run_options import RunOptionError
from trainmaster.history.archive import Archive
from trainmaster.history.record import RecordSources, build_record

pytestmark = pytest.mark.unit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """`b` of the namespace `ns` is gone; it left checkpoints of the steps 1 and 2, and an output."""
    archive = Archive.open(tmp_path / "history")
    archive.put([build_record(RecordSources(make_trainjob("u2", "b")), GONE)])
    archive.close()
    for step in (1, 2):
        commit(saved.save_torch(saved.get_folder(tmp_path / "history", "u2") / f"step-{step}.pt"), step=step, at=step)
    saved.save_trainer(saved.get_outputs(tmp_path / "history", "u2") / "checkpoint-3", 3)
    return tmp_path


def build(home: Path, resume_from: str = "", keep: int | None = None, **more: object) -> dict[str, str]:
    given = {"home": str(home), "namespace": "ns", "kubeconfig": None, "context": None, **more}
    options = argparse.Namespace(resume_from=resume_from, keep_checkpoints=keep, **given)
    return build_annotations(options, CommandContext({}, io.StringIO(), io.StringIO()))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("b", "u2/step-2.pt"),
        ("b@1", "u2/step-1.pt"),
        ("b@step-1.pt", "u2/step-1.pt"),
        ("b@3", "u2/outputs/checkpoint-3"),
        ("trainjob/b@2", "u2/step-2.pt"),
    ],
)
def test_the_checkpoint_is_found_before_anything_is_submitted(home: Path, asked: str, found: str) -> None:
    assert build(home, asked) == {RESUME_FROM: found}
    assert build(home, asked, 3) == {KEEP_CHECKPOINTS: "3", RESUME_FROM: found}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("nosuch", "no TrainJob ns/nosuch exists"),
        ("b@9", "it has no checkpoint of step 9"),
        ("b@step-9", "it has no checkpoint 'step-9'"),
        ("b@", "write JOB, JOB@STEP or JOB@NAME"),
        ("@1", "write JOB, JOB@STEP or JOB@NAME"),
    ],
)
def test_what_is_not_there_is_said(home: Path, asked: str, said: str) -> None:
    with pytest.raises(RunOptionError) as refused:
        build(home, asked)
    assert said in str(refused.value)


def test_a_damaged_one_is_passed_over_unless_it_is_named(home: Path) -> None:
    os.truncate(saved.get_folder(home / "history", "u2") / "step-2.pt", 20)
    assert build(home, "b") == {RESUME_FROM: "u2/step-1.pt"}
    with pytest.raises(RunOptionError, match=r"step-2\.pt is not complete: step-2\.pt has 20 bytes"):
        build(home, "b@2")


def test_jobs_of_other_namespaces_and_of_clusters_are_refused(home: Path) -> None:
    with pytest.raises(RunOptionError, match="no TrainJob other/b exists"):
        build(home, "b", namespace="other")
    for resume_from, keep in (("b", None), ("", 2)):
        with pytest.raises(RunOptionError, match="for jobs of this machine"):
            build(home, resume_from, keep, kubeconfig="/some/file")
    with pytest.raises(RunOptionError, match="write 1 or more"):
        build(home, keep=0)
