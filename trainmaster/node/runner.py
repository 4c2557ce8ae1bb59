"""Runs Pods: connects launcher, network leases and supervisor.

`prepare` creates everything that must exist before containers start, and may be cancelled or fail; `launch` starts them
and is the point of no return. Both are repeated after a crash, and nothing starts twice: the shim refuses an attempt
that has begun.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import orjson

from trainmaster import checkpoint
from trainmaster.client.contract import Client
from trainmaster.history.lost_files import LostFiles
from trainmaster.jobs.kinds import find_place
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock, format_time
from trainmaster.node.caches.mirror import CacheMirror
from trainmaster.node.caches.sources import list_sources
from trainmaster.node.disk.outputs import NOTE, WORK, Outputs
from trainmaster.node.disk.results import Results
from trainmaster.node.disk.usage import DiskUsage
from trainmaster.node.fields import find_refusal
from trainmaster.node.images.catalogue import Images, ImageSettings
from trainmaster.node.images.contract import Errands
from trainmaster.node.images.environments import Environments, InstallLimits
from trainmaster.node.launch.containers import INSIDE, build_container
from trainmaster.node.launch.contract import LaunchError, Prepared
from trainmaster.node.launch.launcher import Announce, Exceeded, Launcher, LaunchSettings
from trainmaster.node.machine.model import PodPlan
from trainmaster.node.machine.outcome import RULES, RestartRules, end_pod
from trainmaster.node.machine.state import Ending, Moment, PodState, make_state
from trainmaster.node.machine.steps import Notice, Start
from trainmaster.node.network.addresses import EgressRoutes
from trainmaster.node.network.leases import NetworkLeases
from trainmaster.node.recovery import rebuild_state
from trainmaster.node.shims.idle import Idleness, IdlePreparation
from trainmaster.node.shims.link import ShimError, ShimGone
from trainmaster.node.shims.supervisor import Supervisor, SupervisorError
from trainmaster.node.shims.warm import OFF, WarmSettings, WarmZygote
from trainmaster.node.shims.warm_starts import WarmStarts
from trainmaster.node.workloads import Workloads
from trainmaster.shim.protocol import PLAIN, ContainerSpec, Mount, write_whole
from trainmaster.shim.trees import remove_tree

log = logging.getLogger(__name__)

CREATE_ERROR = "CreateContainerError"
NOTICE_VARIABLE = checkpoint.STOP_NOTICE
"""Names a file that does not exist until the Pod is asked to stop; see docs/pods.md."""
_NOTICE_FOLDER = "notice"
_NOTICE_FILE = "stop.json"
_PLACE_FILE = "place"
_SCRATCH = ("volumes", "scratch", WORK)
"""Inside a Pod's directory."""

KeepLogs: TypeAlias = Callable[[str, Path], object]
"""(place, Pod directory): see `jobs.models.ranks`. Called in a thread."""
ListKept: TypeAlias = Callable[[str], Sequence[Path]]
"""(namespace): directories. Called in a thread."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Provided by `app`."""

    root: Path
    """The directory of all Pod directories."""
    python_prefix: str
    """The Python environment that replaces images: that of `trainmaster up`."""
    bundles: Path
    """The code of jobs; the command line writes it too."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The server's environment."""
    packages_mib: int = 16384
    """Disk space for installing one environment."""
    caches: Path | None = None
    """The cache directory of the owner's jobs; None if they have none."""
    model_caches: tuple[str, ...] = ()
    """Which parts of the owner's own cache they see there."""
    name: str = "local"
    workers: int = 16
    """Pods handled in parallel; closing an unresponsive shim occupies a worker."""
    level: str = PLAIN
    egress_routes: EgressRoutes = field(default_factory=lambda: EgressRoutes(egress=False))
    hide: tuple[str, ...] = ()
    """Directories of the machine that Pods must not see."""
    host_paths: bool = True
    warm: WarmSettings = OFF
    rules: RestartRules = RULES
    results: Path | None = None
    """Where checkpoints and outputs of TrainJobs are stored; None if they are not."""
    keep_logs: KeepLogs | None = None
    """Saves logs when a Pod's directory is removed; None if they are not kept."""
    list_kept: ListKept | None = None
    """Lists what jobs of a namespace left on the disk, for its quota; None if nothing is kept."""
    min_free_disk: int = 1024**3
    """Free bytes below which Pods that filled the disk are evicted."""
    note_short_disk: Callable[[], None] | None = None
    """Called after such an eviction, so that the Node reports DiskPressure and replacement Pods wait."""
    tenant_write_rate: int = 0
    """Bytes per second that the Pods of one tenant may write to the disk together; 0 is no limit."""

    @property
    def claims(self) -> Path:
        return self.root.parent / "volumes"

    @property
    def environments(self) -> Path:
        return self.root.parent / "environments"

    @property
    def gangs(self) -> Path:
        return self.root.parent / "gangs"


