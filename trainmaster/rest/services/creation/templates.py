"""The templates of each framework: its system ConfigMap and its TrainJob, shipped or changed by administrators.

    manifests/FRAMEWORK/system-configmap.yaml, trainjob.yaml (and runtime.yaml, user-configmap.example.yaml)

A file with the same name in an administrator's folder (the home's `templates/`, or `--templates`) overrides ours, and
an additional folder adds a framework. Changed files are read again, so an edit applies from the next request on; an
invalid file fails the request with its name, and nothing is created.

Placeholders are filled in after the YAML was parsed, so no value can change the structure of the object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from trainmaster.api.meta import Object

SYSTEM_FILE = "system-configmap.yaml"
TRAINJOB_FILE = "trainjob.yaml"
_PLACEHOLDER = re.compile(r"\$\{(text:)?([a-z_]+)\}")
_FOLDER = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

Value = str | int | None


class TemplateError(Exception):
    """A template is invalid; the text is for the administrator."""


@dataclass(frozen=True, slots=True)
class Template:
    framework: str
    system: Object
    """The ConfigMap with the script that sets up the environment."""
    trainjob: Object


class Templates:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._shipped = Path(str(resources.files("trainmaster").joinpath("manifests")))
        self._parsed: dict[Path, tuple[tuple[int, int], Object]] = {}

    def list_frameworks(self) -> list[str]:
        roots = [self._shipped, *([] if self._directory is None else [self._directory])]
        found = {entry.name for root in roots if root.is_dir() for entry in os.scandir(root) if entry.is_dir()}
        return sorted(name for name in found if _FOLDER.fullmatch(name) and self._find(name, TRAINJOB_FILE))

    def find(self, framework: str) -> Template | None:
        """None for an unknown framework; raises TemplateError if its files are invalid."""
        if not _FOLDER.fullmatch(framework):
            return None
        trainjob, system = self._find(framework, TRAINJOB_FILE), self._find(framework, SYSTEM_FILE)
        if trainjob is None:
            return None
        if system is None:
            raise TemplateError(f"the framework {framework} has no {SYSTEM_FILE} beside {trainjob}")
        return Template(framework, self._load(system, "ConfigMap"), self._load(trainjob, "TrainJob"))

    def _find(self, framework: str, file: str) -> Path | None:
        own = [] if self._directory is None else [self._directory / framework / file]
        return next((path for path in (*own, self._shipped / framework / file) if path.is_file()), None)

    def _load(self, path: Path, kind: str) -> Object:
        import yaml  # noqa: PLC0415  # costs 20 ms, and only an installation that makes jobs parses anything

        try:
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            known = self._parsed.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            parsed: Object = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise TemplateError(f"the template {path} cannot be read: {error}") from None
        name = parsed.get("metadata") if isinstance(parsed, dict) and parsed.get("kind") == kind else None
        if not isinstance(name, dict) or not name.get("name"):
            raise TemplateError(f"the template {path} is not a {kind} with a name")
        self._parsed[path] = (stamp, parsed)
        return parsed


def fill(template: Any, values: Mapping[str, Value]) -> Any:
    """A copy with the placeholders replaced. A field whose placeholder has no value is omitted."""
    if isinstance(template, dict):
        filled = {key: fill(value, values) for key, value in template.items()}
        return {key: value for key, value in filled.items() if value is not _NOTHING}
    if isinstance(template, list):
        return [item for item in (fill(value, values) for value in template) if item is not _NOTHING]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None:
        value = _look_up(whole[2], values)
        return _NOTHING if value is None else str(value) if whole[1] else value
    return _PLACEHOLDER.sub(lambda match: str(_look_up(match[2], values) or ""), template)


class _Nothing:
    """Marks a field to omit."""


_NOTHING = _Nothing()


def _look_up(name: str, values: Mapping[str, Value]) -> Value:
    if name not in values:
        raise TemplateError(f"a template has a placeholder ${{{name}}}; there are {', '.join(sorted(values))}")
    return values[name]
