"""The launcher: reads what a Pod needs from the API, creates its volumes and environments, and keeps them up to date.

The agent calls `prepare` before the first start and after a restart of the control plane (with the same result),
`update` when the Pod object changed, and `release` when the Pod is deleted. While `running`, ConfigMaps and Secrets
shown in volumes are followed, and tokens are renewed before they expire. All state can be rebuilt.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from trainmaster.api.meta import GVR, Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.bundles import views
from trainmaster.bundles.store import BundleStore
from trainmaster.client.contract import Client, WatchEvent
from trainmaster.client.follow import follow
from trainmaster.engine.queue import WorkQueue
from trainmaster.jobs.models.objects import ObjectModel
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.clock import Clock
from trainmaster.kit.scopes import Scope
from trainmaster.node.disk.eviction import show
from trainmaster.node.disk.usage import DiskUsage
from trainmaster.node.images.catalogue import Images
from trainmaster.node.images.contract import Environment, ImageError
from trainmaster.node.launch.budgets import find_budget
from trainmaster.node.launch.contract import (
    FAILED_MOUNT,
    IMAGE_ERROR,
    INSTALL_ERROR,
    ContainerSources,
    LaunchError,
    Prepared,
    Site,
)
from trainmaster.node.launch.environment import list_references
from trainmaster.node.launch.limits import build_pod_limits
from trainmaster.node.launch.mounts import get_kubeconfig
from trainmaster.node.launch.references import read_field, read_resource
from trainmaster.node.volumes import claim, code, empty_dir
from trainmaster.node.volumes.contract import Volume, VolumeError
from trainmaster.node.volumes.creation import API_ACCESS, Needs, Supplies, list_needs, list_volumes, make_all
from trainmaster.node.volumes.projected import TokenKey, get_token_key
from trainmaster.node.volumes.reclaim import Reclaimer
from trainmaster.node.volumes.tokens import Token, request_token
from trainmaster.node.volumes.writer import FileOwner
from trainmaster.shim.protocol import PLAIN, write_whole
from trainmaster.shim.trees import remove_tree

log = logging.getLogger(__name__)

Announce = Callable[[str, str], None]
"""(Pod uid, sentence): what delays the start of its containers."""
Exceeded = Callable[[str, str], None]
"""(Pod uid, sentence): an emptyDir exceeds its limit; the Pod must be evicted."""
_TAKE_OVER = (1.0, 0.005)
"""Seconds after a restart of the control plane until volumes of running Pods are updated again: of the first Pod, and
of each further one. Finding the Pods comes first."""
_SIZE_SECONDS = 10.0
"""How often volumes with a sizeLimit are measured, as in the kubelet's eviction manager."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    claims: Path
    """Directories of PersistentVolumes."""
    host_paths: bool = True
    bundles: Path | None = None
    """Code of jobs; None if there is none."""


@dataclass(slots=True)
class _Live:
    pod: Pod
    site: Site
    volumes: list[Fields]
    needs: Needs
    made: Mapping[str, Volume]
    tokens: dict[TokenKey, Token] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodReader:
    """`volumes.downward.FieldReader` for one Pod."""

    pod: Pod
    site: Site
    allocatable: Fields

    def field(self, path: str) -> str:
        return read_field(self.pod, path, self.site)

    def resource(self, source: Fields) -> str:
        return read_resource(self.pod, {}, source, self.allocatable)


