"""Authentication reviews, which are never stored."""

from __future__ import annotations

from trainmaster.api.kindsets.reviews import build_review

_GROUP = "authentication.k8s.io"

SELF_SUBJECT_REVIEW = build_review(_GROUP, "SelfSubjectReview", "basic-user", has_spec=False)
TOKEN_REVIEW = build_review(_GROUP, "TokenReview", "auth-delegator")

KINDS = (
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
)
