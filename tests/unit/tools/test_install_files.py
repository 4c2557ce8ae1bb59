"""The chart, the files for kustomize and the page about values are what the code says."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.house.tree import ROOT
from tools.install_files import CHART, build_files, list_shapes, list_stale
from trainmaster.operator.install import Values, build_objects, read_values
from trainmaster.operator.install.reading import to_mapping
from trainmaster.operator.install.schema import build_schema
from trainmaster.version import __version__

pytestmark = pytest.mark.unit

REST = ("base", "tenant-role", "addon", "deployment")


def test_the_files_are_what_the_code_says() -> None:
    assert list_stale() == [], "run python -m tools.install_files"


def test_the_charts_values_are_the_defaults() -> None:
    files = build_files()
    values = yaml.safe_load(files[f"{CHART}/values.yaml"])
    assert values == to_mapping(Values()) and read_values(values) == Values()
    assert json.loads(files[f"{CHART}/values.schema.json"]) == build_schema()
    assert dict(list_shapes(build_schema()))["ttlSecondsAfterFinished"] == "integer"
    assert yaml.safe_load(files[f"{CHART}/Chart.yaml"])["version"] == __version__


def test_the_values_that_the_page_shows_are_accepted() -> None:
    page = (ROOT / "docs" / "operator.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    shown = [yaml.safe_load(block) for block in blocks if "ttlSecondsAfterFinished: 86400" in block]
    assert [read_values(values).ttl_seconds_after_finished for values in shown] == [86400]


def test_the_rest_api_is_installed_as_deploy_rest_does() -> None:
    texts = [(ROOT / "deploy" / "rest" / f"{name}.yaml").read_text() for name in REST]
    documents = [one for text in texts for one in yaml.safe_load_all(text)]
    values = {"rest": {"enabled": True, "env": [{"name": "A", "value": "B"}]}, "commonLabels": {"x": "y"}}
    ours = {(one["kind"], one["metadata"]["name"]): one for one in build_objects(read_values(values))}
    for theirs in documents:
        one = ours[theirs["kind"], theirs["metadata"]["name"]]
        for part in ("rules", "data", "roleRef", "subjects"):
            assert one.get(part) == theirs.get(part), theirs["metadata"]["name"]
        if theirs["kind"] == "Service":
            assert one["spec"] == theirs["spec"]
        if theirs["kind"] == "Deployment":
            pods = [item["spec"]["template"]["spec"] for item in (one, theirs)]
            containers = [pod["containers"][0] for pod in pods]
            for part in ("securityContext", "serviceAccountName", "volumes", "enableServiceLinks"):
                assert pods[0][part] == pods[1][part]
            for part in ("securityContext", "ports", "readinessProbe", "livenessProbe", "volumeMounts", "resources"):
                assert containers[0][part] == containers[1][part]
            assert set(containers[1]["args"]) <= set(containers[0]["args"])
