"""Finds the environment that replaces an image, for one container of a Pod.

The rules are read through the Client from an administrator's ConfigMap and parsed when it changes, followed by the
shipped ones. A Pod may request more with annotations: `trainmaster.dev/environment` (a name from the table) and
`trainmaster.dev/packages` (requirements, separated by commas or new lines).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.api.formats import packages
from trainmaster.api.image_rules import KEY, NAME, NAMESPACE
from trainmaster.api.labels import ENVIRONMENT, PACKAGES
from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields, read_text
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES
from trainmaster.api.status import NotFound
from trainmaster.api.tenancy import is_tenant
from trainmaster.api.v1jobs import mpijobs
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock
from trainmaster.node.gangs import GangDirectories
from trainmaster.node.images import layers
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.images.editables import list_sources
from trainmaster.node.images.environments import Environments, InstallRequest, Tell, read_environment
from trainmaster.node.images.layers import Base
from trainmaster.node.images.rules import (
    DEFAULT,
    ImageRule,
    Named,
    RulesError,
    Table,
    parse_table,
)
from trainmaster.node.images.shipped import (
    MPI_VOLUME,
    SHIPPED,
    add_mpijob,
    add_program,
    add_remote_start,
)
from trainmaster.node.workloads import Workloads


def _say_nothing(_: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class ImageSettings:
    root: Path
    """Where created environments are stored."""
    prefix: str
    """The Python environment of `trainmaster up`."""
    gangs: Path
    """Directories that the Pods of a gang share."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The environment of a rule: an existing one of the owner's, and what was installed over it for a namespace."""

    below: Base
    made: Path | None = None

    @property
    def prefix(self) -> str:
        return self.below.prefix if self.made is None else f"{self.made}/env"

    @property
    def base(self) -> Base:
        """Nothing in a created environment is read, because others than the server wrote it."""
        if self.made is None:
            return self.below
        own = f"{self.prefix}/lib/python{self.below.version}/site-packages"
        return replace(self.below, prefix=self.prefix, packages=(own, *self.below.packages))


