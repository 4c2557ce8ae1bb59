"""Finds changes that would start a waiting job. Each one has been tried with the real scheduler on a copy of the view.

There are two kinds. Changes of the node (uncordon it, remove a taint, add a label) leave the job where it is in the
queue. Changes of the job (fewer ranks, fewer resources) require deleting and resubmitting it, and are simulated that
way: the job is deleted, other jobs that can then start do so, and the job is added again behind all others of its
priority. If the node has to be changed too, this is done first. The answers hold as long as no other job is submitted.

Pure; `variants` builds the changed jobs, and `reasons` puts the answers into words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.api.meta import Fields, Object
from trainmaster.api.node_policy import NAME, NAMESPACE, read_node_policy
from trainmaster.api.patches import merge
from trainmaster.api.pods.requests import CPU, read_amounts
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, LIMIT_RANGES, NODES
from trainmaster.api.workloads import build_gang
from trainmaster.client.view import View
from trainmaster.controllers.explain.variants import JobVariants, choose_unit, find_variants
from trainmaster.controllers.explain.world import HYPOTHETICAL_UID, Overlay, judge_gang, read_ledger
from trainmaster.controllers.scheduler.node_room import NodeRoom
from trainmaster.controllers.scheduler.placement import NodeChange, list_obstacles
from trainmaster.controllers.scheduler.queue_pass import SchedulingVerdict
from trainmaster.controllers.scheduler.reconciler import NODE
from trainmaster.controllers.scheduler.sentences import name_amount
from trainmaster.jobs.models.nodes import Node
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.kit.timeline import Now

_MOST_REPAIRS = 10
"""A safeguard; each change of the node removes an obstacle, and there are fewer kinds of them."""
_MOST_TRIED = 20
"""The maximum number of running jobs to test, to find out whether the end of each would be enough."""
_MOST_SHARED = 100
"""The maximum of the setting node.overcommit."""


@dataclass(frozen=True, slots=True)
class UnblockingChange:
    """A change that would start the job now."""

    kind: str
    """`nodes` and `resources` change the job; `node` changes the Node."""
    text: str
    """The second half of a sentence: "with 1 node instead of 2"."""
    how: str
    """The command to run or the field to edit."""
    patch: Fields = field(default_factory=dict)
    """For a change of the job: the merge patch to apply to it before resubmitting it."""
    loss: float = 0.0
    """The fraction of the requested amount that the job gives up. Changes are sorted by it, smallest first."""
    is_enough: bool = True
    """Whether the job starts with it alone; False if the node has to be changed first."""


class WhatIf:
    """Answers what-if questions about one job that does not run, on a copy of the view."""

    def __init__(self, view: View, job: TrainingJob, gang: str, now: Now) -> None:
        """`gang`: the scheduler's name of its gang; "" if it has none yet."""
        self._view = view
        self._world = Overlay(view)
        self._now = now
        self._job = job
        self._gang = gang
        self._gvr = JOB_SETS if job.has_jobset else job.gvr
        self._variants = find_variants(job, view)
        self._without: Overlay | None = None
        self.repairs = self._repair_node()
        """The changes of the node without which it does not accept the job. All answers assume that they are made."""

    def list_changes(self, lacking: Sequence[str]) -> list[UnblockingChange]:
        """`lacking`: the resources that the job lacks; empty if it waits for another reason."""
        text, how = ", ".join(change.text for change in self.repairs), _join_commands(self.repairs)
        if self.repairs and self._starts(_change_nothing):
            return [UnblockingChange("node", text, how)]
        found = sorted(self._list_job_changes(lacking), key=lambda change: change.loss)
        if not self.repairs:
            return found
        return [
            replace(change, text=f"{change.text}, {text}", how=f"first {how}; then {change.how}", is_enough=False)
            for change in found
        ]

    def find_repaired(self) -> tuple[SchedulingVerdict, NodeRoom, int] | None:
        """The scheduler's verdict after the changes of the node; None if there are no such changes."""
        return judge_gang(self._world, self._gang) if self.repairs and self._gang else None

    def _list_job_changes(self, lacking: Sequence[str]) -> Iterator[UnblockingChange]:
        """Those that start the job once the node accepts it."""
        variants = self._find_variants()
        if lacking and variants is not None:
            yield from self._try_ranks(variants)
            yield from self._try_resources(variants, lacking)

    def list_smaller(self) -> list[UnblockingChange]:
        """The changes that help if a quota refuses Pods: fewer ranks."""
        variants = self._find_variants()
        return [] if variants is None else list(self._try_ranks(variants))

    def _find_variants(self) -> JobVariants | None:
        """None also if a LimitRange would change what is submitted."""
        return None if self._view.list(LIMIT_RANGES, self._job.namespace) else self._variants

    def list_releases(self) -> list[str]:
        """Running gangs (namespace/name) of which a single one has to end for the job to start."""
        holders = [gang for gang in read_ledger(self._world).list_holders() if gang.names_job and gang.id != self._gang]
        return [gang.label for gang in holders[:_MOST_TRIED] if self._starts(_dropping(gang.id))]

    def would_start(self, patch: Fields) -> bool:
        """Whether the job would start if it were deleted and resubmitted with this patch."""
        gang = None if self._variants is None else self._variants.build(patch)
        return gang is not None and self._starts_anew(gang)

    def would_resume(self) -> bool:
        """Whether the suspended job would start at once if it were resumed."""
        gang = self._world.find(self._gvr, self._job.namespace, self._job.name)
        return gang is not None and self._starts_anew(gang)

    def _starts_anew(self, gang: Object) -> bool:
        """Whether the job would start if it were deleted and created again with this JobSet or v1 job."""
        world, namespace = self._get_without().copy(), self._job.namespace
        world.add_gang(self._gvr, gang, self._now)
        if not world.fits_quotas(namespace):
            return False
        world.play(self._now)
        return world.has_started(build_gang(namespace, HYPOTHETICAL_UID))

    def _starts(self, change: Callable[[Overlay], None]) -> bool:
        world = self._world.copy()
        change(world)
        world.play(self._now)
        return world.has_started(self._gang)

    def _get_without(self) -> Overlay:
        """The view after the job was deleted and every job that can then start has started."""
        if self._without is None:
            self._without = self._world.copy()
            self._without.drop_gang(self._gang)
            self._without.play(self._now)
        return self._without

    # Changes of the job

    def _try_ranks(self, variants: JobVariants) -> Iterator[UnblockingChange]:
        """The largest number of ranks, below the requested one, with which the job starts."""
        asked = variants.ranks
        most = compute_largest(asked - 1, lambda count: self.would_start(variants.build_ranks(count)))
        if most >= variants.least_ranks:
            text = f"with {most} {variants.rank_word}{'s' if most > 1 else ''} instead of {asked}"
            how = f"delete it and submit it again with {variants.rank_field}: {most}"
            yield UnblockingChange("nodes", text, how, variants.build_ranks(most), loss=(asked - most) / asked)

    def _try_resources(self, variants: JobVariants, lacking: Sequence[str]) -> Iterator[UnblockingChange]:
        """The same number of ranks, with the largest available amount of each lacking resource."""
        asked = variants.read_resources()
        if any(asked.get(name, 0) < 1 for name in lacking):
            return
        # Try each resource by itself, with the other lacking ones at 0, because the largest amount of one does not
        # depend on the others.
        most: dict[str, int] = {}
        for name in lacking:
            others = {other: 0 for other in lacking if other != name}
            unit = choose_unit(name, asked[name])

            def works(count: int, name: str = name, unit: int = unit, others: Mapping[str, int] = others) -> bool:
                return self.would_start(variants.build_resources({**others, name: count * unit}))

            steps = compute_largest((asked[name] - 1) // unit, works)
            if not steps:
                return
            most[name] = steps * unit
        patch = variants.build_resources(most)
        if not self.would_start(patch):
            return
        parts = [f"{name_amount(name, amount)} instead of {_name(name, asked[name])}" for name, amount in most.items()]
        how = f"delete it and submit it again with {variants.describe_resources(most)}"
        loss = max(1 - amount / asked[name] for name, amount in most.items())
        text = f"with {' and '.join(parts)} {variants.place}"
        yield UnblockingChange("resources", text, how, patch, loss=float(loss))

    # Changes of the node

    def _repair_node(self) -> list[NodeChange]:
        """Changes the node until no obstacle is left that a change of the node removes."""
        made: list[NodeChange] = []
        while len(made) < _MOST_REPAIRS and (change := self._find_repair()) is not None:
            node, policy = self._world.find(NODES, "", NODE), self._world.find(CONFIG_MAPS, NAMESPACE, NAME)
            if change.patch and node is not None:
                self._world.put(NODES, merge.apply(node, dict(change.patch)))
            else:
                meta, data = {"namespace": NAMESPACE, "name": NAME}, {**read_fields(policy, "data"), **change.policy}
                self._world.put(CONFIG_MAPS, {"metadata": meta, "data": data})
            made.append(change)
        return made

    def _find_repair(self) -> NodeChange | None:
        node = self._world.find(NODES, "", NODE)
        if node is None:
            return None
        policy = read_node_policy(self._world.find(CONFIG_MAPS, NAMESPACE, NAME))
        for pod in self._list_pods():
            for obstacle in list_obstacles(pod, Node(node), approximates_selectors=policy.approximates_selectors):
                if obstacle.change is not None:
                    return obstacle.change
        return None

    def list_sharing(self, verdict: SchedulingVerdict) -> list[UnblockingChange]:
        """If the node has fewer CPUs than the job requests: overcommitting them."""
        node = self._world.find(NODES, "", NODE)
        shared = describe_sharing(verdict, Node(node)) if node is not None and not self.repairs else None
        if node is None or shared is None:
            return []
        offered = {"status": {"allocatable": {CPU: f"{verdict.need[CPU]}m"}}}
        if not self._starts(lambda world: world.put(NODES, merge.apply(node, offered))):
            return []
        return [UnblockingChange("node", f"if jobs shared {shared[0]}, and ran slower", shared[1], loss=1.0)]

    def _list_pods(self) -> list[Pod]:
        """One waiting Pod of each role; the others have the same template."""
        places = ((self._job.find_place(pod), Pod(pod)) for pod in self._world.list_members(self._gang))
        return list(
            {place.job: pod for place, pod in places if place is not None and pod.is_active and not pod.node}.values()
        )


def describe_sharing(verdict: SchedulingVerdict, node: Node) -> tuple[str, str] | None:
    """If overcommitted CPUs are all that a job lacks: what is shared, and how. None otherwise."""
    has = read_amounts(node.capacity).get(CPU, 0)
    if verdict.lacking != (CPU,) or not has or verdict.need[CPU] > _MOST_SHARED * has:
        return None
    factor = -(-verdict.need[CPU] * 2 // has) / 2
    how = f"set overcommit = {factor:g} under [node] in the server's config.toml and restart the server"
    return f"the {name_amount(CPU, has)} of node {node.name}", how


def _change_nothing(world: Overlay) -> None:
    """The view as it is, with the changes of the node."""


def _join_commands(changes: Sequence[NodeChange]) -> str:
    return (" && " if all(change.patch for change in changes) else ", then ").join(change.how for change in changes)


def _dropping(gang: str) -> Callable[[Overlay], None]:
    return lambda world: world.drop_gang(gang)


def compute_largest(limit: int, works: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that works, by binary search; 0 if none does. If a number works, all smaller
    ones must work too."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if works(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _name(name: str, amount: int) -> str:
    """The amount without its unit."""
    return name_amount(name, amount).split(" ")[0]
