"""Environments with packages: created once over another one, keyed by a hash of the requirements, per namespace and
user.

The server downloads wheels with the credentials of the index, without running any of their code (`fetching`). They are
installed in the sandbox of the first Pod that asks: as its user, with its limits, without network access. In the
owner's namespaces, packages without a wheel and those given by a path or URL are built there too, with the Pod's
network access.

    <root>/namespaces/<uid of the namespace>/<user>/<hash>/env      the environment; the sandbox may write here
                                                          /ready    written by the server when the sandbox is gone

So everything in `env` was written with the rights of the Pods that use it, and is never read, imported, followed or
executed with other rights: not by the server, not by a warm zygote. Without `ready` it is created again, so a crash
costs only time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.backoff import BackoffPolicy
from trainmaster.kit.clock import Clock
from trainmaster.node.disk.usage import measure_tree
from trainmaster.node.images import index
from trainmaster.node.images.contract import Errand, ErrandReport, Errands, ImageError
from trainmaster.node.images.failures import is_lasting
from trainmaster.node.images.fetching import FOLDER, Fetch, Fetched, fetch
from trainmaster.node.images.installers import find_pip
from trainmaster.node.images.layers import Base, BaseError, make_layer, read_base
from trainmaster.node.images.requirements import Split, list_direct_paths, split_requirements
from trainmaster.shim.protocol import OVERLAY, Mount
from trainmaster.shim.trees import remove_tree

log = logging.getLogger(__name__)

NAMESPACES = "namespaces"
_READY = "ready"
_OLD_READY = ".ready"
"""Inside environments of a version that created them all in one place."""
_AT_A_TIME = 3
"""For the owner, and for all tenants together: an installation keeps a processor and the disk busy."""
_RETRY = BackoffPolicy(first=5.0, cap=300.0)
_MOST_REMEMBERED = 1000
_INSTALL_PROGRAM = str(Path(__file__).with_name("install_program.py"))
_PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")

Tell = Callable[[str], None]
"""Receives a progress message."""


@dataclass(frozen=True, slots=True)
class InstallLimits:
    seconds: float = 1800.0
    space: int = 16384 << 20
    """Bytes that one installation may use, including downloads."""
    host_paths: bool = True


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """What a container requires, and for whom."""

    pod: Pod
    container: str
    namespace_uid: str
    is_tenants: bool
    user: int | None
    """The user that it runs as; None: the server's."""
    requirements: tuple[str, ...]
    shown: tuple[str, ...] = ()
    """Paths of the environment below that a sandbox must see."""

    @property
    def requirements_text(self) -> str:
        return ", ".join(self.requirements)


@dataclass(slots=True)
class _Failure:
    count: int
    until: float
    text: str
    lasts: bool


@dataclass(slots=True)
class _Turns:
    """Limits concurrent installations: one per namespace, and a few in total."""

    owner: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_A_TIME))
    tenants: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_A_TIME))
    spaces: dict[str, asyncio.Lock] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def take(self, order: InstallRequest) -> AsyncIterator[None]:
        async with (
            self.spaces.setdefault(order.namespace_uid, asyncio.Lock()),
            self.tenants if order.is_tenants else self.owner,
        ):
            yield


