"""The rules for writes of TrainJobs, runtimes and v1 jobs, by kind: what a webhook, or a server in its place, asks.

Two callers: our own API server (`apiserver.admission`) and the operator's webhooks (`operator.webhooks`). Both refuse
with the same texts, because the texts are made here. The names of the webhooks are upstream's; they are part of the
messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.api.admission import runtimes, trainjobs
from trainmaster.api.admission.contract import Findings, Lookup
from trainmaster.api.admission.queues import check_queued
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.fields import FieldError
from trainmaster.api.lifecycle.mirrors import mirror_terms
from trainmaster.api.lifecycle.policy import RetentionPolicy
from trainmaster.api.lifecycle.terms import check_annotations, check_enforced, find_ttl
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_annotations
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.v1jobs.frameworks import BY_KIND, GROUP, V1Framework

RUNTIMES = (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
TRAINER_KINDS = (TRAIN_JOBS, *RUNTIMES)


def has_rules(kind: Kind) -> bool:
    return kind.gvr in TRAINER_KINDS or kind.group == GROUP


def get_webhook(kind: Kind, role: str = "validator") -> str:
    """The name of upstream's webhook for the kind. `role`: validator or defaulter."""
    group = "training-operator.kubeflow.org" if kind.group == GROUP else kind.group
    return f"{role}.{kind.singular}.{group}"


def complete(kind: Kind, new: Object, old: Object | None, now: str, *, embedded: bool) -> list[str]:
    """Fills in what only an admission step can, in place; the object has not been validated yet. `old` is spelled like
    `new`. Returns warnings."""
    if kind.gvr != TRAIN_JOBS:
        return []
    trainjobs.stamp_times(new, old, now)
    return [] if embedded else mirror_terms(new, old)


def examine(kind: Kind, new: Object, old: Object | None, lookup: Lookup, *, embedded: bool) -> Findings:
    """Examines a valid object. `old` is spelled like `new`. `embedded`: this machine runs the jobs, not a cluster."""
    if kind.group == GROUP:
        return _examine_v1_job(BY_KIND[kind.kind], new, old, lookup, embedded=embedded)
    if kind.gvr != TRAIN_JOBS:
        return runtimes.admit_runtime(new, old)
    findings = (
        trainjobs.admit_create(new, lookup, embedded=embedded)
        if old is None
        else trainjobs.admit_update(new, old, lookup)
    )
    if not embedded:
        findings.errors += check_queued(new, old)
    return findings


def _examine_v1_job(
    framework: V1Framework, new: Fields, old: Fields | None, lookup: Lookup, *, embedded: bool
) -> Findings:
    """What only concerns us is examined when it is written: annotations of ours, and a TTL that is longer than an
    enforced one. A job that was accepted earlier can still be changed."""
    from trainmaster.api.v1jobs.validation import admit  # noqa: PLC0415 - few servers have such jobs

    findings = admit(framework, new, old, has_autoscaler=not embedded)
    findings.errors += _check_terms(new, old, lookup)
    return findings


def _check_terms(new: Fields, old: Fields | None, lookup: Lookup) -> Iterator[FieldError]:
    if old is None or read_annotations(old) != read_annotations(new):
        yield from check_annotations(new)
    if old is None or find_ttl(old, None, RetentionPolicy()) != find_ttl(new, None, RetentionPolicy()):
        yield from check_enforced(new, None, trainjobs.read_installation_policy(lookup))