class Launcher:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: LaunchSettings,
        images: Images,
        exceeded: Exceeded | None = None,
        usage: DiskUsage | None = None,
        announce: Announce | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._images = images
        self._exceeded = exceeded
        self._announce = announce
        self._usage = usage or DiskUsage(clock)
        self._sized: WorkQueue[str] = WorkQueue(clock)
        """Pods with size-limited volumes to be measured."""
        self._live: dict[str, _Live] = {}
        self._adopted: dict[str, tuple[Pod, Site]] = {}
        """Pods that were running before this process started and are not handled yet."""
        self._users: dict[tuple[GVR, str, str], set[str]] = {}
        """(collection, namespace, name) -> uids of the Pods whose volumes show it."""
        self._followed = asyncio.Event()
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._allocatable = read_allocatable()
        self._scope: Scope | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Launcher]:
        async with Scope("launcher") as scope:
            self._scope = scope
            for gvr in (CONFIG_MAPS, SECRETS):
                scope.spawn_forever(self._follow(gvr), name=f"launcher.{gvr.plural}")
            scope.spawn_forever(self._work(), name="launcher.refresh")
            scope.spawn_forever(self._watch_sizes(), name="launcher.sizes")
            reclaimer = Reclaimer(self._client, self._clock, self._settings.claims)
            scope.spawn_forever(reclaimer.follow(), name="launcher.reclaim")
            scope.spawn_forever(self._images.follow(self._clock), name="launcher.environments")
            yield self

    def get_environment(self, prefix: str) -> Environment:
        """See `Images.get_existing`."""
        return self._images.get_existing(prefix)

    # Before the start

    async def prepare(self, pod: Pod, site: Site) -> Prepared:
        """Raises LaunchError with FailedMount or ErrImagePull if the Pod has to wait, InstallationFailed if it cannot
        run. Missing variables are found later, per container."""
        containers = pod.all_containers
        images = await self._get_images(pod, containers, site)
        volumes = list_volumes(pod, api_access=await self._wants_access(pod))
        live = _Live(pod, site, volumes, list_needs(volumes), {})
        known = self._live.get(pod.uid)
        if known is not None:
            live.tokens = known.tokens
        maps, secrets = list_references(containers)
        namespace = pod.namespace
        sources = ContainerSources(
            await self._read(CONFIG_MAPS, namespace, maps | live.needs.config_maps),
            await self._read(SECRETS, namespace, secrets | live.needs.secrets),
        )
        _make_writable(pod, site, images.values())
        try:
            live.made = await self._make(live, sources)
        except VolumeError as error:
            raise LaunchError(FAILED_MOUNT, str(error)) from None
        self._keep(live)
        _write_kubeconfig(live)
        budget = await find_budget(self._client, namespace)
        socket = await self._images.gangs.find_socket(pod)
        memory = _make_shared_memory(pod, site) if socket and site.level == PLAIN else ""
        return Prepared(
            site,
            sources,
            live.made,
            images,
            self._allocatable,
            gang_socket=socket,
            shared_memory=memory,
            budget=budget,
        )

    def adopt(self, pod: Pod, site: Site) -> None:
        """After a restart of the control plane: resumes updating the volumes of a running Pod."""
        uid = pod.uid
        if uid not in self._live:
            self._adopted[uid] = (pod, site)
            first, further = _TAKE_OVER
            self._queue.add_after(uid, first + further * len(self._adopted))

    async def _get_images(self, pod: Pod, containers: list[Fields], site: Site) -> dict[str, Environment]:
        def tell(sentence: str) -> None:
            if self._announce is not None:
                self._announce(pod.uid, sentence)

        try:
            return {entry["name"]: await self._images.find(pod, entry, tell) for entry in containers}
        except ImageError as error:
            raise LaunchError(INSTALL_ERROR if error.lasts else IMAGE_ERROR, str(error)) from None

    async def _wants_access(self, pod: Pod) -> bool:
        asked = pod.spec.get("automountServiceAccountToken")
        if asked is not None:
            return bool(asked)
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, pod.service_account, pod.namespace)
        except NotFound:
            return False
        return bool(account.get("automountServiceAccountToken", True))

    async def _read(self, gvr: GVR, namespace: str, names: Iterable[str]) -> dict[str, Object | None]:
        found: dict[str, Object | None] = {}
        for name in sorted(names):
            try:
                found[name] = await self._client.get(gvr, name, namespace)
            except NotFound:
                found[name] = None
        return found

    async def _make(self, live: _Live, sources: ContainerSources) -> dict[str, Volume]:
        namespace = live.pod.namespace
        found = {name: await claim.get_volume(self._client, namespace, name) for name in sorted(live.needs.claims)}
        supplies = Supplies(
            directory=live.site.directory,
            claims_root=self._settings.claims,
            config_maps=sources.config_maps,
            secrets=sources.secrets,
            volumes=found,
            tokens=await self._fetch_tokens(live),
            host_paths=self._settings.host_paths,
            private=live.site.level == PLAIN,
            owner=_choose_owner(live.pod, live.site.level),
            several_users=len(_list_users(live.pod)) > 1,
            code=await self._make_code(live),
        )
        read = PodReader(live.pod, live.site, self._allocatable)
        return make_all(live.pod, live.volumes, supplies, read)

    async def _make_code(self, live: _Live) -> dict[str, Volume]:
        users = _list_users(live.pod)
        owner = _choose_owner(live.pod, live.site.level)
        foreign = os.geteuid() == 0 and users != {None}
        asked = code.list_asked(live.pod, live.site.level, foreign=foreign)
        if not asked:
            return {}
        store = BundleStore(self._settings.bundles or Path(live.site.directory, "no-bundles"))
        given = views.CopyOwner(owner.uid, owner.gid, everybody=len(users) > 1)
        made = {}
        for entry in asked:
            made[entry.name] = await asyncio.to_thread(code.make, entry, store, live.site.directory, given)
            if self._scope is not None and entry.name not in live.made:
                self._scope.spawn_guarded(_make_durable(store, entry.digest), name="launcher.durable")
        return made

    async def _fetch_tokens(self, live: _Live) -> dict[TokenKey, str]:
        now = self._clock.now()
        for source in live.needs.tokens:
            key = get_token_key(source)
            known = live.tokens.get(key)
            if known is None or known.is_due(now):
                try:
                    live.tokens[key] = await request_token(self._client, live.pod, source, self._clock)
                except StatusError as error:
                    raise VolumeError(f"failed to fetch token: {error.message}") from None
        return {key: token.text for key, token in live.tokens.items()}

    # While it runs

    def list_claims(self, uid: str) -> tuple[str, ...]:
        """Directories of claims of our own class that the Pod may write to."""
        live = self._live.get(uid)
        below = f"{self._settings.claims}/"
        volumes = () if live is None else live.made.values()
        return tuple(volume.source for volume in volumes if volume.source.startswith(below) and not volume.read_only)

    async def update(self, pod: Pod) -> None:
        """Updates files that show the Pod's labels and annotations."""
        live = self._live.get(pod.uid)
        if live is None:
            return
        before, live.pod = live.pod, pod
        if (before.labels, before.annotations) != (pod.labels, pod.annotations):
            self._queue.add(pod.uid)

    async def refresh(self, uid: str) -> None:
        """Updates the content of volumes. Content that cannot be read any more stays, as with the kubelet."""
        adopted = self._adopted.pop(uid, None)
        if adopted is not None:
            await self._take_over(*adopted)
            return
        live = self._live.get(uid)
        if live is None:
            return
        namespace = live.pod.namespace
        sources = ContainerSources(
            await self._read(CONFIG_MAPS, namespace, live.needs.config_maps),
            await self._read(SECRETS, namespace, live.needs.secrets),
        )
        try:
            await self._make(live, sources)
        except VolumeError as error:
            log.warning("volume not refreshed", extra={"uid": uid, "error": str(error)})
        self._plan_next(uid, live)

    async def _take_over(self, pod: Pod, site: Site) -> None:
        try:
            await self.prepare(pod, site)
        except LaunchError as error:
            # It keeps what it started with.
            log.warning("volumes not followed", extra={"uid": pod.uid, "error": error.message})

    async def release(self, pod: Pod) -> None:
        """Removes everything of the Pod that is not in its directory."""
        uid = pod.uid
        live = self._live.pop(uid, None)
        if live is not None:
            for volume in _list_limited(live):
                self._usage.forget(volume.source)
        self._adopted.pop(uid, None)
        for users in self._users.values():
            users.discard(uid)
        self._users = {key: users for key, users in self._users.items() if users}
        gang = await self._images.gangs.find_unused(pod)
        if gang is not None:
            await asyncio.to_thread(remove_tree, gang)
        await self.drop_memory(uid)

    async def drop_memory(self, uid: str) -> None:
        """Removes in-memory volumes of a finished Pod, which nobody can read any more."""
        if empty_dir.has_memory(uid):
            await asyncio.get_running_loop().run_in_executor(None, empty_dir.remove_memory, uid)

    def _keep(self, live: _Live) -> None:
        uid, namespace = live.pod.uid, live.pod.namespace
        self._live[uid] = live
        for gvr, names in ((CONFIG_MAPS, live.needs.config_maps), (SECRETS, live.needs.secrets)):
            for name in names:
                self._users.setdefault((gvr, namespace, name), set()).add(uid)
        if self._users:
            self._followed.set()
        self._plan_next(uid, live)
        if _list_limited(live):
            self._sized.add_after(uid, _SIZE_SECONDS)

    def _plan_next(self, uid: str, live: _Live) -> None:
        now = self._clock.now()
        for token in live.tokens.values():
            age = (now - token.asked_at).total_seconds()
            self._queue.add_after(uid, max(token.renew_after - age, 1.0))

    async def _watch_sizes(self) -> None:
        """Separate from `_work`: a Pod with many files must not delay volume updates of others."""
        while True:
            uid = await self._sized.get()
            live = self._live.get(uid)
            if live is not None:
                await self._check_sizes(uid, live)
            if uid in self._live:
                self._sized.add_after(uid, _SIZE_SECONDS)
            self._sized.done(uid)

    async def _check_sizes(self, uid: str, live: _Live) -> None:
        if self._exceeded is None:
            return
        held, most = 0, build_pod_limits(live.pod).memory
        for volume in _list_limited(live):
            usage = await self._usage.measure(volume.source, enough=volume.size_limit or most)
            held += usage.bytes if volume.memory else 0
            if volume.size_limit and usage.bytes > volume.size_limit:
                source = next(entry for entry in live.volumes if entry["name"] == volume.name)
                limit = source["emptyDir"]["sizeLimit"]
                self._exceeded(uid, f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". ')
        if most and held > most:
            self._exceeded(uid, f"Usage of EmptyDir volumes of medium Memory exceeds the memory limit {show(most)}. ")

    async def _follow(self, gvr: GVR) -> None:
        await self._followed.wait()

        async def begin(_: list[Object]) -> None:
            for (kind, _namespace, _name), uids in self._users.items():
                if kind == gvr:
                    for uid in uids:
                        self._queue.add(uid)

        async def change(event: WatchEvent) -> None:
            changed = ObjectModel(event.object)
            for uid in self._users.get((gvr, changed.namespace, changed.name), ()):
                self._queue.add(uid)

        await follow(self._client, self._clock, gvr, begin, change)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                await self.refresh(uid)
                self._queue.forget(uid)
            except (StatusError, OSError):
                log.exception("volumes not refreshed", extra={"uid": uid, "retry_seconds": self._queue.retry(uid)})
            finally:
                self._queue.done(uid)


def _list_limited(live: _Live) -> list[Volume]:
    """Volumes with a sizeLimit, and those in memory if the Pod's memory is limited: only control groups count them
    there."""
    is_limited = build_pod_limits(live.pod).memory > 0
    return [
        volume
        for volume in live.made.values()
        if volume.scratch and (volume.size_limit or (volume.memory and is_limited))
    ]


async def _make_durable(store: BundleStore, digest: str) -> None:
    """The packer did not wait for the disk; a job that uses the bundle needs it after a power failure too."""
    try:
        await asyncio.to_thread(store.make_durable, digest)
    except OSError as error:
        log.warning("code not written to disk", extra={"digest": digest, "error": str(error)})


def _write_kubeconfig(live: _Live) -> None:
    """If the service account's files cannot be at their usual path, clients find them through KUBECONFIG."""
    volume = live.made.get(API_ACCESS)
    if live.site.level != PLAIN or live.site.api is None or volume is None:
        return
    host, port = live.site.api
    namespace = live.pod.namespace
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "local",
                "cluster": {"server": f"https://{host}:{port}", "certificate-authority": f"{volume.source}/ca.crt"},
            }
        ],
        "users": [{"name": "pod", "user": {"tokenFile": f"{volume.source}/token"}}],
        "contexts": [{"name": "pod", "context": {"cluster": "local", "user": "pod", "namespace": namespace}}],
        "current-context": "pod",
    }
    write_whole(get_kubeconfig(live.site), orjson.dumps(content))