class Environments:
    def __init__(
        self, root: Path, environ: Mapping[str, str], clock: Clock, errands: Errands, limits: InstallLimits
    ) -> None:
        self._root = root
        self._environ = environ
        self._clock = clock
        self._errands = errands
        self._limits = limits
        self._secrets = index.list_secrets(environ)
        self._turns = _Turns()
        self._failures: dict[Path, _Failure] = {}

    async def ensure(self, base: Base, order: InstallRequest, tell: Tell) -> Path:
        """The directory that contains `env`. Raises ImageError if it cannot be created, and for a while after a
        failure."""
        user = "server" if order.user is None else str(order.user)
        slot = self._root / NAMESPACES / order.namespace_uid / user / hash_packages(base, order.requirements)
        if (slot / _READY).exists():
            return slot
        self._refuse_again(slot)
        tell(f"installing {order.requirements_text}")
        async with self._turns.take(order):
            if not (slot / _READY).exists():
                self._refuse_again(slot)
                await self._try(slot, base, order)
        return slot

    def find_old(self, base: Base, requirements: Sequence[str]) -> str:
        """The prefix of an environment that an earlier version created for everybody, for the owner to keep using; ""
        for none."""
        directory = self._root / hash_packages(base, requirements)
        return str(directory) if (directory / _OLD_READY).exists() else ""

    async def keep_only(self, uids: set[str]) -> None:
        """Removes environments of deleted namespaces."""
        folder = self._root / NAMESPACES
        found = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
        for uid in found - uids:
            await self.remove(uid)

    async def remove(self, uid: str) -> None:
        """Removes everything created for a namespace."""
        self._turns.spaces.pop(uid, None)
        await asyncio.to_thread(remove_tree, self._root / NAMESPACES / uid)

    def _refuse_again(self, slot: Path) -> None:
        known = self._failures.get(slot)
        if known is not None and self._clock.boot() < known.until:
            raise ImageError(known.text, lasts=known.lasts)

    async def _try(self, slot: Path, base: Base, order: InstallRequest) -> None:
        try:
            await self._make(slot, base, order)
        except (ImageError, OSError) as error:
            await asyncio.to_thread(remove_tree, slot)
            lasts = isinstance(error, ImageError) and error.lasts
            # What lasts ends the Pods that ask, so the next one belongs to a user who may have corrected something.
            count = self._failures[slot].count + 1 if slot in self._failures and not lasts else 1
            text = f"cannot install {order.requirements_text}: {index.redact(str(error), self._secrets)}"
            self._failures.pop(slot, None)
            self._failures[slot] = _Failure(count, self._clock.boot() + _RETRY.delay(count), text, lasts)
            while len(self._failures) > _MOST_REMEMBERED:
                self._failures.pop(next(iter(self._failures)))
            raise ImageError(text, lasts=lasts) from None
        except BaseException:
            await asyncio.to_thread(remove_tree, slot)
            raise
        self._failures.pop(slot, None)

    async def _make(self, slot: Path, base: Base, order: InstallRequest) -> None:
        log.info("making an environment", extra={"action": "images.making", "directory": str(slot)})
        parts = split_requirements(order.requirements)
        await asyncio.to_thread(self._begin, slot, base)
        pip = find_pip(base)
        fetched = await self._fetch(slot, parts, pip, sources=not order.is_tenants)
        await asyncio.to_thread(remove_tree, slot / FOLDER)
        is_hopeless = fetched.lasts and not fetched.has_sources and not parts.direct
        if fetched.error and (order.is_tenants or is_hopeless):
            hint = "; in a tenant's namespace only wheels are installed" if fetched.has_sources else ""
            raise ImageError(index.pick_reason(fetched.error, self._secrets) + hint, lasts=fetched.lasts)
        await asyncio.to_thread(_hand_over, slot, order.user)
        errand = self._build_errand(slot, order, parts, fetched, pip)
        report = await self._errands.run(order.pod, errand, lambda: self._check(slot))
        if report.code != 0:
            lasts = is_lasting(report.output) and (fetched.lasts or not fetched.error)
            raise ImageError(self._explain(report, fetched), lasts=lasts)
        for name in ("wheels", "work", "blank"):
            await asyncio.to_thread(remove_tree, slot / name)
        (slot / _READY).touch()

    def _begin(self, slot: Path, base: Base) -> None:
        remove_tree(slot)
        # Not accessible for other users of this machine.
        os.makedirs(self._root / NAMESPACES, mode=0o700, exist_ok=True)
        os.makedirs(slot, mode=0o755)
        make_layer(str(slot / "env"), base)
        os.makedirs(slot / "wheels", mode=0o755)
        os.makedirs(slot / "work", mode=0o700)
        os.makedirs(slot / "blank", mode=0o755)
        (slot / "blank" / "nothing").touch()

    async def _fetch(self, slot: Path, parts: Split, pip: str, *, sources: bool) -> Fetched:
        environ = index.build_fetch_environ(self._environ)
        python = str(slot / "env" / "bin" / "python3")
        limits = self._limits
        return await fetch(Fetch(python, pip, parts.plain, sources, slot, environ, limits.space, limits.seconds))

    async def _check(self, slot: Path) -> str:
        usage = await asyncio.to_thread(measure_tree, str(slot), enough=self._limits.space)
        if usage.bytes > self._limits.space:
            return f"it needs more than {self._limits.space >> 20} MiB (setting node.packages_mib)"
        return ""

    def _build_errand(self, slot: Path, order: InstallRequest, parts: Split, fetched: Fetched, pip: str) -> Errand:
        steps: list[list[str]] = []
        wheels = ["--find-links", str(slot / "wheels")]
        if fetched.pins:
            steps.append(["--no-index", "--no-deps", *wheels, "--", *fetched.pins])
        # Only the owner gets here without a wheel; it is built, and finds its build requirements itself. The others
        # are named again, so that what is built does not replace them with versions that nobody asked for.
        is_complete = not (fetched.error or fetched.sources or parts.direct)
        open_ended = [] if is_complete else [*parts.plain, *parts.direct]
        if open_ended:
            steps.append([*wheels, "--", *open_ended])
        asked = {"pip": pip, "steps": steps, "programs": str(slot / "env" / "bin")}
        sources = {**self._environ, **fetched.options} if open_ended else {}
        return Errand(
            container=order.container,
            name=f"install-{order.namespace_uid[:13]}-{slot.parent.name}-{slot.name}",
            argv=(str(slot / "env" / "bin" / "python3"), "-I", _INSTALL_PROGRAM, json.dumps(asked)),
            env=self._build_environ(slot, sources),
            directory=str(slot / "work"),
            mounts=self._build_mounts(slot, order, parts, [*filter(None, [pip]), *index.list_local_places(sources)]),
            seconds=self._limits.seconds,
            hide=self._list_hidden(),
            egress=bool(open_ended),
        )

    def _build_environ(self, slot: Path, sources: Mapping[str, str]) -> dict[str, str]:
        work = str(slot / "work")
        path = f"{slot}/env/bin:/usr/local/bin:/usr/bin:/bin"
        own = {"PATH": path, "HOME": work, "TMPDIR": work, "LANG": "C.UTF-8", "PIP_CONFIG_FILE": os.devnull}
        return {**index.build_sandbox_environ(sources), **own}

    def _build_mounts(
        self, slot: Path, order: InstallRequest, parts: Split, places: Iterable[str]
    ) -> tuple[Mount, ...]:
        seen = [*order.shown, _INSTALL_PROGRAM, str(slot / "wheels")]
        seen += [place for place in places if os.path.exists(place)]
        mounts = [Mount(path, path, read_only=True) for path in dict.fromkeys(seen) if not path.startswith("/usr/")]
        mounts += [Mount(path, path) for path in (str(slot / "env"), str(slot / "work"))]
        mounts += [
            Mount(path, str(slot / "blank" / "nothing"), read_only=True) for path in _PIP_FILES if os.path.exists(path)
        ]
        for path in list_direct_paths(parts.direct):
            if not self._limits.host_paths:
                raise ImageError(f"{path} is a path of the machine (setting node.host_paths)", lasts=True)
            if not os.path.exists(path):
                raise ImageError(f"there is no {path} on this machine", lasts=True)
            mounts.append(Mount(path, path, OVERLAY) if os.path.isdir(path) else Mount(path, path, read_only=True))
        return tuple(mounts)

    def _list_hidden(self) -> tuple[str, ...]:
        """The home of the server's user, which contains .netrc, pip.conf and keyrings."""
        home = self._environ.get("HOME", "")
        return (home,) if home.startswith("/") and home != "/" and os.path.isdir(home) else ()

    def _explain(self, report: ErrandReport, fetched: Fetched) -> str:
        reason = index.pick_reason(report.output, self._secrets) or f"the installer ended with {report.code}"
        first = index.pick_reason(fetched.error, self._secrets)
        if fetched.sources:
            first = f"the newest version of {', '.join(fetched.sources)} has no wheel"
        if first and index.has_credentials({**self._environ, **fetched.options}):
            return (
                f"{first}; building it failed too: {reason}; the credentials of the index do not enter the sandbox, so "
                "what has no wheel there must lie in PIP_FIND_LINKS, or a version with a wheel be named"
            )
        return reason


def _hand_over(slot: Path, user: int | None) -> None:
    """Everything in it is new and ours, so there can be no links of others yet."""
    if user is None or os.geteuid() != 0:
        return
    for top in (slot / "env", slot / "work"):
        for folder, _, files in os.walk(top):
            for path in (folder, *(os.path.join(folder, name) for name in files)):
                os.chown(path, user, user, follow_symlinks=False)


def hash_packages(base: Base, packages: Sequence[str]) -> str:
    text = "\0".join((base.prefix, base.version, *sorted(packages)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_environment(prefix: str) -> Base:
    try:
        return read_base(prefix)
    except BaseError as error:
        raise ImageError(str(error)) from None
