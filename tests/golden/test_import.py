"""What turns recordings into expectations: masks, refusals as kubectl prints them, the corpus as a whole."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.golden import cases
from tests.golden.comparison import Difference, compare, compare_events
from tests.golden.entries import Field
from tests.golden.folding import fold, hide_name, show_name, unfold
from tests.golden.masking import Object, mask_captures, mask_events, mask_text
from tools.golden_answers import read_answer, read_refusal
from tools.import_golden import encode

pytestmark = pytest.mark.golden

UID = "0a1b2c3d-0000-4000-8000-000000000001"


def make_pod(**spec: object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a-node-0-1-q28qj", "uid": UID, "resourceVersion": "7"},
        "spec": {"containers": [{"name": "node", "image": "registry.example.com/team/train:1"}], **spec},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


def test_the_corpus_is_complete() -> None:
    assert Counter(name.partition("/")[0] for name in cases.list_cases()) == {"2.1": 52, "2.3": 16, "1.8": 106}
    refusals = [cases.load_refusals(version) for version in cases.ALL_VERSIONS]
    assert [len(rows) for rows in refusals] == [79, 31, 70]
    assert sum(row["answer"] is not None for row in refusals[-1].values()) == 47


@pytest.mark.parametrize("name", cases.list_cases())
def test_expectations_are_stored_in_their_one_form(name: str) -> None:
    version, _, case = name.partition("/")
    text = (cases.DATA / version / "cases" / f"{case}.json").read_text()
    assert text == encode(json.loads(text)) + "\n"


def test_what_no_two_runs_share_is_masked() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "ownerReferences": [{"uid": UID}, {"uid": UID.replace("1", "2")}]},
        "status": {"startTime": "2026-11-15T08:59:24Z"},
    }
    volume = {"volumes": [{"name": "kube-api-access-6vbhn"}, {"name": "data"}], "nodeName": "node-3"}
    masked = mask_captures({"end": [make_pod(**volume), job]})["end"]
    assert masked[0]["metadata"]["ownerReferences"] == [{"uid": "<uid of Pod a-node-0-1-?????>"}, {"uid": "<uid>"}]
    assert masked[0]["status"] == {"startTime": "<time>"}
    assert masked[1]["metadata"] == {"name": "a-node-0-1-?????"}
    assert masked[1]["spec"]["volumes"] == [{"name": "data"}]
    assert masked[1]["spec"]["nodeName"] == "<node>"
    assert masked[1]["spec"]["containers"][0]["image"] == "team/train:1"
    assert masked[1]["status"] == {"phase": "Running", "conditions": []}


def test_folded_cases_are_what_they_were() -> None:
    case = {"a": [make_pod(), make_pod(hostname="h")], "b": {"c": make_pod()}, "d": [1, None, "<x>"]}
    folded, parts = fold(case)
    assert len(json.dumps([folded, parts])) < len(json.dumps(case))
    assert unfold(folded, parts) == case
    assert hide_name({"a-0": ["a"]}, "a") == {"<job>-0": ["<job>"]}
    assert show_name({"<job>-0": ["<job>"]}, "a") == {"a-0": ["a"]}


def test_what_only_upstream_says_must_match() -> None:
    entry = Field("*", "*", "event E", "", lacks="* code 0")

    def covers(upstream: str, ours: str) -> bool:
        return entry.covers("c", Difference("events", "Job", "j", "event E", upstream, ours))

    assert covers("Normal 1 x a code 0; 1 x b code 1", "Normal 1 x b code 1")
    assert covers("Normal 1 x a code 0", "(none)")
    assert not covers("Normal 1 x a code 0; 1 x b code 1", "(none)")
    assert not covers("Normal 1 x a code 0", "Normal 1 x c code 2")


def test_names_of_jobs_and_hosts_are_not_taken_for_random_ones() -> None:
    for name in ("r1-failed-node-0", "a-torch-node-0-0.a-torch", "c1-node-0-0"):
        assert mask_text(name) == name


def test_warnings_are_counted_once_and_other_events_as_often_as_they_happened() -> None:
    about = {"kind": "Job", "name": "j"}
    event = {"involvedObject": about, "type": "Normal", "reason": "Created", "message": "Created pod: j-0-q28qj"}
    warning = {**event, "type": "Warning", "reason": "Failed", "message": "no", "count": 9}
    again = {**event, "message": "Created pod: j-0-zzzzz"}
    found = mask_events([event, warning, again])
    assert [entry["messages"] for entry in found] == [{"Created pod: j-0-?????": 2}, {"no": 1}]
    assert [one.path for one in compare_events(found, found[:1])] == ["event Failed"]


def test_a_difference_is_told_by_its_field() -> None:
    other = make_pod(hostname="h")
    other["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    found = compare({"end": [make_pod()]}, {"end": [other]})
    assert [one.path for one in found] == ["spec.containers[node].env", "spec.hostname"]
    assert [one.path for one in compare({"end": [other]}, {"end": []})] == ["(object)"]


def test_the_order_of_named_things_is_a_difference_of_its_own() -> None:
    one, two = make_pod(), make_pod()
    one["spec"]["containers"] = [{"name": "a"}, {"name": "b"}]
    two["spec"]["containers"] = [{"name": "b"}, {"name": "a"}]
    assert [one.path for one in compare({"end": [one]}, {"end": [two]})] == ["spec.containers(order)"]


def test_refusals_are_read_as_kubectl_prints_them() -> None:
    assert read_answer("ACCEPTED") is None
    assert read_answer("trainjob.trainer.kubeflow.org/a patched") is None
    assert read_refusal('The TrainJob "a" is invalid: \n* spec.a: Required value\n* <nil>: Invalid value: null: x') == {
        "reason": "Invalid",
        "texts": ["spec.a: Required value", "<nil>: Invalid value: null: x"],
    }
    head = 'Error from server (Forbidden): error when creating "STDIN": admission webhook "w" denied the request: '
    assert read_refusal(head + '[spec.a: Invalid value: {"b":1, "c":2}: no, spec.d: Forbidden: never]') == {
        "reason": "Forbidden",
        "webhook": "w",
        "texts": ['spec.a: Invalid value: {"b":1, "c":2}: no', "spec.d: Forbidden: never"],
    }
    warned = (
        'Warning: old\nError from server (Forbidden): admission webhook "w" denied the request: spec.a: Forbidden: no'
    )
    assert read_refusal(warned) == {"reason": "Forbidden", "webhook": "w", "texts": ["spec.a: Forbidden: no"]}
    assert read_answer("ACCEPTED Warning: old") is None
    unknown = (
        'error: resource mapping not found for name: "r" from "STDIN": no matches for kind "A" in version "b/v2"\nc'
    )
    assert read_refusal(unknown) == {"reason": "NotFound", "texts": ['no matches for kind "A" in version "b/v2"']}
    with pytest.raises(ValueError):
        read_refusal("something else")
