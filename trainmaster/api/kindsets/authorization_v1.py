"""Access reviews, which are never stored."""

from __future__ import annotations

from trainmaster.api.kindsets.reviews import build_review

_GROUP = "authorization.k8s.io"

LOCAL_SUBJECT_ACCESS_REVIEW = build_review(_GROUP, "LocalSubjectAccessReview", "admin", namespaced=True)
SELF_SUBJECT_ACCESS_REVIEW = build_review(_GROUP, "SelfSubjectAccessReview", "basic-user")
SELF_SUBJECT_RULES_REVIEW = build_review(_GROUP, "SelfSubjectRulesReview", "basic-user")
SUBJECT_ACCESS_REVIEW = build_review(_GROUP, "SubjectAccessReview", "auth-delegator")

KINDS = (
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
