"""Reviews of what somebody may do; answered, never stored."""

from __future__ import annotations

from functools import partial

from trainmaster.api.kinds import Kind
from trainmaster.api.schemas import load

LOCAL_SUBJECT_ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="LocalSubjectAccessReview",
    plural="localsubjectaccessreviews",
    singular="localsubjectaccessreview",
    namespaced=True,
    definition="io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    load=partial(load, "io.k8s.api.authorization.v1.LocalSubjectAccessReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

SELF_SUBJECT_ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    singular="selfsubjectaccessreview",
    namespaced=False,
    definition="io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    load=partial(load, "io.k8s.api.authorization.v1.SelfSubjectAccessReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

SELF_SUBJECT_RULES_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SelfSubjectRulesReview",
    plural="selfsubjectrulesreviews",
    singular="selfsubjectrulesreview",
    namespaced=False,
    definition="io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    load=partial(load, "io.k8s.api.authorization.v1.SelfSubjectRulesReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

SUBJECT_ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SubjectAccessReview",
    plural="subjectaccessreviews",
    singular="subjectaccessreview",
    namespaced=False,
    definition="io.k8s.api.authorization.v1.SubjectAccessReview",
    load=partial(load, "io.k8s.api.authorization.v1.SubjectAccessReview"),
    verbs=("create",),
    review=True,
    generation=False,
)

KINDS = (
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
