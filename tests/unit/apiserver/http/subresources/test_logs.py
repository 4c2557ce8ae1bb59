"""What pods/NAME/log checks before the node is asked."""

from __future__ import annotations

import pytest

from trainmaster.api.status import NotFound
from trainmaster.apiserver.http.subresources.logs import check_uid
from trainmaster.jobs.models.pods import Pod

pytestmark = pytest.mark.unit


def test_a_pod_that_was_replaced_is_not_found_by_its_uid() -> None:
    pod = Pod({"metadata": {"name": "a-worker-0", "namespace": "default", "uid": "new"}})
    check_uid(pod, "")
    check_uid(pod, "new")
    with pytest.raises(NotFound, match='pods "a-worker-0" not found'):
        check_uid(pod, "old")
