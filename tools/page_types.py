"""Checks the types of the dashboard's modules: their JSDoc, by a pinned `tsc --checkJs`.

    python tools/page_types.py           prints the mistakes
    python tools/page_types.py --keep    also keeps the folder that was checked, and prints its name

The compiler and the types of the vendored libraries come from npm, in exactly these versions, into the cache
(`tools/cache.py`). The types of requests and responses (`api.d.ts`) are made from the OpenAPI document of the code, so
reading a field that no model has is a mistake. Without node the exit status is SKIPPED, and `make check` says so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.browser import NotFetched, install_from_npm  # noqa: E402  (run as a script, the root is not on the path)
from tools.cache import Cache, cache_root, content_hash  # noqa: E402
from tools.testrun import SKIPPED  # noqa: E402
from tools.ui_vendor import LIBRARIES  # noqa: E402

PAGE = ROOT / "trainmaster" / "rest" / "pages" / "ui"
COMPILER = "typescript@6.0.3"
_TYPES = {
    "preact.js": 'export * from "preact";\n',
    "hooks.js": 'export * from "preact/hooks";\n',
    "signals.js": 'export * from "@preact/signals";\n',
    "signals-core.js": 'export * from "@preact/signals-core";\n',
    "htm.js": 'export { default } from "htm";\n',
    "uplot.js": 'export { default } from "uplot";\n',
}
"""What stands in place of the vendored files, which have no types themselves."""
_OPTIONS = {
    "allowJs": True,
    "checkJs": True,
    "noEmit": True,
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "noImplicitReturns": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    "exactOptionalPropertyTypes": True,
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
    "types": [],
    "skipLibCheck": True,
}


def build_types(document: Mapping[str, Any]) -> str:
    """TypeScript interfaces for all schemas of an OpenAPI document."""
    parts = ["// Made from the OpenAPI document by tools/page_types.py."]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f"export type {name.replace('-', '_')} = {_write_type(schema)};")
    parts.append("export type ProblemDocument = Problem;")
    return "\n".join(parts) + "\n"


def _write_type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2].replace("-", "_")
    if "enum" in schema or "const" in schema:
        return " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " | ".join(_write_type(one) for one in schema[word])
    kind = schema.get("type")
    if kind == "array":
        return f"({_write_type(schema.get('items', {}))})[]"
    if kind == "object":
        return _write_object(schema)
    names = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
    return names.get(str(kind), "any")


def _write_object(schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"Record<string, {_write_type(values) if isinstance(values, dict) else 'any'}>"
    fields = (f"{json.dumps(name)}: {_write_type(one)}" for name, one in schema["properties"].items())
    # A field that has a default is always in a response, and the page reads more than it sends.
    return "{ " + "; ".join(fields) + " }"


def ensure_modules(cache: Cache) -> Path:
    """The folder `node_modules` with the compiler and the libraries' types."""
    packages = [COMPILER, *(f"{library.package}@{library.version}" for library in LIBRARIES)]

    def make(folder: Path) -> None:
        print(f"fetching {COMPILER} (once; kept in {cache.root})", flush=True)
        install_from_npm(packages, folder)

    return cache.ensure("page-types", content_hash(packages), make) / "node_modules"


def prepare(folder: Path, modules: Path) -> None:
    """A copy of the page in which the vendored libraries have types."""
    shutil.copytree(PAGE, folder / "ui")
    for name, text in _TYPES.items():
        (folder / "ui" / "vendor" / name).unlink()
        (folder / "ui" / "vendor" / name).with_suffix(".d.ts").write_text(text)
    (folder / "ui" / "api.d.ts").write_text(build_types(read_document()))
    (folder / "node_modules").symlink_to(modules)
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _OPTIONS, "include": ["ui/**/*.js"]}))


def read_document() -> Mapping[str, Any]:
    """The OpenAPI document, in a process of its own: the web framework is not loaded into the caller."""
    code = (
        "import json, types; from trainmaster.rest.application import build_routes;"
        "print(json.dumps(build_routes(types.SimpleNamespace()).openapi()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def check(folder: Path) -> int:
    """Prints the mistakes, with names relative to the page."""
    command = ["node", "node_modules/typescript/bin/tsc", "--project", "tsconfig.json", "--pretty", "false"]
    return subprocess.run(command, cwd=folder).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the types of the dashboard's modules.")
    parser.add_argument("--keep", action="store_true", help="keep the folder that was checked")
    options = parser.parse_args()
    if not shutil.which("node") or not shutil.which("npm"):
        print("node and npm are not here, so the types of the dashboard's modules were not checked")
        return SKIPPED
    try:
        modules = ensure_modules(Cache(cache_root()))
    except NotFetched as error:
        print(error)
        return SKIPPED
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-page-"))
    try:
        prepare(folder, modules)
        return check(folder)
    finally:
        if options.keep:
            print(folder)
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
