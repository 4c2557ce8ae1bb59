"""Every field of every kind has a class, and the page about it is up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.generate_docs import render_fidelity
from trainmaster.api.declaring.catalogue import build
from trainmaster.api.declaring.fidelity import classify, find_class, list_used, unclassified
from trainmaster.api.declaring.kinds import Fidelity

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[4] / "docs" / "fidelity.md"


@pytest.mark.parametrize("kind", build().kinds, ids=repr)
def test_every_field_has_a_class_and_every_entry_a_field(kind: Any) -> None:
    assert unclassified(kind) == []
    assert list(classify(kind))


@pytest.mark.parametrize(
    ("api_version", "kind_name", "path", "want"),
    [
        ("v1", "Pod", "spec.containers.command", Fidelity.HONOURED),
        ("v1", "Pod", "spec.containers.livenessProbe.httpGet.port", Fidelity.HONOURED),
        ("v1", "Pod", "spec.volumes.nfs.server", Fidelity.REFUSED),
        ("batch/v1", "Job", "spec.template.spec.imagePullSecrets", Fidelity.IGNORED_BY_DESIGN),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "spec.podTemplateOverrides", Fidelity.HONOURED),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "spec.trainer.image", Fidelity.APPROXIMATED),
        ("v1", "Pod", "spec.nonsense", None),
    ],
)
def test_a_field_is_found_by_its_path(api_version: str, kind_name: str, path: str, want: Fidelity | None) -> None:
    kind = build().find_type(api_version, kind_name)
    assert kind is not None
    assert find_class(kind, path) is want


def test_the_page_says_what_the_code_says() -> None:
    assert PAGE.read_text() == render_fidelity(), "run tools/generate_docs.py"


@pytest.mark.parametrize(
    ("volume", "mount", "want"),
    [
        ({"csi": {"driver": "code.trainmaster.dev"}}, {}, []),
        ({"csi": {"driver": "disk.example.com"}}, {}, ["spec.volumes[0].csi.driver"]),
        ({"emptyDir": {}}, {"mountPropagation": "None"}, []),
        (
            {"emptyDir": {}},
            {"mountPropagation": "Bidirectional"},
            ["spec.containers[0].volumeMounts[0].mountPropagation"],
        ),
    ],
)
def test_a_value_may_be_refused_where_its_field_is_not(volume: Any, mount: Any, want: list[str]) -> None:
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    pod = {"spec": {"containers": [container], "volumes": [{"name": "v", **volume}]}}
    kind = build().find_type("v1", "Pod")
    assert kind is not None
    found = list_used(kind, pod)
    assert [one.path for one in found if one.fidelity is Fidelity.REFUSED] == want


def test_every_approximated_field_says_how() -> None:
    silent = [
        f"{kind.kind} {one.path}"
        for kind in build().kinds
        for one in classify(kind)
        if one.fidelity is Fidelity.APPROXIMATED and not one.note
    ]
    assert silent == []


def test_the_fields_of_an_object_are_found_with_their_positions() -> None:
    kind = next(kind for kind in build().kinds if kind.kind == "Pod")
    container = {"name": "a", "image": "x", "securityContext": {"privileged": False}, "ports": [{"hostPort": 80}]}
    found = {one.path: one.fidelity for one in list_used(kind, {"spec": {"containers": [container]}, "nonsense": 1})}
    assert found == {
        "spec.containers[0].name": Fidelity.HONOURED,
        "spec.containers[0].image": Fidelity.APPROXIMATED,
        "spec.containers[0].ports[0].hostPort": Fidelity.REFUSED,
    }
