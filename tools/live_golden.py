"""Runs the recorded cases of training-operator on the real operator and on our programs, in one run, and prints the
differences that `tests/golden/v1_differences.py` does not list.

    python -m tools.live_golden                all cases and all refused manifests, in about five minutes
    python -m tools.live_golden pt-ddp mpi     the cases whose names contain one of these

The tests compare our programs with recordings of the operator; this shows that the recordings still say what it does.
Upstream's side is a real control plane with kwok's nodes (`tests/kube`), where several cases run at a time; ours is
that of the tests, in virtual time. A case with a difference is run again alone, because upstream's timing varies. Jobs
that only we refuse are submitted to upstream in a dry run: one of them would end the operator's process.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tests.golden import cases
from tests.golden.acts import NAMESPACE, Outcome, Performer
from tests.golden.differences import find_refused, list_unexpected
from tests.golden.harness import PATCHED, READY, ask_refusals, build_catalogue, compare_outcome, run_case
from tests.golden.masking import Object, drop_repetitions, drop_served, mask_captures, mask_text
from tests.golden.test_answers import describe_problem
from tests.golden.v1_differences import LIVE
from tests.kube.cluster import KubeCluster, Parts
from tests.kube.training_operator import NAME, running_training_operator
from tools.golden_answers import read_refusal
from tools.golden_v1 import KINDS, POD_SECONDS
from tools.toolbox import Toolbox
from trainmaster.api.declaring.kinds import Catalogue
from trainmaster.api.meta import GVR
from trainmaster.api.resources import EVENTS, PODS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.v1jobs.frameworks import BY_KIND
from trainmaster.client.contract import PatchType
from trainmaster.client.http import HttpClient
from trainmaster.client.kubeconfig import load_kubeconfig
from trainmaster.kit.clock import SystemClock

T = TypeVar("T")

AT_ONCE = 8
POD_PATIENCE = 25.0
VOLCANO_PODGROUPS = GVR("scheduling.volcano.sh", "v1beta1", "podgroups")
GANGS = {"-coscheduling": "default-scheduler", "-volcano": "volcano"}
"""How the names of cases end that need a gang scheduler, and its name."""


@dataclass
class LivePerformer(Performer):
    """Other cases run in the same namespace."""

    def belongs(self, obj: Object, name: str) -> bool:
        meta = obj["metadata"]
        return meta["name"] == name or any(owner["name"] == name for owner in meta.get("ownerReferences") or ())

    def is_event_of(self, event: Object, name: str) -> bool:
        return bool(event["involvedObject"]["name"] == name)

    async def prepare_capture(self, job: Object, moment: str) -> None:
        """As the recorder: it waited until the Pods ran."""
        name = job["metadata"]["name"]
        if name.endswith("-volcano"):
            if moment == "running":
                # Its Pods are created when Volcano has admitted the job, which does not run here.
                queued = {"status": {"phase": "Inqueue"}}
                await self.client.patch(VOLCANO_PODGROUPS, name, PatchType.MERGE, queued, NAMESPACE)
                await self.clock.sleep(5.0)
        elif moment in ("running", "resumed") and name != "twins":
            replicas = job["spec"][BY_KIND[job["kind"]].replicas_field].values()
            await self.wait_for_pods(name, sum(replica.get("replicas", 1) for replica in replicas))

    async def wait_for_pods(self, name: str, count: int) -> None:
        """Until so many are no longer pending."""
        end = self.clock.monotonic() + POD_PATIENCE
        while self.clock.monotonic() < end:
            pods = [pod for pod in (await self.client.list(PODS, NAMESPACE)).items if self.belongs(pod, name)]
            if sum(pod["status"]["phase"] != "Pending" for pod in pods) >= count:
                return
            await self.clock.sleep(0.1)

    async def wait_for(self, job: Object, condition: str) -> bool:
        try:
            return await super().wait_for(job, condition)
        except NotFound:
            return False  # its TTL has expired

    async def remove(self, *jobs: Object) -> None:
        """Jobs of one name, with their Pods and events."""
        name = jobs[0]["metadata"]["name"]
        for job in jobs:
            with suppress(NotFound):
                await self.client.delete(self.get_gvr(job), name, NAMESPACE)
        while any(self.belongs(pod, name) for pod in (await self.client.list(PODS, NAMESPACE)).items):
            await self.clock.sleep(0.1)
        for event in (await self.client.list(EVENTS, NAMESPACE)).items:
            if self.is_event_of(event, name):
                await self.client.delete(EVENTS, event["metadata"]["name"], NAMESPACE)


def list_kinds() -> Catalogue:
    """What the cluster serves of what was recorded."""
    plurals = {name.partition("-")[0] for name in KINDS}
    return Catalogue([kind for kind in build_catalogue().kinds if kind.plural in plurals])


async def run_live(stage: LivePerformer, case: Object) -> Object:
    """The case with what upstream's programs make of it now."""
    *before, job = case["manifest"]
    outcome = Outcome()
    try:
        for obj in before:
            await stage.create(obj)
        await stage.create(job, dry_run=find_refused(case["case"]) is not None)
    except StatusError as error:
        return {"case": case["case"], "manifest": case["manifest"], "refused": read_error(error)}
    if find_refused(case["case"]) is not None:
        return case
    for act in case["acts"]:
        await stage.perform(job, act, outcome)
    await stage.remove(*case["manifest"])
    captures = mask_captures(outcome.raw)
    kinds = {obj["kind"] for obj in case["manifest"]}
    return {
        **{key: value for key, value in case.items() if key != "refused"},
        "captures": {moment: [drop_served(obj) for obj in objects] for moment, objects in captures.items()},
        "events": drop_repetitions(event for event in outcome.events if event["about"] in kinds),
    }


