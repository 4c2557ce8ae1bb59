"""Reviews of who somebody is; answered, never stored."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

SELF_SUBJECT_REVIEW = Kind(
    group="authentication.k8s.io",
    version="v1",
    kind="SelfSubjectReview",
    plural="selfsubjectreviews",
    singular="selfsubjectreview",
    namespaced=False,
    definition="io.k8s.api.authentication.v1.SelfSubjectReview",
    load=partial(load, "io.k8s.api.authentication.v1.SelfSubjectReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

TOKEN_REVIEW = Kind(
    group="authentication.k8s.io",
    version="v1",
    kind="TokenReview",
    plural="tokenreviews",
    singular="tokenreview",
    namespaced=False,
    definition="io.k8s.api.authentication.v1.TokenReview",
    load=partial(load, "io.k8s.api.authentication.v1.TokenReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

KINDS = (
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
)
