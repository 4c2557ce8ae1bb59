"""The terms in force for one training job: after how many seconds it is deleted or stopped, and who said so.

The job decides, else its runtime, else the installation. Where a runtime or the installation enforces its retention, a
job may be kept shorter, not longer. Where a cluster's CRD drops our fields, annotations of the same meaning on the job
or the runtime take their place; a field beside an annotation wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.labels import RESTART
from trainmaster.api.lifecycle.policy import MOST_SECONDS, NAME, RetentionPolicy, parse_flag, parse_seconds
from trainmaster.api.lifecycle.term_names import (
    DEADLINE_ANNOTATION,
    DEADLINE_FIELD,
    ENFORCED_ANNOTATION,
    TTL_ANNOTATION,
    TTL_FIELD,
)
from trainmaster.api.training.restarts import parse_attempt

RUNTIME, INSTALLATION = "runtime", "installation"

Thing = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EffectiveTerm:
    seconds: int
    source: str
    """Where it comes from, for people: `TrainJob spec.ttlSecondsAfterFinished`."""
    wanted: int | None = None
    """What the job asked for, where an enforced term is shorter."""


def find_ttl(job: Thing, runtime: Thing | None, policy: RetentionPolicy) -> EffectiveTerm | None:
    """How long it is kept after its end; None: until somebody deletes it."""
    own = _read(job, job.get("kind", "TrainJob"), TTL_FIELD, ("", "cleanupPolicy", "runPolicy"), TTL_ANNOTATION)
    limit = find_enforced(runtime, policy)
    if own is None:
        return limit or _find_runtime_ttl(runtime) or _find_installation_ttl(policy)
    if limit is not None and limit.seconds < own.seconds:
        return EffectiveTerm(limit.seconds, limit.source, own.seconds)
    return own


def find_enforced(runtime: Thing | None, policy: RetentionPolicy) -> EffectiveTerm | None:
    """The shortest retention that somebody above the job insists on."""
    terms = []
    if runtime is not None and is_enforced(runtime):
        terms.append(_find_runtime_ttl(runtime))
    if policy.enforced:
        terms.append(_find_installation_ttl(policy))
    return min((term for term in terms if term is not None), key=lambda term: term.seconds, default=None)


def find_deadline(job: Thing, runtime: Thing | None) -> EffectiveTerm | None:
    """How long it may be active; None: for ever."""
    own = _read(job, job.get("kind", "TrainJob"), DEADLINE_FIELD, ("", "runPolicy"), DEADLINE_ANNOTATION)
    return own or _read(runtime, RUNTIME, DEADLINE_FIELD, ("", "runPolicy"), DEADLINE_ANNOTATION)


def is_enforced(runtime: Thing) -> bool:
    return _get_annotations(runtime).get(ENFORCED_ANNOTATION) == "true"


def check_annotations(thing: Thing) -> Iterator[FieldError]:
    """What is wrong with our annotations on a TrainJob or a runtime."""
    annotations = _get_annotations(thing)
    for key, parse in (
        (TTL_ANNOTATION, parse_seconds),
        (DEADLINE_ANNOTATION, _parse_deadline),
        (ENFORCED_ANNOTATION, parse_flag),
        (RESTART, parse_attempt),
    ):
        if key in annotations:
            try:
                parse(annotations[key])
            except ValueError as error:
                yield fields.invalid(f"metadata.annotations[{key}]", annotations[key], str(error))


def check_enforced(trainjob: Thing, runtime: Thing | None, policy: RetentionPolicy) -> Iterator[FieldError]:
    """A TrainJob that wants to be kept longer than somebody above it allows is told so when it is created."""
    term = find_ttl(trainjob, runtime, policy)
    if term is not None and term.wanted is not None:
        text = f"must not be longer than {term.seconds}, which the {term.source} enforces"
        yield fields.invalid(_find_ttl_path(trainjob), term.wanted, text)


def _find_ttl_path(trainjob: Thing) -> str:
    spec = trainjob.get("spec") or {}
    if TTL_FIELD in spec:
        return f"spec.{TTL_FIELD}"
    if TTL_FIELD in (spec.get("cleanupPolicy") or {}):
        return f"spec.cleanupPolicy.{TTL_FIELD}"
    return f"metadata.annotations[{TTL_ANNOTATION}]"


def _find_runtime_ttl(runtime: Thing | None) -> EffectiveTerm | None:
    return _read(runtime, RUNTIME, TTL_FIELD, ("", "runPolicy"), TTL_ANNOTATION)


def _find_installation_ttl(policy: RetentionPolicy) -> EffectiveTerm | None:
    return None if policy.ttl is None else EffectiveTerm(policy.ttl, f"{INSTALLATION} ConfigMap {NAME}")


def _read(thing: Thing | None, word: str, field: str, places: tuple[str, ...], annotation: str) -> EffectiveTerm | None:
    """From the first place in the spec that has the field, else from the annotation. Bad annotations are no term."""
    if thing is None:
        return None
    if word == RUNTIME:
        word = f'{RUNTIME} "{thing["metadata"]["name"]}"'
    spec = thing.get("spec") or {}
    for place in places:
        holder = spec if not place else spec.get(place) or {}
        if holder.get(field) is not None:
            return EffectiveTerm(int(holder[field]), f"{word} spec.{f'{place}.' if place else ''}{field}")
    text = _get_annotations(thing).get(annotation)
    if text is None:
        return None
    try:
        parse = parse_seconds if annotation == TTL_ANNOTATION else _parse_deadline
        return EffectiveTerm(parse(text), f"{word} annotation {annotation}")
    except ValueError:
        return None


def _parse_deadline(text: str) -> int:
    try:
        seconds = parse_seconds(text)
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise ValueError(f"must be a whole number of seconds from 1 to {MOST_SECONDS}")
    return seconds


def _get_annotations(thing: Thing) -> Mapping[str, str]:
    return thing["metadata"].get("annotations") or {}
