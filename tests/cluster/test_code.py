"""The code of `run --kubeconfig` in real Pods: every rank has the directory that was sent, in a copy of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.site import Site
from tests.kube.images import TRAINMASTER
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS

pytestmark = pytest.mark.cluster

_TRAIN = """
import os
from pathlib import Path
from helpers.words import GREETING
rank = os.environ["PET_NODE_RANK"]
assert not Path("written").exists(), "another rank wrote here"
Path("written").write_text(rank)
print(GREETING, "from", rank, "in", os.getcwd(), flush=True)
"""


def test_code_that_run_sends_is_in_every_rank(site: Site, tmp_path: Path) -> None:
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    (helpers / "words.py").write_text("GREETING = 'hello'\n")
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / ".gitignore").write_text("*.secret\n")
    (tmp_path / "key.secret").write_text("not for the cluster\n")
    done = site.run(
        "run", "--name", "sent", "--nodes", "2", "--image", TRAINMASTER, "--code", str(tmp_path),
        "--", "/usr/bin/python3", "train.py",
    )  # fmt: skip
    assert done.code == 0, done.text
    shown = site.run("logs", "sent")
    lines = {f"[{rank}] hello from {rank} in /workspace/code" for rank in (0, 1)}
    assert lines <= set(shown.out.splitlines()), shown.text
    (sent,) = site.list_all(CONFIG_MAPS, "trainmaster.dev/code-of=sent")
    assert [(one["kind"], one["name"]) for one in sent["metadata"]["ownerReferences"]] == [("TrainJob", "sent")]
    site.cluster.kubectl("delete", TRAIN_JOBS.plural, "sent", "-n", site.namespace)
    site.await_that("its code is gone", lambda: not site.list_all(CONFIG_MAPS, "trainmaster.dev/code-of=sent"))