def _make_writable(pod: Pod, site: Site, images: Iterable[Environment]) -> None:
    """Makes directories writable for all containers, including those that run as other users than the server.

    The directories above keep everybody else out; in a sandbox only the Pod (or its gang) sees them.
    """
    work = f"{site.directory}/work"
    os.makedirs(work, mode=0o700, exist_ok=True)
    if site.level == PLAIN or _list_users(pod) == {None}:
        return
    os.chmod(work, 0o777)
    for image in images:
        if image.gang_directory:
            os.chmod(image.gang_directory, 0o755 if image.gang_read_only else 0o777)


def _make_shared_memory(pod: Pod, site: Site) -> str:
    """Where Open MPI puts the files of one worker. It would give those of two workers on a machine the same names."""
    return empty_dir.make("open-mpi", {"medium": "Memory"}, site.directory, pod.uid).source


def _list_users(pod: Pod) -> set[int | None]:
    shared = pod.security_context.get("runAsUser")
    return {read_fields(entry, "securityContext").get("runAsUser", shared) for entry in pod.all_containers}


def _choose_owner(pod: Pod, level: str) -> FileOwner:
    """The owner of files, if the server can change it."""
    if level == PLAIN or os.geteuid() != 0:
        return FileOwner()
    users = _list_users(pod)
    user = users.pop() if len(users) == 1 else None
    group = pod.security_context.get("fsGroup")
    return FileOwner(-1 if user is None else user, -1 if group is None else group)


def read_allocatable() -> dict[str, int]:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {"cpu": os.cpu_count() or 1, "memory": pages * size}
