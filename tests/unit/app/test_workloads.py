"""How settings reach the controllers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.unit.controllers.world import NOW, World, make_job
from trainmaster.api.lifecycle.stalls import StallRules
from trainmaster.api.resources import JOBS, PODS
from trainmaster.app.settings import JobSettings, Settings
from trainmaster.app.workloads import CHAIN, build_chain
from trainmaster.client.writes import Create
from trainmaster.kit.clock import format_time

pytestmark = pytest.mark.unit


def test_the_pause_before_a_failed_pod_is_replaced_is_a_setting() -> None:
    chain = build_chain(Settings(jobs=JobSettings(replacement_seconds=3.0)), StallRules())
    assert [controller.name for controller in chain] == [controller.name for controller in CHAIN]
    job = next(controller for controller in chain if controller.kind == JOBS)
    world = World()
    world.add(JOBS, make_job(name="j", completions=1, backoffLimit=6))
    world.run(job, "j")
    pod = world.list(PODS)[0]
    ended = {"exitCode": 1, "finishedAt": format_time(NOW)}
    status = {"phase": "Failed", "containerStatuses": [{"name": "node", "state": {"terminated": ended}}]}
    world.merge(PODS, pod["metadata"]["name"], {"status": status})
    world.run(job, "j")
    assert world.run(job, "j").requeue_after == 3.0
    assert any(isinstance(write, Create) for write in world.run(job, "j", NOW + timedelta(seconds=3)).writes)
