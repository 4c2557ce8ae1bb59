"""Packages of Pods at every isolation level: installed with the Pod's rights, and told while it lasts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.node.bench import Bench, find_status, has_phase, is_over, run
from tests.support.wheels import make_sdist, make_wheel
from trainmaster.api.labels import PACKAGES
from trainmaster.engine.events import EventRecorder
from trainmaster.node.agent import NodeAgent
from trainmaster.node.runner import NodeSettings
from trainmaster.shim.protocol import FULL, PLAIN, USER

pytestmark = pytest.mark.node

SHOW = "python -c 'import tm_level, tm_built; print(tm_level.VERSION, tm_built.VERSION)'"


def build_agent(bench: Bench, index: Path, level: str) -> NodeAgent:
    environ = {"PATH": os.defpath, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    settings = NodeSettings(bench.root, sys.prefix, bench.root.parent / "bundles", environ, level=level)
    return NodeAgent(bench.client, EventRecorder(bench.client, bench.cluster.clock), bench.cluster.clock, settings)


@pytest.mark.parametrize("level", [FULL, USER, PLAIN])
def test_a_wheel_and_an_sdist_are_installed_at_every_level(tmp_path: Path, level: str) -> None:
    if os.geteuid() != 0 and level != PLAIN:
        pytest.skip("root starts both")
    index = tmp_path / "index"
    index.mkdir()
    make_wheel(index, "tm_level")
    make_sdist(index, "tm_built", "pass")

    async def test(bench: Bench) -> None:
        async with build_agent(bench, index, level).running() as agent:
            await bench.create(SHOW, metadata={"annotations": {PACKAGES: "tm_level\ntm_built"}})
            waiting = await bench.wait_for(
                lambda pod: "installing" in str(find_status(pod)) or has_phase("Succeeded", "Failed")(pod)
            )
            assert "installing tm_level, tm_built" in str(waiting["status"]), "said while it lasts"
            pod = await bench.wait_for(is_over)
            assert await bench.read_log(agent, pod) == "1.0 1.0\n"
            await bench.remove()
            assert [name for name in os.listdir(bench.root) if name.startswith("install-")] == []

    run(tmp_path, test)
