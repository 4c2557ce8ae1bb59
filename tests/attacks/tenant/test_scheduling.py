"""A tenant asks for nodes in ways that no scheduler can read: only its own Pod waits."""

from __future__ import annotations

import pytest

from tests.attacks.site import Site, unique

pytestmark = pytest.mark.attacks

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS: tuple[dict[str, list[dict[str, object]]], ...] = (
    {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["six"]}]},
    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Lt", "values": ["9" * 5000]}]},
    {"matchFields": [{}]},
    {"matchFields": [{"key": "metadata.name", "operator": "Gt", "values": ["six"]}]},
)


@pytest.mark.parametrize("term", TERMS, ids=["letters", "digits", "nothing", "fields"])
def test_a_pod_that_no_node_suits_keeps_nobody_else_waiting(
    site: Site, term: dict[str, list[dict[str, object]]]
) -> None:
    name = unique("picky")
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    code, answer = site.ann.kube.call(
        "POST", site.ann.path("pods"), site.ann.build_pod(name, "true", affinity=affinity)
    )
    assert code in (201, 422), answer
    assert site.bob.run_pod(unique("work"), "echo done") == "done\n"
    if code == 201:
        site.ann.kube.delete(f"{site.ann.path('pods', name)}?gracePeriodSeconds=0")
