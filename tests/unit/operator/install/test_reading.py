"""Values: what is refused, and that what is read is what was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import REFUSED, SETS, index
from tools.settings_page import read_docs
from trainmaster.api.meta import Object
from trainmaster.app.operator_options import OperatorOptions
from trainmaster.app.settings import load
from trainmaster.operator.choices import OperatorChoices
from trainmaster.operator.install import Values, ValuesError, build_objects, read_values
from trainmaster.operator.install.building import build_foreground_objects
from trainmaster.operator.install.reading import to_mapping
from trainmaster.operator.install.schema import FIXED, OWNED, build_schema
from trainmaster.operator.names import NAME, NAMESPACE
from trainmaster.operator.rights import build_access

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_sentence_that_names_the_key(name: str) -> None:
    values, key = REFUSED[name]
    with pytest.raises(ValuesError) as refused:
        read_values(values)
    text = str(refused.value)
    assert key in text.partition(": ")[0] and "\n" not in text and not text.endswith(".")


@pytest.mark.parametrize("name", [name for name in SETS if name not in ("pods", "lost-history")])
def test_values_survive_being_written(name: str) -> None:
    """Except those that remove an entry of a free mapping, which the defaults have again."""
    values = read_values(SETS[name])
    assert read_values(to_mapping(values)) == values


def test_null_removes_a_default_and_mappings_are_merged() -> None:
    values = read_values({"manager": {"resources": {"limits": None, "requests": {"cpu": "1"}}}, "global": {"x": 1}})
    assert values.manager.resources == {"requests": {"cpu": "1", "memory": "128Mi"}}


def list_groups(group: type) -> Iterator[type]:
    yield group
    for item in dataclasses.fields(group):
        assert item.name in read_docs(group), f"{group.__name__}.{item.name} has no text"
        default = item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
        if dataclasses.is_dataclass(default):
            yield from list_groups(type(default))


def test_every_value_has_a_text() -> None:
    assert len(list(list_groups(Values))) > 10


def test_every_setting_of_the_operator_has_one_place() -> None:
    free = build_schema()["properties"]["manager"]["properties"]["config"]["properties"]
    names = [item.name for item in dataclasses.fields(OperatorOptions)]
    assert sorted([*free, *OWNED, *FIXED]) == sorted(names)


@pytest.mark.parametrize("name", SETS)
def test_the_operator_takes_the_settings_and_has_the_rights_for_them(name: str, tmp_path: Path) -> None:
    objects = index(build_objects(read_values(SETS[name]), "mine"))
    file = tmp_path / "operator.toml"
    file.write_text(objects["v1", "ConfigMap", "mine", NAME]["data"]["operator.toml"])
    choices = OperatorChoices(load(file, {}, {}), in_pod=True)
    assert choices.build().lease_namespace == "mine"
    for role in build_access(choices.duties):
        meta = role["metadata"]
        built = objects[role["apiVersion"], role["kind"], meta.get("namespace", ""), meta["name"]]
        assert all(built[part] == role[part] for part in role if part != "metadata"), meta["name"]


def test_an_operator_in_the_foreground_needs_no_workload() -> None:
    kinds = {one["kind"] for one in build_foreground_objects(read_values({}))}
    assert kinds & {"Deployment", "ConfigMap", "PodDisruptionBudget", "ValidatingWebhookConfiguration"} == set()
    assert {"CustomResourceDefinition", "Service", "ClusterRole"} <= kinds


def test_a_changed_setting_replaces_the_pods() -> None:
    def read_annotations(values: Object) -> Object:
        deployment = index(build_objects(read_values(values)))["apps/v1", "Deployment", NAMESPACE, NAME]
        found: Object = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    plain = read_annotations({})
    assert plain == read_annotations({"manager": {"replicas": 5}})
    assert plain != read_annotations({"manager": {"config": {"workers": 9}}})
