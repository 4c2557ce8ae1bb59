"""The rule table: which Python environment stands in for which image. Pure: text in, rules or complaints out.

An administrator edits the ConfigMap `image-rules` in `kubeflow-system`; its key `rules.yaml` holds

    strict: false                        # true: an image without a rule does not start
    environments:                        # names that rules and Pods may use
      science: {path: /opt/science}      # one that exists
      tables: {packages: [pandas==2.2]}  # one that is made over the default one, once, and kept
    rules:                               # the first that matches wins; the shipped ones come after these
      - image: "example.com/team/*"
        environment: science
        packages: [tqdm]
        command: [python, -m, app]       # for containers without a command
        env: {MODE: fast}

A mistake anywhere makes the table invalid as a whole; Pods then wait and say why, because running them by half a table
would be a guess.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.api.image_rules import KEY

DEFAULT = "default"
"""The environment of `trainmaster up`."""


class RulesError(Exception):
    """The table is invalid; the text lists every mistake with its location."""


@dataclass(frozen=True, slots=True)
class Named:
    """An environment with a name."""

    path: str = ""
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageRule:
    image: str
    environment: str = DEFAULT
    packages: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    default_args: tuple[str, ...] = ()
    """Only in shipped rules."""
    stand_ins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Only in shipped rules."""
    gang: bool = False
    home: str = ""
    shown: tuple[str, ...] = ()
    """Files of this machine that the program needs; only in shipped rules."""
    note: str = ""

    def matches(self, image: str) -> bool:
        return any(fnmatch.fnmatchcase(name, self.image) for name in list_names(image))


@dataclass(frozen=True, slots=True)
class Table:
    rules: tuple[ImageRule, ...] = ()
    environments: Mapping[str, Named] = field(default_factory=dict)
    strict: bool = False

    def find(self, image: str) -> ImageRule | None:
        return next((rule for rule in self.rules if rule.matches(image)), None)


def list_names(image: str) -> list[str]:
    """The names under which a rule may match an image: as written, with the tag, with the default registry."""
    name = image.partition("@")[0]
    names = [image, name]
    if ":" not in name.rsplit("/", 1)[-1]:
        names.append(f"{name}:latest")
    first, slash, _ = name.partition("/")
    if not slash:
        names.append(f"docker.io/library/{name}")
    elif "." not in first and ":" not in first and first != "localhost":
        names.append(f"docker.io/{name}")
    return list(dict.fromkeys(names))


def parse_table(text: str) -> Table:
    import yaml  # noqa: PLC0415  # costs 20 ms, and only those who have a table of their own need it

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RulesError(f"{KEY} is not valid YAML: {error}") from None
    if content is None:
        return Table()
    if not isinstance(content, dict):
        raise RulesError(f"{KEY} must be a mapping with strict, environments and rules")
    complaints: list[str] = _list_unknown(content, {"strict", "environments", "rules"}, KEY)
    strict = content.get("strict", False)
    if not isinstance(strict, bool):
        complaints.append("strict must be true or false")
    environments = _parse_environments(content.get("environments") or {}, complaints)
    rules = _parse_rules(content.get("rules") or [], environments, complaints)
    if complaints:
        raise RulesError("; ".join(complaints))
    return Table(tuple(rules), environments, strict)


def _parse_environments(raw: object, complaints: list[str]) -> dict[str, Named]:
    if not isinstance(raw, dict):
        complaints.append("environments must be a mapping from names to environments")
        return {}
    found = {}
    for name, entry in raw.items():
        where = f"environments.{name}"
        if name == DEFAULT:
            complaints.append(f"{where}: the name {DEFAULT} means the environment of `trainmaster up`")
        elif not isinstance(entry, dict):
            complaints.append(f"{where} must have a path or packages")
        else:
            complaints += _list_unknown(entry, {"path", "packages"}, where)
            path = entry.get("path", "")
            if not isinstance(path, str) or (path and not path.startswith("/")):
                complaints.append(f"{where}.path must be an absolute path")
            elif not path and not entry.get("packages"):
                complaints.append(f"{where} must have a path or packages")
            found[str(name)] = Named(str(path), _parse_texts(entry.get("packages"), f"{where}.packages", complaints))
    return found


def _parse_rules(raw: object, environments: Mapping[str, Named], complaints: list[str]) -> list[ImageRule]:
    if not isinstance(raw, list):
        complaints.append("rules must be a list")
        return []
    rules = []
    for index, entry in enumerate(raw):
        where = f"rules[{index}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str) or not entry["image"]:
            complaints.append(f"{where} needs image, a pattern such as example.com/team/*")
            continue
        complaints += _list_unknown(entry, {"image", "environment", "packages", "command", "env"}, where)
        environment = entry.get("environment", DEFAULT)
        if environment != DEFAULT and environment not in environments:
            known = ", ".join((DEFAULT, *environments))
            complaints.append(f"{where}.environment: there is no environment {environment!r} (there are {known})")
        env = entry.get("env") or {}
        if not isinstance(env, dict) or not all(isinstance(text, str) for pair in env.items() for text in pair):
            complaints.append(f"{where}.env must map names to texts (quote numbers)")
            env = {}
        packages = _parse_texts(entry.get("packages"), f"{where}.packages", complaints)
        command = _parse_texts(entry.get("command"), f"{where}.command", complaints)
        rules.append(ImageRule(entry["image"], str(environment), packages, command, env))
    return rules


def _parse_texts(raw: object, where: str, complaints: list[str]) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(text, str) and text for text in raw):
        complaints.append(f"{where} must be a list of texts")
        return ()
    return tuple(raw)


def _list_unknown(entry: Iterable[object], known: set[str], where: str) -> list[str]:
    return [f"{where}: there is no field {name!r}" for name in entry if name not in known]
