"""The walk of a job in ARCHITECTURE.md is the way that it takes: the files named there are entered in that order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.flow.plant import running_plant
from trainmaster.api.meta import Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.flow

ROOT = Path(__file__).resolve().parents[2]
TRAINJOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "walk", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"]}},
}


def read_walk() -> list[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    steps = re.search(r"## A job\n(.*?)\nThen ", text, re.DOTALL)
    assert steps is not None
    return re.findall(r"`(trainmaster/[a-z_/]+\.py)`", steps[1])


def test_a_job_takes_the_way_that_the_architecture_tells() -> None:
    wanted = read_walk()
    assert len(wanted) > 8
    places = {str(ROOT / path): path for path in wanted}
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = places.get(code.co_filename)
        # A reconciler is asked before which requests a change means for it; its turn is when it reconciles.
        is_turn = code.co_name.startswith("reconcile") or not code.co_filename.endswith("reconciler.py")
        if event == "call" and path is not None and path not in entered and is_turn:
            entered.append(path)

    async def main() -> None:
        async with running_plant() as plant:
            sys.setprofile(note)
            try:
                await plant.client.create(TRAIN_JOBS, TRAINJOB, "default")
                await plant.wait_for(TRAIN_JOBS, "walk", lambda raw: TrainJob(raw).is_finished)
            finally:
                sys.setprofile(None)
            assert [Pod(raw).step for raw in await plant.list_all(PODS)] == ["node"]

    run_virtual(main(), limit=600)
    assert entered == wanted