class Images:
    def __init__(
        self,
        client: Client,
        settings: ImageSettings,
        workloads: Workloads | None = None,
        environments: Environments | None = None,
    ) -> None:
        """Without `environments` nothing can be installed."""
        self._client = client
        self.gangs = GangDirectories(settings.gangs, client, workloads or Workloads(client))
        self._settings = settings
        self._environments = environments
        self._bases: dict[str, Base] = {}
        self._shared: dict[str, str] = {}
        self._programs: dict[str, tuple[int, str]] = {}
        self._sources: dict[str, tuple[list[int], tuple[str, ...]]] = {}
        self._parsed: tuple[str, Table] = ("", Table(SHIPPED))

    async def find(self, pod: Pod, container: Fields, tell: Tell = _say_nothing) -> Environment:
        """Raises ImageError if there is none. `tell` is called when an installation starts, which takes time."""
        image = container.get("image", "")
        table = await self._read_table()
        rule = table.find(image)
        if rule is None:
            if table.strict:
                raise ImageError(
                    f'no rule maps image "{image}" to a Python environment, and this installation is strict: '
                    f"add one to ConfigMap {NAMESPACE}/{NAME}"
                )
            rule = ImageRule(image)
        rule, asked = _add_annotations(add_program(rule, image), pod)
        volumes = {volume["name"] for volume in pod.volumes}
        is_launcher = False
        if MPI_VOLUME in volumes:
            rule = add_remote_start(rule)
        elif mpijobs.CONFIG in volumes:
            rule = add_mpijob(rule)
            is_launcher = await self.gangs.is_launcher(pod)
        found = await self._get_environment(rule, asked, table, pod, container, tell)
        gang = await self.gangs.make(pod) if rule.gang or is_launcher else ""
        return replace(
            self._build_environment(found),
            command=rule.command,
            default_args=rule.default_args,
            stand_ins=rule.stand_ins,
            variables=rule.env,
            gang_directory=gang,
            gang_read_only=is_launcher,
            home=rule.home,
            shown=(*rule.shown, *self._list_shown(found.below)),
            note=_describe(image, (*rule.packages, *asked), rule, found.prefix),
        )

    def get_existing(self, prefix: str) -> Environment:
        """An environment by its directory; "" is that of the server. Raises ImageError if there is none."""
        return self._build_environment(_Found(self._read_base(prefix or self._settings.prefix)))

    def _build_environment(self, found: _Found) -> Environment:
        layer = self._make_shared(found)
        own = () if found.made is None else (f"{found.prefix}/bin",)
        return Environment(
            prefix=found.prefix,
            programs=(f"{layer}/bin", *own, *self._list_programs(found.below)),
            layer=layer,
            packages=(*found.base.packages, *self._list_sources(found.below)),
            made=found.made is not None,
        )

    def _list_shown(self, below: Base) -> tuple[str, ...]:
        return (*self._list_prefixes(below), *list_interpreter_paths(below), *self._list_sources(below))

    def _list_prefixes(self, base: Base) -> list[str]:
        """Including environments that a `.pth` file refers to."""
        return list(dict.fromkeys((*base.list_prefixes(), *layers.list_prefixes(self._list_sources(base)))))

    async def follow(self, clock: Clock) -> None:
        """Runs forever: removes what was installed for a namespace when the namespace is deleted."""
        if self._environments is None:
            await asyncio.Event().wait()
            return
        environments = self._environments

        async def begin(items: list[Object]) -> None:
            await environments.keep_only({item["metadata"]["uid"] for item in items})

        async def change(event: WatchEvent) -> None:
            if event.type == "DELETED":
                await environments.remove(event.object["metadata"]["uid"])

        await follow(self._client, clock, NAMESPACES, begin, change)

    async def _read_table(self) -> Table:
        try:
            found = await self._client.get(CONFIG_MAPS, NAME, NAMESPACE)
        except NotFound:
            return Table(SHIPPED)
        version = found["metadata"]["resourceVersion"]
        if self._parsed[0] != version:
            try:
                table = parse_table(read_fields(found, "data").get(KEY, ""))
            except RulesError as error:
                raise ImageError(f"the image rules in ConfigMap {NAMESPACE}/{NAME} are wrong: {error}") from None
            self._parsed = (version, replace(table, rules=(*table.rules, *SHIPPED)))
        return self._parsed[1]

    async def _get_environment(
        self, rule: ImageRule, asked: Sequence[str], table: Table, pod: Pod, container: Fields, tell: Tell
    ) -> _Found:
        named = (
            Named(self._settings.prefix) if rule.environment == DEFAULT else table.environments.get(rule.environment)
        )
        if named is None:
            known = ", ".join((DEFAULT, *table.environments))
            raise ImageError(f"there is no environment {rule.environment!r}: the image rules know {known}")
        base = self._read_base(named.path or self._settings.prefix)
        wanted = (*named.packages, *rule.packages, *asked)
        if not wanted:
            return _Found(base)
        if self._environments is None:
            raise ImageError("packages cannot be installed here")
        space = await self._client.get(NAMESPACES, pod.namespace)
        if is_tenant(space):
            bad = [f"{entry} {why}" for entry in asked if (why := packages.find_problem(entry))]
            if bad:
                raise ImageError(f"annotation {PACKAGES}: {'; '.join(bad)}", lasts=True)
        elif old := self._find_old(base, (named.packages, (*rule.packages, *asked))):
            return _Found(old)
        seen = [base.prefix, *self._list_shown(base), str(Path(base.interpreter).parent.parent)]
        order = InstallRequest(
            pod=pod,
            container=container["name"],
            namespace_uid=space["metadata"]["uid"],
            is_tenants=is_tenant(space),
            user=_find_user(pod, container),
            requirements=wanted,
            shown=tuple(dict.fromkeys(seen)),
        )
        return _Found(base, await self._environments.ensure(base, order, tell))

    def _find_old(self, base: Base, steps: Sequence[Sequence[str]]) -> Base | None:
        """An environment created by an earlier version, which stacked them."""
        assert self._environments is not None
        for wanted in filter(None, steps):
            prefix = self._environments.find_old(base, wanted)
            if not prefix:
                return None
            base = self._read_base(prefix)
        return base

    def _read_base(self, prefix: str) -> Base:
        if prefix not in self._bases:
            self._bases[prefix] = read_environment(prefix)
        return self._bases[prefix]

    def _make_shared(self, found: _Found) -> str:
        if found.made is not None:
            # It is removed together with the environment below it.
            return layers.make_shared(found.made, found.base, found.below)
        if found.prefix not in self._shared:
            self._shared[found.prefix] = layers.make_shared(self._settings.root, found.base, found.below)
        return self._shared[found.prefix]

    def _list_programs(self, base: Base) -> list[str]:
        return [
            place for prefix in self._list_prefixes(base) for place in (self._make_programs(prefix), f"{prefix}/bin")
        ]

    def _make_programs(self, prefix: str) -> str:
        """Created again after something was installed into the environment."""
        stamp = os.stat(f"{prefix}/bin").st_mtime_ns
        known = self._programs.get(prefix)
        if known is None or known[0] != stamp:
            known = (stamp, layers.make_programs(self._settings.root, prefix))
            self._programs[prefix] = known
        return known[1]

    def _list_sources(self, base: Base) -> tuple[str, ...]:
        """Searched again after something was installed."""
        stamps = [os.stat(place).st_mtime_ns for place in base.packages if os.path.isdir(place)]
        known = self._sources.get(base.prefix)
        if known is None or known[0] != stamps:
            known = (stamps, list_sources(base.packages))
            self._sources[base.prefix] = known
        return known[1]


def _add_annotations(rule: ImageRule, pod: Pod) -> tuple[ImageRule, tuple[str, ...]]:
    """The rule, and the requirements from the Pod's annotations."""
    if name := pod.annotations.get(ENVIRONMENT):
        rule = replace(rule, environment=name)
    asked = tuple(packages.split(read_text(pod.annotations, PACKAGES)))
    bad = [entry for entry in asked if entry.startswith("-")]
    if bad:
        raise ImageError(f"annotation {PACKAGES} lists requirements, not options: {', '.join(bad)}", lasts=True)
    return rule, asked


def _find_user(pod: Pod, container: Fields) -> int | None:
    shared = pod.security_context.get("runAsUser")
    user: int | None = read_fields(container, "securityContext").get("runAsUser", shared)
    return user


def list_interpreter_paths(base: Base) -> tuple[str, ...]:
    """The Python installation below an environment, if only its owner can access it: a container with its own user
    would find a dangling link."""
    prefix = Path(base.interpreter).parent.parent
    is_open = all(folder.stat().st_mode & 0o001 for folder in (prefix, *prefix.parents))
    return () if is_open else (str(prefix),)


def _describe(image: str, installed: Sequence[str], rule: ImageRule, prefix: str) -> str:
    words = f"image {image} is run as the Python environment {prefix}"
    if installed:
        words += f" (made with {', '.join(installed)})"
    return f"{words}; {rule.note}" if rule.note else words
