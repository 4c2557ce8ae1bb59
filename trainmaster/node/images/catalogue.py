"""From an image's name to the environment that stands in for it, for one container of one Pod.

The rules are read through the Client from an administrator's ConfigMap, parsed when it changed, with the shipped ones
behind them. A Pod may ask for more with annotations: `trainmaster.dev/environment` (a name from the table) and
`trainmaster.dev/packages` (requirements, separated by commas or new lines).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainmaster.api import packages
from trainmaster.api.labels import ENVIRONMENT, JOBSET_UID, PACKAGES
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import Client
from trainmaster.node.images import layers
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.images.editables import find_sources
from trainmaster.node.images.environments import Environments, read_environment
from trainmaster.node.images.layers import Base
from trainmaster.node.images.rules import DEFAULT, KEY, NAME, NAMESPACE, Named, Rule, RulesError, Table, parse_table
from trainmaster.node.images.shipped import MPI_VOLUME, SHIPPED, add_remote_start
from trainmaster.node.workloads import Workloads


@dataclass(frozen=True, slots=True)
class ImageSettings:
    root: Path
    """Where made environments are kept."""
    prefix: str
    """The Python environment of `trainmaster up`."""
    gangs: Path
    """Directories that the Pods of a gang share."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Of the server: where packages come from and which programs there are."""


class Images:
    def __init__(self, client: Client, settings: ImageSettings, workloads: Workloads | None = None) -> None:
        self._client = client
        self._workloads = workloads or Workloads(client)
        self._settings = settings
        self._environments = Environments(settings.root, settings.environ)
        self._bases: dict[str, Base] = {}
        self._shared: dict[str, str] = {}
        self._programs: dict[str, tuple[int, str]] = {}
        self._sources: dict[str, tuple[list[int], tuple[str, ...]]] = {}
        self._parsed: tuple[str, Table] = ("", Table(SHIPPED))

    async def find(self, pod: Object, container: Object) -> Environment:
        """ImageError when there is none."""
        image = container.get("image", "")
        table = await self._read_table()
        rule = table.find(image)
        if rule is None:
            if table.strict:
                raise ImageError(
                    f'no rule maps image "{image}" to a Python environment, and this installation is strict: '
                    f"add one to ConfigMap {NAMESPACE}/{NAME}"
                )
            rule = Rule(image)
        rule = _add_annotations(rule, pod)
        if any(volume["name"] == MPI_VOLUME for volume in pod["spec"].get("volumes") or ()):
            rule = add_remote_start(rule)
        base = await self._find_base(rule, table)
        gang = await self._make_gang(pod) if rule.gang else ""
        return Environment(
            prefix=base.prefix,
            programs=(f"{self._make_shared(base)}/bin", *self._list_programs(base)),
            layer=self._make_shared(base),
            packages=base.packages,
            command=rule.command,
            stand_ins=rule.stand_ins,
            variables=rule.env,
            gang_directory=gang,
            home=rule.home,
            shown=(*rule.shown, *base.list_prefixes()[1:], *find_interpreter(base), *self._list_sources(base)),
            note=_describe(image, rule, base),
        )

    async def _read_table(self) -> Table:
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, NAMESPACE)
        except NotFound:
            return Table(SHIPPED)
        version = found["metadata"]["resourceVersion"]
        if self._parsed[0] != version:
            try:
                table = parse_table((found.get("data") or {}).get(KEY, ""))
            except RulesError as error:
                raise ImageError(f"the image rules in ConfigMap {NAMESPACE}/{NAME} are wrong: {error}") from None
            self._parsed = (version, replace(table, rules=(*table.rules, *SHIPPED)))
        return self._parsed[1]

    async def _find_base(self, rule: Rule, table: Table) -> Base:
        named = (
            Named(self._settings.prefix) if rule.environment == DEFAULT else table.environments.get(rule.environment)
        )
        if named is None:
            known = ", ".join((DEFAULT, *table.environments))
            raise ImageError(f"there is no environment {rule.environment!r}: the image rules know {known}")
        base = self._read_base(named.path or self._settings.prefix)
        for wanted in (named.packages, rule.packages):
            if wanted:
                base = self._read_base(await self._environments.ensure(base, wanted))
        return base

    def _read_base(self, prefix: str) -> Base:
        if prefix not in self._bases:
            self._bases[prefix] = read_environment(prefix)
        return self._bases[prefix]

    def _make_shared(self, base: Base) -> str:
        if base.prefix not in self._shared:
            self._shared[base.prefix] = layers.make_shared(self._settings.root, base)
        return self._shared[base.prefix]

    def _list_programs(self, base: Base) -> list[str]:
        return [place for prefix in base.list_prefixes() for place in (self._make_programs(prefix), f"{prefix}/bin")]

    def _make_programs(self, prefix: str) -> str:
        """Made again after somebody installed into the environment."""
        stamp = os.stat(f"{prefix}/bin").st_mtime_ns
        known = self._programs.get(prefix)
        if known is None or known[0] != stamp:
            known = (stamp, layers.make_programs(self._settings.root, prefix))
            self._programs[prefix] = known
        return known[1]

    def _list_sources(self, base: Base) -> tuple[str, ...]:
        """Looked for again after somebody installed something."""
        stamps = [os.stat(place).st_mtime_ns for place in base.packages if os.path.isdir(place)]
        known = self._sources.get(base.prefix)
        if known is None or known[0] != stamps:
            known = (stamps, find_sources(base.packages))
            self._sources[base.prefix] = known
        return known[1]

    async def _make_gang(self, pod: Object) -> str:
        """Of the JobSet that the Pod really belongs to: its labels may name somebody else's."""
        workload = await self._workloads.resolve(pod)
        directory = self._settings.gangs / (workload.gang or pod["metadata"]["uid"])
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(directory)

    def find_gang(self, pod: Object) -> Path | None:
        """The directory that the Pod's gang shares, by its own word, if it has one. To be asked only who else uses it:
        when the Pod goes, nobody may be left who could vouch for it."""
        meta = pod["metadata"]
        directory = self._settings.gangs / ((meta.get("labels") or {}).get(JOBSET_UID) or meta["uid"])
        return directory if directory.is_dir() else None


def _add_annotations(rule: Rule, pod: Object) -> Rule:
    annotations = pod["metadata"].get("annotations") or {}
    if name := annotations.get(ENVIRONMENT):
        rule = replace(rule, environment=name)
    if text := annotations.get(PACKAGES):
        asked = tuple(packages.split(text))
        bad = [entry for entry in asked if entry.startswith("-")]
        if bad:
            raise ImageError(f"annotation {PACKAGES} lists requirements, not options: {', '.join(bad)}")
        rule = replace(rule, packages=(*rule.packages, *asked))
    return rule


def find_interpreter(base: Base) -> tuple[str, ...]:
    """The installation of Python below an environment, where others than its owner cannot reach it: a container with a
    user of its own would find a link to nowhere."""
    prefix = Path(base.interpreter).parent.parent
    is_open = all(folder.stat().st_mode & 0o001 for folder in (prefix, *prefix.parents))
    return () if is_open else (str(prefix),)


def _describe(image: str, rule: Rule, base: Base) -> str:
    words = f"image {image} is run as the Python environment {base.prefix}"
    if rule.packages:
        words += f" (made with {', '.join(rule.packages)})"
    return f"{words}; {rule.note}" if rule.note else words
