"""What administrators are told about a host: settings with their sources, and no password."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.app.rest.host import hide_credentials, list_settings
from trainmaster.app.settings import Effective, NodeOptions, Settings, load

pytestmark = pytest.mark.unit


def test_every_setting_has_its_value_its_default_and_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[node]\npods = 7\nmodel_caches = ["whisper"]\n')
    environ = {"TRAINMASTER_REST_MAX_NODES": "5"}
    effective = load(file, environ, {"server.port": ("--port", 8443)})
    found = {one["key"]: one for one in list_settings(effective)}
    assert found["node.pods"] == {"key": "node.pods", "value": 7, "default": 1000, "source": f"file {file}"}
    assert found["node.model_caches"]["value"] == ["whisper"]
    assert found["rest.max_nodes"]["source"] == "environment TRAINMASTER_REST_MAX_NODES"
    assert found["server.port"]["source"] == "flag --port"
    assert found["server.address"]["source"] == "default"
    assert set(found) == set(effective.sources)


def test_another_host_shows_only_the_groups_that_count_for_it() -> None:
    found = list_settings(Effective(Settings(), {}), ("rest", "limits"))
    assert {one["key"].partition(".")[0] for one in found} == {"rest", "limits"}


def test_passwords_in_addresses_are_left_out() -> None:
    settings = replace(Settings(), node=NodeOptions(proxy="http://ann:secret@proxy.example:3128"))
    (found,) = [one for one in list_settings(Effective(settings, {})) if one["key"] == "node.proxy"]
    assert found["value"] == "http://***@proxy.example:3128"
    assert hide_credentials(["https://u:p@a/b", "plain@text", 3, True]) == ["https://***@a/b", "plain@text", 3, True]
