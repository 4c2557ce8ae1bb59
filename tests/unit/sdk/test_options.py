"""Options for the Kubeflow SDK, called as its client calls them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import trainmaster
from trainmaster.api.lifecycle import term_names as terms
from trainmaster.sdk import options
from trainmaster.sdk.options import ActiveDeadlineSeconds, TTLSecondsAfterFinished

pytestmark = pytest.mark.unit


def test_the_ttl_joins_the_annotations_of_others_and_changes_none_of_theirs() -> None:
    theirs = {"a": "b"}
    job: dict[str, Any] = {"metadata": {"annotations": theirs}}
    TTLSecondsAfterFinished(0)(job, None, None)
    ActiveDeadlineSeconds(28800)(job, None, None)
    assert job["metadata"]["annotations"] == {"a": "b", terms.TTL_ANNOTATION: "0"} and theirs == {"a": "b"}
    assert job["spec"] == {"activeDeadlineSeconds": 28800}
    assert options.TTL_ANNOTATION == terms.TTL_ANNOTATION


@pytest.mark.parametrize("value", [-1, 1.5, "60", True, 2**31, None])
def test_what_is_no_number_of_seconds_is_refused_before_anything_is_sent(value: Any) -> None:
    for option in (TTLSecondsAfterFinished, ActiveDeadlineSeconds):
        with pytest.raises(ValueError, match="must be a whole number of seconds"):
            option(value)
    with pytest.raises(ValueError, match="from 1 to"):
        ActiveDeadlineSeconds(0)


def test_without_the_sdk_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kubeflow", "kubeflow.trainer"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "trainmaster.sdk.client", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'trainmaster\[sdk\]'"):
        _ = trainmaster.TrainerClient
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = trainmaster.Nonsense
