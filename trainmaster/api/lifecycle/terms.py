"""The effective TTL and deadline of one training job, and their source.

The job's value takes precedence over its runtime's, and that over the installation's. If the runtime or the
installation enforces its TTL, a job may set a shorter one, but not a longer one. If a cluster's CRD drops our fields,
annotations on the job or the runtime can be used instead; a field takes precedence over an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.api import fields
from trainmaster.api.fields import FieldError
from trainmaster.api.labels import (
    KEEP_CHECKPOINTS,
    KEEP_CHECKPOINTS_EVERY,
    ON_STALL,
    RESTART,
    RESUME_FROM,
    STOP_ON_SAME_FAILURE,
)
from trainmaster.api.lifecycle.policy import MOST_SECONDS, NAME, RetentionPolicy, parse_flag, parse_seconds
from trainmaster.api.lifecycle.stalls import parse_policy
from trainmaster.api.lifecycle.term_names import (
    DEADLINE_ANNOTATION,
    DEADLINE_FIELD,
    ENFORCED_ANNOTATION,
    TTL_ANNOTATION,
    TTL_FIELD,
)
from trainmaster.api.training.checkpoints import parse_count, parse_source
from trainmaster.api.training.restarts import parse_attempt

RUNTIME, INSTALLATION = "runtime", "installation"

Thing = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EffectiveTerm:
    seconds: int
    source: str
    """The source, for messages: `TrainJob spec.ttlSecondsAfterFinished`."""
    wanted: int | None = None
    """The job's own value, if an enforced one is shorter."""


def find_ttl(job: Thing, runtime: Thing | None, policy: RetentionPolicy) -> EffectiveTerm | None:
    """How long the job is kept after its end; None: until it is deleted."""
    own = _read(job, job.get("kind", "TrainJob"), TTL_FIELD, ("", "cleanupPolicy", "runPolicy"), TTL_ANNOTATION)
    limit = find_enforced(runtime, policy)
    if own is None:
        return limit or _find_runtime_ttl(runtime) or _find_installation_ttl(policy)
    if limit is not None and limit.seconds < own.seconds:
        return EffectiveTerm(limit.seconds, limit.source, own.seconds)
    return own


def find_enforced(runtime: Thing | None, policy: RetentionPolicy) -> EffectiveTerm | None:
    """The shortest TTL that the runtime or the installation enforces."""
    terms = []
    if runtime is not None and is_enforced(runtime):
        terms.append(_find_runtime_ttl(runtime))
    if policy.enforced:
        terms.append(_find_installation_ttl(policy))
    return min((term for term in terms if term is not None), key=lambda term: term.seconds, default=None)


def find_deadline(job: Thing, runtime: Thing | None) -> EffectiveTerm | None:
    """How long the job may be active; None: no limit."""
    own = _read(job, job.get("kind", "TrainJob"), DEADLINE_FIELD, ("", "runPolicy"), DEADLINE_ANNOTATION)
    return own or _read(runtime, RUNTIME, DEADLINE_FIELD, ("", "runPolicy"), DEADLINE_ANNOTATION)


def is_enforced(runtime: Thing) -> bool:
    return _get_annotations(runtime).get(ENFORCED_ANNOTATION) == "true"


def check_annotations(thing: Thing) -> Iterator[FieldError]:
    """Errors of our annotations on a training job or a runtime."""
    annotations = _get_annotations(thing)
    for key, parse in (
        (TTL_ANNOTATION, parse_seconds),
        (DEADLINE_ANNOTATION, _parse_deadline),
        (ENFORCED_ANNOTATION, parse_flag),
        (RESTART, parse_attempt),
        (ON_STALL, parse_policy),
        (STOP_ON_SAME_FAILURE, parse_flag),
        (KEEP_CHECKPOINTS, parse_count),
        (KEEP_CHECKPOINTS_EVERY, parse_count),
        (RESUME_FROM, parse_source),
    ):
        if key in annotations:
            try:
                parse(annotations[key])
            except ValueError as error:
                yield fields.invalid(f"metadata.annotations[{key}]", annotations[key], str(error))


def check_enforced(job: Thing, runtime: Thing | None, policy: RetentionPolicy) -> Iterator[FieldError]:
    """Refuses a job with a longer TTL than the enforced one."""
    term = find_ttl(job, runtime, policy)
    if term is not None and term.wanted is not None:
        text = f"must not be longer than {term.seconds}, which the {term.source} enforces"
        yield fields.invalid(_find_ttl_path(job), term.wanted, text)


def _find_ttl_path(job: Thing) -> str:
    spec = job.get("spec") or {}
    if TTL_FIELD in spec:
        return f"spec.{TTL_FIELD}"
    for place in ("cleanupPolicy", "runPolicy"):
        if TTL_FIELD in (spec.get(place) or {}):
            return f"spec.{place}.{TTL_FIELD}"
    return f"metadata.annotations[{TTL_ANNOTATION}]"


def _find_runtime_ttl(runtime: Thing | None) -> EffectiveTerm | None:
    return _read(runtime, RUNTIME, TTL_FIELD, ("", "runPolicy"), TTL_ANNOTATION)


def _find_installation_ttl(policy: RetentionPolicy) -> EffectiveTerm | None:
    return None if policy.ttl is None else EffectiveTerm(policy.ttl, f"{INSTALLATION} ConfigMap {NAME}")


def _read(thing: Thing | None, word: str, field: str, places: tuple[str, ...], annotation: str) -> EffectiveTerm | None:
    """The value of the first of `places` in the spec that has the field, else of the annotation if it is valid."""
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
