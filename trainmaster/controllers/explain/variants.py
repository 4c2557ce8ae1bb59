"""What a waiting job would be if it were submitted again with fewer ranks, or with less of a resource for each.

`changes` tries these variants with the scheduler. What can be changed, and which field a person edits for it, differs
between the kinds. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trainmaster.api.admission.contract import Lookup
from trainmaster.api.admission.trainjobs import find_live_runtime
from trainmaster.api.meta import Fields, Object
from trainmaster.api.patches import merge
from trainmaster.api.pods.requests import CPU, Amounts, compute_maxima, read_amounts
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.training.steps import NODE, decide_num_nodes, find_container, find_trainer
from trainmaster.api.v1jobs.frameworks import WORKER
from trainmaster.api.v1jobs.replicas import canonicalize
from trainmaster.controllers.frameworks.contract import FrameworkContext
from trainmaster.controllers.frameworks.keys import KeyPair
from trainmaster.controllers.trainjob.children import Children, build_children
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.models.trainjobs import TrainJob
from trainmaster.jobs.models.v1jobs import V1Job

MEBI = 1 << 20
_BYTES = ("memory", "ephemeral-storage")


class JobVariants(Protocol):
    rank_word: str
    """What users call a rank whose number can be changed."""
    ranks: int
    """How many there are; 0 if there is nothing to change."""
    least_ranks: int
    rank_field: str
    place: str
    """Where a resource counts: "on each node"."""

    def build(self, patch: Fields) -> Object | None:
        """The JobSet or v1 job of the patched job; None if the controller would create none."""
        ...

    def build_ranks(self, count: int) -> Object:
        """The merge patch that sets the number of ranks."""
        ...

    def read_resources(self) -> Amounts:
        """What a rank requests; the largest amount if ranks differ."""
        ...

    def build_resources(self, amounts: Mapping[str, int]) -> Object:
        """The merge patch after which no rank requests more than these amounts."""
        ...

    def describe_resources(self, amounts: Mapping[str, int]) -> str:
        """What to change, for people."""
        ...


def find_variants(job: TrainingJob, lookup: Lookup) -> JobVariants | None:
    """None if the job cannot be built, because its runtime does not exist."""
    if isinstance(job, V1Job):
        return V1JobVariants(job)
    runtime = find_live_runtime(job.raw, lookup)
    return None if runtime is None else TrainJobVariants(job, runtime)


class TrainJobVariants:
    rank_word = "node"
    rank_field = "spec.trainer.numNodes"
    least_ranks = 1
    place = "on each node"

    def __init__(self, job: TrainingJob, runtime: Object) -> None:
        self._raw: Object = dict(job.raw)
        self._runtime = runtime
        self.ranks = decide_num_nodes(self._raw, runtime)

    def build(self, patch: Fields) -> Object | None:
        trainjob = merge.apply(self._raw, dict(patch))
        context = FrameworkContext(make_ssh_keys=_make_no_keys, make_curve_keys=_make_no_keys)
        children = build_children(TrainJob(trainjob), self._runtime, context)
        return children.jobset if isinstance(children, Children) else None

    def build_ranks(self, count: int) -> Object:
        return {"spec": {"trainer": {"numNodes": count}}}

    def read_resources(self) -> Amounts:
        return _read_requests(self._read_container())

    def build_resources(self, amounts: Mapping[str, int]) -> Object:
        """Contains all resources of the container, because the TrainJob's value replaces the runtime's."""
        return {"spec": {"trainer": {"resourcesPerNode": _lower(self._read_container(), amounts)}}}

    def describe_resources(self, amounts: Mapping[str, int]) -> str:
        return f"spec.trainer.resourcesPerNode of {_join(amounts)}"

    def _read_container(self) -> Fields:
        """The current resources of the trainer container, from the TrainJob or its runtime."""
        jobset = self.build({})
        trainer = find_trainer(jobset["spec"]) if jobset is not None else None
        container = find_container(trainer, NODE) if trainer is not None else None
        return read_fields(container, "resources")


class V1JobVariants:
    """Fewer workers: the other types have one Pod, or cannot be reduced without changing the program."""

    rank_word = "worker"
    place = "in each Pod"

    def __init__(self, job: V1Job) -> None:
        self._job = job
        self._path = job.framework.replicas_field
        self._entries: Fields = read_fields(job.spec, self._path)
        self._workers = next((name for name in self._entries if canonicalize(job.framework, name) == WORKER), WORKER)
        elastic = read_fields(job.spec, "elasticPolicy")
        # An elastic program waits for the least number of workers.
        self.least_ranks = int(elastic.get("minReplicas") or elastic.get("maxReplicas") or 1)
        self.ranks = job.replicas[WORKER].count if WORKER in job.replicas else 0
        self.rank_field = f"spec.{self._path}.{self._workers}.replicas"

    def build(self, patch: Fields) -> Object | None:
        return merge.apply(dict(self._job.raw), dict(patch))

    def build_ranks(self, count: int) -> Object:
        return {"spec": {self._path: {self._workers: {"replicas": count}}}}

    def read_resources(self) -> Amounts:
        main = map(self._find_main, self._entries.values())
        return compute_maxima(*(_read_requests(read_fields(container, "resources")) for container in main))

    def build_resources(self, amounts: Mapping[str, int]) -> Object:
        """Contains whole lists of containers, because a merge patch replaces lists."""
        changed: Object = {}
        for name, entry in self._entries.items():
            main = self._find_main(entry)
            lowered = {"resources": _lower(read_fields(main, "resources"), amounts)}
            containers: Sequence[Fields] = list_items(entry, "template", "spec", "containers")
            own = [{**one, **lowered} if one is main else one for one in containers]
            changed[name] = {"template": {"spec": {"containers": own}}}
        return {"spec": {self._path: changed}}

    def describe_resources(self, amounts: Mapping[str, int]) -> str:
        return f"at most {_join(amounts)} in the resources of each replica of spec.{self._path}"

    def _find_main(self, entry: Fields | None) -> Fields | None:
        """The container of the framework; an MPIJob may call it anything."""
        containers = list_items(entry, "template", "spec", "containers")
        own = (one for one in containers if one.get("name") == self._job.framework.container)
        return next(own, containers[0] if containers else None)


def _read_requests(resources: Fields) -> Amounts:
    return {**read_amounts(resources.get("limits")), **read_amounts(resources.get("requests"))}


def _lower(resources: Fields, amounts: Mapping[str, int]) -> Object:
    """The resources of a container with at most these amounts. Limits are lowered together with requests, which must
    not exceed them."""
    sections: Object = {}
    for section in ("limits", "requests"):
        before = read_fields(resources, section)
        asked = read_amounts(before)
        less = {name: render_quantity(name, most) for name, most in amounts.items() if asked.get(name, 0) > most}
        sections[section] = {**before, **less}
    return {**resources, **{name: part for name, part in sections.items() if part}}


def _join(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {render_quantity(name, amount)}" for name, amount in amounts.items())


def choose_unit(name: str, asked: int) -> int:
    """A step that gives round numbers, unless the requested amount is smaller than that."""
    if name == CPU:
        return 50 if asked > 100 else 1
    if name in _BYTES:
        return MEBI if asked > MEBI else 1
    return 1


def render_quantity(name: str, amount: int) -> str:
    """The amount as a Kubernetes quantity."""
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name in _BYTES and amount and amount % MEBI == 0:
        return f"{amount // MEBI}Mi"
    return str(amount)


def _make_no_keys() -> KeyPair:
    return KeyPair("", "")