def read_error(error: StatusError) -> Object:
    """As `tools/golden_answers.py` reads what kubectl prints."""
    if error.reason == "Invalid" and error.causes:
        texts = [f"{cause.get('field')}: {cause.get('message')}" for cause in error.causes]
        return {"reason": error.reason, "texts": [mask_text(text) for text in texts]}
    return read_refusal(f"Error from server ({error.reason}): {error.message}")


async def run_all(names: Iterable[str], at_once: int, stage: LivePerformer) -> dict[str, Object]:
    slots = asyncio.Semaphore(at_once)

    async def run(name: str) -> tuple[str, Object]:
        async with slots:
            return name, await run_live(stage, cases.load_case(name))

    return dict(await asyncio.gather(*(run(name) for name in names)))


async def ask_live(stage: LivePerformer) -> dict[str, Object | None]:
    """Upstream's answers to the manifests and patches that were recorded; None: let in."""
    *_, job = cases.load_case(PATCHED[cases.V1])["manifest"]
    await stage.create(job)
    await stage.wait_for(job, READY[cases.V1])
    answers: dict[str, Object | None] = {}
    for case, row in cases.load_refusals(cases.V1).items():
        error = await stage.ask(job, row)
        answers[case] = None if error is None else read_error(error)
    await stage.remove(job)
    return answers


def list_problems(name: str, live: Object) -> list[str]:
    refused = find_refused(name)
    if refused is not None:
        texts = live["refused"]["texts"] if "refused" in live else []
        return [f"upstream refuses it as well now: {'; '.join(texts)}"] if texts else []
    unexpected = list_unexpected(name, compare_outcome(live, run_case(name)))
    return [str(one) for one in unexpected if not any(entry.covers(name, one) for entry in LIVE)]


class Comparison:
    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster
        self.problems: dict[str, list[str]] = {}

    def _run(self, work: Callable[[LivePerformer], Awaitable[T]]) -> T:
        async def main() -> T:
            client = HttpClient(load_kubeconfig([self._cluster.kubeconfig]))
            try:
                return await work(LivePerformer(client, SystemClock(), list_kinds(), patience=60.0))
            finally:
                await client.close()

        return asyncio.run(main())

    def compare_cases(self, names: Sequence[str]) -> None:
        for at_once in (AT_ONCE, 1):
            live = self._run(partial(run_all, names, at_once))
            found = {name: list_problems(name, live[name]) for name in names}
            self.problems |= found
            names = [name for name in names if found[name]]
            print(f"{len(live)} cases run, {len(names)} differ", flush=True)

    def compare_answers(self) -> None:
        live, ours = self._run(ask_live), ask_refusals(cases.V1)
        for case, answer in live.items():
            name = f"{cases.V1}/{case}"
            problem = describe_problem(name, answer, ours[case])
            self.problems[f"answer {name}"] = [problem] if problem else []
        print(f"{len(live)} answers compared", flush=True)


def find_gang(name: str) -> str:
    return next((gang for end, gang in GANGS.items() if name.endswith(end)), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of the names of cases")
    words = parser.parse_args().words
    logging.disable()
    names = [name for name in cases.list_cases() if name.startswith(f"{cases.V1}/")]
    names = [name for name in names if not words or any(word in name for word in words)]
    toolbox = Toolbox()
    toolbox.ensure_program(NAME)
    parts = Parts(training_operator=True, nodes=4, complete_ms=int(POD_SECONDS * 1000), unlimited=True)
    with KubeCluster(parts, toolbox=toolbox) as cluster:
        comparison = Comparison(cluster)
        for gang in ("", *GANGS.values()):
            chosen = [name for name in names if find_gang(name) == gang]
            if chosen:
                with running_training_operator(cluster, gang=gang):
                    comparison.compare_cases(chosen)
                    if not gang and not words:
                        comparison.compare_answers()
    differing = {name: problems for name, problems in comparison.problems.items() if problems}
    for name, problems in differing.items():
        print(f"== {name}: {len(problems)} differences that are not listed", *problems, sep="\n")
    print(f"{len(comparison.problems)} compared, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
