"""Values of `trainmaster operator install`: files, --set, and what earlier commands gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.cli.installation.cluster.values import gather_values, parse_assignment
from trainmaster.operator.install import ValuesError, read_values

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("manager.replicas=3", {"manager": {"replicas": 3}}),
        ("image.tag=007", {"image": {"tag": "007"}}),
        ("image.tag=", {"image": {"tag": ""}}),
        ("companion=true", {"companion": True}),
        ("podDisruptionBudget.maxUnavailable=null", {"podDisruptionBudget": {"maxUnavailable": None}}),
        ("v1Jobs={tfjob,mpijob}", {"v1Jobs": ["tfjob", "mpijob"]}),
        ("v1Jobs={}", {"v1Jobs": []}),
        (r"manager.nodeSelector.kubernetes\.io/os=linux", {"manager": {"nodeSelector": {"kubernetes.io/os": "linux"}}}),
        ("manager.podAnnotations.note=a=b", {"manager": {"podAnnotations": {"note": "a=b"}}}),
    ],
)
def test_an_assignment_means_what_it_means_to_helm(text: str, found: object) -> None:
    assert parse_assignment(text) == found


@pytest.mark.parametrize("text", ["manager", "=3", "manager..replicas=3", "manager.env[0].name=A"])
def test_an_assignment_that_names_no_value_is_refused(text: str) -> None:
    with pytest.raises(ValuesError, match="--set"):
        parse_assignment(text)


def test_one_flag_may_have_several_assignments() -> None:
    found = gather_values({}, [], [r"crds.enabled=false,v1Jobs={tfjob,mpijob},image.tag=a\,b"])
    assert found == {"crds": {"enabled": False}, "v1Jobs": ["tfjob", "mpijob"], "image": {"tag": "a,b"}}


def test_later_values_win_and_the_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("manager: {replicas: 2, nodeSelector: {a: b}}\nwatchNamespaces: [one]\n")
    before = {"manager": {"replicas": 1, "labels": {"team": "ml"}}, "watchNamespaces": ["zero", "null"]}
    found = gather_values(before, [str(file)], ["manager.replicas=3"])
    assert found["manager"] == {"replicas": 3, "labels": {"team": "ml"}, "nodeSelector": {"a": "b"}}
    assert found["watchNamespaces"] == ["one"]
    assert read_values(found).manager.replicas == 3


def test_null_removes_a_default_also_after_an_earlier_value() -> None:
    found = gather_values(
        {"podDisruptionBudget": {"maxUnavailable": 2}}, [], ["podDisruptionBudget.maxUnavailable=null"]
    )
    found = gather_values(found, [], ["podDisruptionBudget.minAvailable=1"])
    assert read_values(found).pod_disruption_budget.max_unavailable is None


@pytest.mark.parametrize(("content", "text"), [("- a", "must be a mapping"), ("a: [", "not valid YAML")])
def test_a_file_without_values_is_refused(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(content)
    with pytest.raises(ValuesError, match=text):
        gather_values({}, [str(file)], [])
