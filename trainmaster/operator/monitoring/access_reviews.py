"""Asks the API server what somebody may do (SubjectAccessReview)."""

from __future__ import annotations

from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_status
from trainmaster.client.contract import Client

_REVIEWS = GVR("authorization.k8s.io", "v1", "subjectaccessreviews")


async def is_allowed(client: Client, who: Object, what: Object) -> bool:
    """`who`: user, groups, uid and extra; `what`: resourceAttributes or nonResourceAttributes. Raises StatusError if
    there is no answer."""
    review = {"apiVersion": _REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": {**who, **what}}
    answer = read_status(await client.create(_REVIEWS, review))
    return bool(answer.get("allowed")) and not answer.get("denied")
