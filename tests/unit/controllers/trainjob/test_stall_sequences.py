"""Ten thousand generated healthy jobs: none of them stalls. And one stall planted in each of a thousand: all are found.

What a healthy job does is what docs/stalls.md promises to wait for: a first step that takes up to half an hour;
afterwards nothing that takes longer than five minutes, twice the longest time that it took before, or, in a phase that
the program reports, half an hour; a checkpoint, a pause of its processes or an absence of the server of any length.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.unit.controllers.world import NOW, World
from trainmaster.api.lifecycle.stalls import JobSign, StallRules
from trainmaster.api.meta import GVR, Object
from trainmaster.api.patches import merge
from trainmaster.api.resources import PODS
from trainmaster.api.training.pace import PaceMeter, read_pace
from trainmaster.api.training.reports import STEP
from trainmaster.controllers.trainjob.stalls import Stand, find_stand
from trainmaster.jobs.models.jobsets import JobSet
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.kit.clock import format_time
from trainmaster.kit.timeline import Timeline
from trainmaster.testing.virtual import VirtualClock

pytestmark = pytest.mark.unit

HEALTHY, PLANTED = 10_000, 1_000
RULES = StallRules()


class Moment(NamedTuple):
    """What happens after some seconds."""

    kind: str
    """step, phase, save, absence, or restart."""
    seconds: float
    phase: str = ""


class OnePod(World):
    """The view of a job with one Pod."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod

    def owned(self, gvr: GVR, namespace: str, owner_uid: str) -> Sequence[Object]:
        return [self._pod] if gvr == PODS else [{"metadata": {"namespace": namespace, "uid": "job"}}]


class Watched:
    """A job whose stand is asked for at the latest moment before each of its reports: if it is not due then, it was not
    at any moment before."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOW)
        self.status: Object = {}
        self.step = 0
        self.phase = ""
        self.excused = float("-inf")
        self.serve()
        self.start()

    def serve(self) -> None:
        self.up = self.clock.boot()
        self.meter, self.timeline = PaceMeter(self.clock), Timeline[str](self.clock)

    def start(self) -> None:
        """The program of a new attempt."""
        self.started = format_time(self.clock.now())
        running = {"name": "node", "state": {"running": {"startedAt": self.started}}}
        self.view = OnePod({"metadata": {}, "status": {"phase": "Running", "containerStatuses": [running]}})
        # As `api.training.pace.leave_attempt`.
        gone = ("position", "phase", "advancedAt")
        kept = {name: value for name, value in self.status.get("pace", {}).items() if name not in gone}
        self.status = {"pace": kept} if kept else {}

    def look(self) -> Stand | None:
        trainjob = TrainJob({"metadata": {"uid": "u", "name": "a", "namespace": "default"}, "status": self.status})
        jobset = JobSet({"metadata": {"uid": "js", "name": "a", "namespace": "default"}})
        now = self.timeline.begin_pass("a")
        found = find_stand(self.build_rules(), self.view, trainjob, jobset, self.status, now)
        self.timeline.end_pass("a", now)
        return found

    def build_rules(self) -> StallRules:
        sign = JobSign(0.0, self.clock.boot() - self.excused)
        return StallRules(find_sign=lambda uid: sign, count_watched=lambda: self.clock.boot() - self.up)

    def report(self) -> None:
        said = [{"name": STEP, "value": str(self.step)}, {"name": "phase", "value": self.phase or "training"}]
        trainjob = {"metadata": {"uid": "u"}, "status": self.status}
        pace = self.meter.measure(trainjob, {"metrics": said}, self.started)
        self.status = {"pace": merge.apply(self.status.get("pace", {}), pace), "trainerStatus": {"metrics": said}}

    def live(self, moment: Moment) -> Stand | None:
        """Returns its stand right before what happens then."""
        self.clock.advance(moment.seconds)
        if moment.kind == "save":
            self.excused = self.clock.boot()
            self.look()
            return None
        if moment.kind == "absence":
            self.serve()
        stand = self.look()
        if moment.kind == "restart":
            self.start()
            self.look()
        elif moment.kind != "absence":
            self.step += moment.kind == "step"
            self.phase = moment.phase
            self.report()
        return stand


def generate(rng: random.Random) -> Iterator[Moment]:
    """A healthy job."""
    yield from _start(rng, 1500.0)
    usual = rng.choice((0.05, 1.0, 7.0, 40.0, 130.0, 280.0))
    longest = 0.0
    every, saves = rng.randint(3, 15), rng.randint(3, 15)
    for number in range(1, rng.randint(5, 20)):
        if number % every == 0 and rng.random() < 0.5:
            yield Moment("phase", min(usual, 290), "evaluation")
            yield Moment("phase", rng.uniform(1.0, 1790.0))
        was_seen = True
        if number % saves == 0:
            yield Moment("save", rng.uniform(1.0, 5000.0))
        elif rng.random() < 0.03:
            yield Moment("absence", rng.uniform(1.0, 50_000.0))
            was_seen = False
        elif rng.random() < 0.03:
            yield Moment("restart", rng.uniform(0.1, 200.0))
            yield from _start(rng, 290.0)
        # Evaluation or a checkpoint that nobody announces: up to twice what was seen, with room for rounding.
        seconds = usual * rng.uniform(0.5, 2.0) if rng.random() < 0.9 else max(295.0, 1.9 * longest)
        seconds = min(seconds, max(295.0, 1.9 * longest))
        longest = max(longest, seconds) if was_seen else longest
        yield Moment("step", seconds)


def _start(rng: random.Random, most: float) -> Iterator[Moment]:
    yield Moment("step", rng.uniform(1.0, most))
    if rng.random() < 0.5:
        # Compilation at the first step.
        yield Moment("step", rng.uniform(1.0, min(most, 290.0)))


def test_no_healthy_job_stalls() -> None:
    for seed in range(HEALTHY):
        job = Watched()
        for number, moment in enumerate(generate(random.Random(seed))):
            stand = job.live(moment)
            assert stand is None or not stand.is_due, f"seed {seed}, moment {number}: {moment}, {stand}"


def test_every_planted_stall_is_found_within_twice_its_threshold() -> None:
    for seed in range(PLANTED):
        rng = random.Random(seed)
        job, moments = Watched(), list(generate(rng))
        for moment in moments[: rng.randint(1, len(moments))]:
            job.live(moment)
        pace = read_pace({"status": job.status})
        usual = max(RULES.seconds, 2.0 * pace.longest, 2.0 * pace.start)
        expected = usual if pace.longest and pace.advanced_at and not pace.phase else max(usual, RULES.phase_seconds)
        bound = max(expected, 2.0 * pace.phase_longest) if pace.phase else expected
        waited = 0.0
        while (stand := job.look()) is None or not stand.is_due:
            # Exactly when the controller wakes.
            assert stand is not None, f"seed {seed}: nothing is known of a job that runs"
            job.clock.advance(stand.bound - stand.seconds)
            waited += stand.bound - stand.seconds
            assert waited <= 2 * bound, f"seed {seed}: {stand}"


def test_a_checkpoint_excuses_only_as_long_as_it_is_written() -> None:
    job = Watched()
    for _ in range(3):
        job.live(Moment("step", 5.0))
    job.live(Moment("save", 4000.0))
    job.clock.advance(301)
    stand = job.look()
    assert stand is not None
    assert stand.is_due
