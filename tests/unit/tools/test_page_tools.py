"""The tools of the dashboard: relative imports of vendored libraries, and types from an OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import page_types, ui_vendor

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param('import{h}from"preact";', 'import{h}from"./preact.js";', id="minified"),
        pytest.param("import 'preact/hooks';", "import './hooks.js';", id="single quotes"),
        pytest.param('export{a}from"./other.js";', 'export{a}from"./other.js";', id="already relative"),
        pytest.param("a();\n//# sourceMappingURL=a.js.map\n", "a();\n", id="a source map that is not shipped"),
    ],
)
def test_imports_of_vendored_libraries_become_relative(source: str, want: str) -> None:
    assert ui_vendor.make_relative(source) == want


def test_an_import_that_is_not_vendored_is_an_error() -> None:
    with pytest.raises(KeyError):
        ui_vendor.make_relative('import x from "lodash";')


def test_a_changed_a_missing_and_an_unknown_file_are_found(tmp_path: Path) -> None:
    record = [{"package": one.package, "version": one.version, "sha256": {}} for one in ui_vendor.LIBRARIES]
    record[0]["sha256"] = {"a.js": ui_vendor.hash_text("a"), "b.js": ui_vendor.hash_text("b")}
    record[1]["version"] = "0.0.1"
    (tmp_path / ui_vendor.RECORD).write_text(json.dumps(record))
    (tmp_path / "a.js").write_text("changed")
    (tmp_path / "c.js").write_text("unknown")
    assert ui_vendor.list_changed(tmp_path) == [ui_vendor.LIBRARIES[1].package, "a.js", "b.js", "c.js"]


def test_schemas_become_types() -> None:
    schemas = {
        "Job": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "nodes": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "state": {"enum": ["Running", "Failed"]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "workers": {"type": "array", "items": {"$ref": "#/components/schemas/Worker"}},
            },
        },
        "Worker": {"type": "object"},
    }
    types = page_types.build_types({"components": {"schemas": schemas}})
    assert 'export type Job = { "name": string; "nodes": number | null; "state": "Running" | "Failed"; ' in types
    assert '"labels": Record<string, string>; "workers": (Worker)[] };' in types
    assert "export type Worker = Record<string, any>;" in types
