"""Runs a recorded case on our own programs: the in-process server, every controller, and a node that plays kwok.

Upstream's runtimes are installed instead of ours. The node lets Pods run at once and end after as many seconds as the
recorded ones did, by the Pod's annotations: `recipe/outcome: fail` lets it fail (with `recipe/exit-code`), `hang` lets
it run until it is deleted or annotated otherwise, `recipe/after` says when it ends. Time is virtual; waiting costs
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.flow.plant import ScriptedNode
from tests.golden import cases
from tests.golden.acts import Outcome, Performer
from tests.golden.comparison import Difference, compare, compare_events
from tests.golden.masking import (
    Object,
    drop_counts,
    drop_repetitions,
    drop_served,
    mask_captures,
    mask_text,
)
from trainmaster.api.declaring import catalogue
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.declaring.schema import SchemaNode
from trainmaster.api.resources import NODES, PODS
from trainmaster.api.schemas import load as load_definition
from trainmaster.api.status import NotFound, StatusError
from trainmaster.app.workloads import CONTROLLERS as EMBEDDED
from trainmaster.client.contract import Client, PatchType
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.trainjob.reconciler import build_controller
from trainmaster.engine.apply import apply_in_one
from trainmaster.engine.events import EventRecorder
from trainmaster.engine.feed import WatchFeed
from trainmaster.engine.manager import Manager
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

CONTROLLERS = tuple(
    # As on a cluster, where somebody reads PodGroups.
    build_controller(FrameworkContext(on_cluster=True)) if controller.name == "trainjob" else controller
    for controller in EMBEDDED
)
PATCHED = {"2.1": "2.1/a1-t5-large", "2.3": "2.3/a-torch", "1.8": "1.8/recreated"}
"""The case whose job upstream was asked to change."""
READY = {"2.1": "Complete", "2.3": "Complete", "1.8": "Running"}
"""The condition that the job had then."""
HANG_SECONDS = 0.5
"""How often a Pod that hangs looks at its annotations."""
# kwok's four nodes of 64 devices each, as the one node that we have.
LABELS = {
    "kubernetes.io/hostname": "local",
    "kubernetes.io/os": "linux",
    "node.kubernetes.io/instance-type": "g6e.48xlarge",
    "topology.kubernetes.io/zone": "ap-northeast-2a",
    "recipe/pool": "fake",
}
CAPACITY = {"cpu": "1024", "memory": "4096Gi", "pods": "1000", "nvidia.com/gpu": "256"}


@dataclass
class Kwok(ScriptedNode):
    last: str = ""
    """The job of the JobSet whose Pods end a moment after the others."""
    stagger: float = 0.0
    """Seconds by which each Pod ends after the one that was started before it."""

    def get_seconds(self, pod: Object) -> float:
        job = (pod["metadata"].get("labels") or {}).get("jobset.sigs.k8s.io/replicatedjob-name")
        after = _get_annotation(pod, "recipe/after")
        own = _parse_seconds(after) if after else self.seconds
        before = self.started.index(pod["metadata"]["name"]) * self.stagger
        return own + before + (0.5 if job == self.last else 0.0)

    async def end(self, client: Client, clock: Clock, pod: Object, run: int, moment: str) -> None:
        meta = pod["metadata"]
        while _get_annotation(pod, "recipe/outcome") == "hang":
            await clock.sleep(HANG_SECONDS)
            try:
                pod = await client.get(PODS, meta["name"], meta["namespace"])
            except NotFound:
                return
            if pod["metadata"]["uid"] != meta["uid"]:
                return
        await super().end(client, clock, pod, run, moment)


@functools.cache
def run_case(name: str) -> Outcome:
    """Each case runs once per session; several tests look at its outcome."""
    return run_virtual(_run(cases.load_case(name)), limit=86_400)


def compare_case(name: str) -> list[Difference]:
    """Everything in which our outcome is not upstream's, listed or not."""
    return compare_outcome(cases.load_case(name), run_case(name))


def compare_outcome(case: Object, outcome: Outcome) -> list[Difference]:
    """`case`: as recorded, or as upstream does it now."""
    kind = case["manifest"][-1]["kind"]
    if "refused" in case or outcome.refusal is not None:
        return _compare_answers("create", kind, "answer", case.get("refused"), outcome.refusal)
    ours, events = dict(outcome.captures), outcome.events
    for moment in case["loose"]:
        ours[moment] = [drop_counts(obj) for obj in ours[moment]]
    if case.get("controllerOnly"):
        ours = {moment: [drop_served(obj) for obj in objects] for moment, objects in ours.items()}
        kinds = {obj["kind"] for obj in case["manifest"]}
        events = drop_repetitions(event for event in events if event["about"] in kinds)
    found = compare(case["captures"], ours) + compare_events(case["events"], events)
    found += [Difference("until", kind, "", unmet, "True", "(never)") for unmet in outcome.unmet]
    changes = [act for act in case["acts"] if act["do"] in ("patch", "delete")]
    for index, (act, answer) in enumerate(zip(changes, outcome.answers, strict=True)):
        found += _compare_answers("patch", kind, f"answer {index}", act.get("answer"), answer)
    return found