@dataclass(frozen=True, slots=True)
class Ready:
    """Containers that are ready to start."""

    prepared: Prepared | None = None
    specs: tuple[ContainerSpec, ...] = ()
    notes: tuple[str, ...] = ()
    warm_zygote: WarmZygote | None = None
    """The warm zygote that the Pod may be forked from."""


class PodRunner:
    def __init__(
        self, settings: NodeSettings, supervisor: Supervisor, launcher: Launcher, places: NetworkLeases, clock: Clock
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._launcher = launcher
        self._places = places
        self._clock = clock
        self._outputs = None if settings.results is None else Outputs(settings.results, settings.bundles)
        sources = list_sources(settings.model_caches, settings.environ)
        self._caches = None if settings.caches is None else CacheMirror(settings.caches, sources)
        machine = Idleness()
        self._warm = WarmStarts(
            settings.warm, settings.level, settings.environments / "imports", supervisor, machine.is_memory_short
        )
        self.idle = IdlePreparation(self._warm, supervisor, launcher.get_environment, machine, clock)

    async def load_state(self, pod: Pod, plan: PodPlan, now: Moment) -> PodState:
        """The state of a Pod that this process sees for the first time."""
        refusal = find_refusal(pod)
        if refusal:
            return end_pod(plan, make_state(plan, now), Ending("Unsupported", refusal))
        found = await self._supervisor.adopt(plan.uid)
        self._places.restore(pod, found)
        if found.attempts:
            log.info("pod adopted", extra={"action": "node.adopted", "alive": found.alive})
        if found.alive:
            self._launcher.adopt(pod, await self._places.build_site(pod, {}))
        return rebuild_state(pod, plan, found, now, self._settings.rules)

    def find_address(self, pod: Pod) -> str:
        return self._places.find_address(pod)

    async def prepare(self, pod: Pod, starts: Sequence[Start]) -> tuple[Ready, dict[Start, LaunchError]]:
        """The containers that can start, and the others with their errors."""
        try:
            site = await self._places.build_site(pod, {})
            self._make_directory(site.directory)
            prepared = await self._launcher.prepare(pod, site)
            trainjob = await self._find_trainjob(pod)
            newest = await self._find_newest(trainjob)
            is_owners = await self._is_owners(pod)
            cache = await asyncio.to_thread(self._caches.refresh) if self._caches is not None and is_owners else None
            if self._outputs is not None:
                self._outputs.note(pod, trainjob, prepared.volumes, site.directory)
        except LaunchError as error:
            return Ready(), dict.fromkeys(starts, error)
        except OSError as error:
            return Ready(), dict.fromkeys(starts, LaunchError(CREATE_ERROR, str(error)))
        prepared = replace(prepared, cache=cache)
        specs: list[ContainerSpec] = []
        notes: dict[str, None] = dict.fromkeys(prepared.notes)
        refused: dict[Start, LaunchError] = {}
        warm_zygote: WarmZygote | None = None
        for item in starts:
            try:
                spec, said = build_container(pod, item.container, item.attempt, prepared)
            except LaunchError as error:
                refused[item] = error
                continue
            spec = self._add_results(pod, trainjob, newest, self._add_notice(spec, site.directory))
            spec, found = self._warm.choose(pod, spec, prepared.images[item.container], is_owners=is_owners)
            warm_zygote = warm_zygote or found
            specs.append(spec)
            if item.attempt == 0:
                notes.update(dict.fromkeys(said))
        return Ready(prepared, tuple(specs), tuple(notes), warm_zygote), refused

    async def _find_trainjob(self, pod: Pod) -> str:
        """The uid of the Pod's TrainJob; "" if it has none."""
        place = await self._find_place(pod)
        return "" if place is None else (await self._places.workloads.resolve(pod.raw)).trainjob

    async def _find_place(self, pod: Pod) -> PodPlace | None:
        """Where its logs belong; None if its labels name a JobSet that is not its own."""
        place = find_place(pod.raw)
        if place is None or place.jobset != (await self._places.workloads.resolve(pod.raw)).gang:
            return None
        return place

    async def _is_owners(self, pod: Pod) -> bool:
        """Whether the owner submitted its job, outside of tenants' namespaces."""
        is_submitted = (await self._places.workloads.resolve(pod.raw)).is_owners
        return is_submitted and not await self._places.find_segment(pod)

    async def _find_newest(self, trainjob: str) -> str:
        if self._settings.results is None or not trainjob:
            return ""
        results = Results(self._settings.results)
        return await asyncio.to_thread(results.find_newest, trainjob) if results.has_checkpoints(trainjob) else ""

    async def find_saved(self, pod: Pod) -> str:
        """The newest complete checkpoint of the Pod's job, and when it was saved; "" if there is none."""
        if self._settings.results is None:
            return ""
        results, trainjob = Results(self._settings.results), await self._find_trainjob(pod)
        if not trainjob or not results.has_checkpoints(trainjob):
            return ""
        return await asyncio.to_thread(results.describe_newest, trainjob)

    def _add_results(self, pod: Pod, trainjob: str, newest: str, spec: ContainerSpec) -> ContainerSpec:
        if self._settings.results is None:
            return spec
        return Results(self._settings.results).add_directories(pod, trainjob, spec, self._settings.level, newest)

    def _make_directory(self, directory: str) -> None:
        """The Pod's directory. In a sandbox the notice has a directory of its own, which is mounted."""
        is_plain = self._settings.level == PLAIN
        os.makedirs(directory if is_plain else f"{directory}/{_NOTICE_FOLDER}", 0o755, exist_ok=True)

    def _add_notice(self, spec: ContainerSpec, directory: str) -> ContainerSpec:
        if self._settings.level == PLAIN:
            return replace(spec, env={NOTICE_VARIABLE: f"{directory}/{_NOTICE_FILE}", **spec.env})
        folder = f"{directory}/{_NOTICE_FOLDER}"
        seen = f"{INSIDE}/{_NOTICE_FOLDER}"
        mount = Mount(seen, folder, read_only=True)
        return replace(spec, env={NOTICE_VARIABLE: f"{seen}/{_NOTICE_FILE}", **spec.env}, mounts=(*spec.mounts, mount))

    async def launch(self, pod: Pod, ready: Ready) -> dict[Start, LaunchError]:
        """Starts the attempts; returns those that did not start, with the reason."""
        if ready.prepared is None or not ready.specs:
            return {}
        uid = pod.uid
        failpoints.hit("node.before_launch")
        try:
            await self._begin(pod, uid, ready)
        except (SupervisorError, ShimError) as error:
            return await self._list_unbegun(uid, ready.specs, LaunchError(CREATE_ERROR, str(error)))
        failpoints.hit("node.after_launch")
        return {}

    async def _begin(self, pod: Pod, uid: str, ready: Ready) -> None:
        assert ready.prepared is not None
        if self._supervisor.has_shim(uid):
            try:
                for spec in ready.specs:
                    await self._supervisor.start(uid, spec)
                return
            except ShimGone:
                log.info("shim gone, making another", extra={"uid": uid})
        sandbox = await self._places.build_sandbox(pod, ready.prepared)
        if self._settings.keep_logs is not None and (place := await self._find_place(pod)) is not None:
            # When the directory is removed, the Pod may no longer be known.
            write_whole(os.fspath(self._settings.root / uid / _PLACE_FILE), str(place).encode())
        await self._supervisor.create(uid, sandbox, ready.specs, ready.warm_zygote)

    async def _list_unbegun(
        self, uid: str, specs: Sequence[ContainerSpec], error: LaunchError
    ) -> dict[Start, LaunchError]:
        """After an error: only the directory knows what has started nevertheless."""
        found = await self._supervisor.adopt(uid)
        begun = {(attempt.container, attempt.number) for attempt in found.attempts if attempt.begun}
        return {Start(spec.name, spec.attempt): error for spec in specs if (spec.name, spec.attempt) not in begun}

    async def signal(self, uid: str, container: str, number: int) -> None:
        await self._supervisor.signal(uid, container, number)

    async def kill(self, uid: str, container: str) -> None:
        await self._supervisor.kill(uid, container)

    def write_notice(self, uid: str, notice: Notice) -> None:
        """Tells programs that poll the file that they must stop, and how long they have."""
        deadline = self._clock.now() + timedelta(seconds=notice.seconds)
        content = {"reason": notice.reason, "seconds": round(notice.seconds, 3), "deadline": format_time(deadline)}
        directory = f"{self._settings.root}/{uid}"
        folder = f"{directory}/{_NOTICE_FOLDER}"  # absent at the plain level, except for Pods of earlier versions
        path = f"{folder if os.path.isdir(folder) else directory}/{_NOTICE_FILE}"
        try:
            write_whole(path, orjson.dumps(content), 0o644)
        except OSError as error:  # gone, or the disk is full: it is stopped anyway
            log.debug("no stop notice", extra={"uid": uid, "error": str(error)})

    async def keep_outputs(self, uid: str) -> LostFiles | None:
        """Keeps what rank 0 wrote into its working directory and its home; returns what the Pod wrote and is not kept.
        An error keeps the Pod's directory, and it is retried.

        The sandbox of rank 0 is closed first, so that nothing of the Pod can replace directories by links meanwhile.
        """
        await self._warm.note_end(uid, self._settings.root / uid / WORK)
        finished = None if self._outputs is None else self._outputs.find_finished(self._settings.root / uid)
        if self._outputs is None or finished is None:
            return None
        if finished.rank == 0:
            await self._supervisor.close(uid)
        failpoints.hit("node.before_outputs")
        await asyncio.to_thread(self._outputs.keep, finished)
        failpoints.hit("node.after_outputs")
        return await asyncio.to_thread(self._outputs.record_lost, finished)

    async def drop_scratch(self, uid: str) -> None:
        """Removes everything that a finished Pod used on the disk, except its records and logs."""
        await self._supervisor.close(uid)
        directory = self._settings.root / uid
        (directory / NOTE).unlink(missing_ok=True)
        for name in _SCRATCH:
            await asyncio.to_thread(remove_tree, directory / name)

    async def settle(self, uid: str) -> None:
        """Closes the sandbox of a finished Pod and removes its in-memory volumes; records and logs stay."""
        await self._supervisor.close(uid)
        await self._launcher.drop_memory(uid)

    async def stop(self, uid: str) -> None:
        """Kills what runs and waits for it."""
        await self._supervisor.close(uid)

    async def remove(self, pod: Pod) -> None:
        """Removes everything of a stopped Pod."""
        uid = pod.uid
        await self._launcher.release(pod)
        self._places.release(pod)
        await self._keep_logs(uid)
        await self.keep_outputs(uid)
        await self._supervisor.remove(uid)

    async def sweep(self, known: set[str]) -> set[str]:
        """Removes what is left of Pods that were deleted while this node was not running. Returns the Pods with a
        process that is killed but not gone, because it waits for a device or a file server: `clear` must be
        repeated."""
        stuck = set()
        for uid in self._supervisor.list_uids():
            if uid not in known:
                try:
                    await self.clear(uid)
                except OSError as error:
                    if error.errno != errno.EBUSY:
                        raise
                    log.warning(
                        "stray pod not removed", extra={"action": "node.stuck", "uid": uid, "error": str(error)}
                    )
                    stuck.add(uid)
        return stuck

    async def clear(self, uid: str) -> None:
        """Kills and removes what is left of a Pod whose object is gone."""
        await self._supervisor.close(uid)
        await self._launcher.release(Pod({"metadata": {"uid": uid}}))
        await self._keep_logs(uid)
        await self.keep_outputs(uid)
        await self._supervisor.remove(uid)
        log.info("stray pod directory removed", extra={"action": "node.swept", "uid": uid})

    async def _keep_logs(self, uid: str) -> None:
        """An error keeps the directory, and it is retried."""
        directory = self._settings.root / uid
        if self._settings.keep_logs is None or not (directory / _PLACE_FILE).exists():
            return
        place = (directory / _PLACE_FILE).read_text()
        await asyncio.to_thread(self._settings.keep_logs, place, directory)


def build_launcher(
    client: Client,
    workloads: Workloads,
    clock: Clock,
    settings: NodeSettings,
    exceeded: Exceeded,
    errands: Errands,
    announce: Announce,
    usage: DiskUsage,
) -> Launcher:
    images = ImageSettings(
        root=settings.environments,
        prefix=settings.python_prefix,
        gangs=settings.gangs,
    )
    launch = LaunchSettings(
        claims=settings.claims,
        host_paths=settings.host_paths,
        bundles=settings.bundles,
    )
    limits = InstallLimits(space=settings.packages_mib << 20, host_paths=settings.host_paths)
    environments = Environments(images.root, settings.environ, clock, errands, limits)
    found = Images(client, images, workloads, environments)
    return Launcher(client, clock, launch, found, exceeded, usage, announce)