def _compare_answers(
    moment: str, kind: str, path: str, want: Object | None, got: StatusError | None
) -> list[Difference]:
    if want is None or got is None:
        same = want is None and got is None
    else:
        same = not list_missing(want, got)
    if same:
        return []
    shown = ["let in" if want is None else "; ".join(want["texts"]), "let in" if got is None else got.message]
    return [Difference(moment, kind, "", path, shown[0], shown[1])]


def list_missing(answer: Mapping[str, Any], ours: StatusError) -> list[str]:
    """Texts of upstream's answer that ours does not contain."""
    heard = "\n".join([ours.message, *(f"{cause.get('field')}: {cause.get('message')}" for cause in ours.causes)])
    heard = mask_text(heard)
    return [text for text in answer["texts"] if text not in heard]


@asynccontextmanager
async def running_stage(
    version: str, *, pod_seconds: float = 6.0, last: str = "", stagger: float = 0.0
) -> AsyncIterator[Performer]:
    """A server with upstream's runtimes of that version, all controllers and the node."""
    node = Kwok(_play, seconds=pod_seconds, last=last, stagger=stagger)
    async with running_cluster(kinds=build_catalogue()) as cluster:
        client, clock = cluster.client, cluster.clock
        await client.create(
            NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local", "labels": LABELS}}
        )
        status = {"status": {"capacity": CAPACITY, "allocatable": CAPACITY}}
        await client.patch(NODES, "local", PatchType.MERGE, status, subresource="status")
        stage = Performer(client, clock, cluster.registry.catalogue)
        for runtime in cases.load_runtimes(version):
            await stage.create(runtime)
        manager = Manager(
            CONTROLLERS,
            view=cluster.view,
            feed=WatchFeed(client, clock),
            apply=apply_in_one(client),
            recorder=EventRecorder(client, clock),
            clock=clock,
        )
        async with Scope("golden") as scope, manager.running():
            scope.spawn_forever(node.run(client, clock), name="golden.node")
            yield stage


async def _run(case: Object) -> Outcome:
    version = case["case"].partition("/")[0]
    outcome = Outcome()
    node = {"pod_seconds": case["podSeconds"], "last": case["last"], "stagger": case["stagger"]}
    async with running_stage(version, **node) as stage:
        *before, job = case["manifest"]
        for obj in before:
            await stage.create(obj)
        warnings = stage.client.warnings
        warnings.clear()
        try:
            await stage.create(job)
        except StatusError as error:
            outcome.refusal = error
            return outcome
        outcome.warnings = list(warnings)
        for act in case.get("acts", ()):
            await stage.perform(job, act, outcome)
    outcome.captures = mask_captures(outcome.raw)
    return outcome


def _play(pod: Object, run: int) -> int:
    fails = _get_annotation(pod, "recipe/outcome") == "fail"
    return int(_get_annotation(pod, "recipe/exit-code") or 1) if fails else 0


def _get_annotation(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def _parse_seconds(text: str) -> float:
    return float(text.removesuffix("ms")) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


@functools.cache
def build_catalogue() -> Catalogue:
    """What is served, and the PodGroups of the two gang schedulers, which clusters have and we do not."""
    served = catalogue.build()
    extra = [_build_pod_group("scheduling.x-k8s.io", "v1alpha1"), _build_pod_group("scheduling.volcano.sh", "v1beta1")]
    return Catalogue((*served.kinds, *(kind for kind in extra if served.find(kind.gvr) is None)))


def _build_pod_group(group: str, version: str) -> Kind:
    def load() -> SchemaNode:
        some = load_definition("io.x-k8s.jobset.v1alpha2.JobSet").properties
        head = {name: some[name] for name in ("apiVersion", "kind", "metadata")}
        return SchemaNode(type="object", properties={**head, "spec": SchemaNode(type="object", preserve_unknown=True)})

    return Kind(
        group=group,
        version=version,
        kind="PodGroup",
        plural="podgroups",
        singular="podgroup",
        namespaced=True,
        definition=f"{group}.{version}.PodGroup",
        load=functools.cache(load),
        custom=True,
    )


@functools.cache
def ask_refusals(version: str) -> dict[str, StatusError | None]:
    """Our answers to the manifests and patches that upstream was asked about; None: let in."""
    return run_virtual(_ask(version), limit=86_400)


async def _ask(version: str) -> dict[str, StatusError | None]:
    """Manifests are tried in dry runs, patches on a job like the one that upstream was asked about."""
    *before, job = cases.load_case(PATCHED[version])["manifest"]
    async with running_stage(version, pod_seconds=1.0) as stage:
        for obj in (*before, job):
            await stage.create(obj)
        await stage.wait_for(job, READY[version])
        return {case: await stage.ask(job, row) for case, row in cases.load_refusals(version).items()}


def submit(version: str, *objects: Object) -> list[tuple[StatusError | None, list[str]]]:
    """Creates the objects one after the other; the refusal and the warnings of each."""

    async def main() -> list[tuple[StatusError | None, list[str]]]:
        answers: list[tuple[StatusError | None, list[str]]] = []
        async with running_stage(version) as stage:
            for obj in objects:
                stage.client.warnings.clear()
                refusal: StatusError | None = None
                try:
                    await stage.create(obj)
                except StatusError as error:
                    refusal = error
                answers.append((refusal, list(stage.client.warnings)))
        return answers

    return run_virtual(main(), limit=86_400)
