"""A container's private root: the machine's files, read-only, combined with the Pod's mounts.

The new root is a tmpfs with a recursive bind mount of each top-level entry of the machine. A mount point that does not
exist on the machine is created in that tmpfs, or in an overlay over its deepest existing ancestor (where overlays are
not supported, in a tmpfs with a bind mount of each entry). So nothing is ever created in the machine's own tree.

`plan_root` decides and is pure, given a `Host`; `build_root` carries the plan out in a new mount namespace and pivots.
Volumes are opened as detached mounts before the pivot and attached after it: a symbolic link inside a volume is then
resolved within the new root and cannot redirect the mount (or its mount point) to the machine. Meanwhile programs of
other Pods may change those volumes, and users of the machine their own directories: everything that they can influence
is opened and mounted by descriptor (`beneath`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainmaster.shim.protocol import COPY, OVERLAY, PRIVATE, TMPFS, Mount
from trainmaster.shim.sandbox import beneath, linux
from trainmaster.shim.sandbox.beneath import is_below
from trainmaster.shim.sandbox.devices import build_dev

STAGE = "/sys"
"""Where the new root is assembled in the container's mount namespace. It must not be in a directory that is bound into
the new root, or the tree would be copied into itself."""
_LAYERS = ".layers"
_PROTECTED = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_DEFAULTS = linux.MS_NOSUID | linux.MS_NODEV


@dataclass(frozen=True, slots=True)
class RootEntry:
    """A top-level entry of the machine's root."""

    name: str
    link: str = ""
    directory: bool = True


@dataclass(frozen=True, slots=True)
class Host:
    """What planning needs to know about the machine."""

    entries: Sequence[RootEntry]
    resolve: Callable[[str], str]
    """Path -> the same without symbolic links, as far as it exists."""
    find_kind: Callable[[str], str]
    """"dir", "file", or "" if it does not exist."""


@dataclass(frozen=True, slots=True)
class RootOptions:
    mounts: Sequence[Mount]
    """The Pod's mounts (hosts etc.) and the container's."""
    hide: Sequence[str] = ()
    writable: bool = False
    """Whether the machine's files are writable."""
    read_only_root: bool = False
    devices: Sequence[str] = ()
    shm: int = -1
    """The Pod's shared memory, a detached mount."""
    own_pids: bool = True
    own_network: bool = True
    protect_proc: bool = False
    """Whether to protect the machine's settings in /proc from root."""
    scratch: str = ""
    """A directory of this attempt, for /tmp and writable layers."""
    user_namespace: bool = False


@dataclass(frozen=True, slots=True)
class RootPlan:
    binds: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    empty: tuple[str, ...]
    """Top-level directories that exist and show nothing of the machine."""
    hidden: tuple[str, ...]
    overlays: tuple[str, ...]
    """Existing directories that need an overlay, outermost first."""
    points: tuple[tuple[str, bool], ...]
    """(mount point that the machine lacks, whether it is a directory), created before the new root becomes
    read-only."""


def plan_root(host: Host, options: RootOptions, is_directory: Callable[[Mount], bool]) -> RootPlan:
    binds, links, files, empty = [], [], [], []
    for entry in host.entries:
        path = f"/{entry.name}"
        if entry.link:
            links.append((path, entry.link))
        elif not entry.directory:
            files.append(path)
        elif path in PRIVATE or path in options.hide:
            empty.append(path)
        else:
            binds.append(path)
    hidden = tuple(path for path in dict.fromkeys(map(host.resolve, options.hide)) if not is_below(path, PRIVATE))
    overlays: dict[str, None] = {}
    points: list[tuple[str, bool]] = []
    covered = [*PRIVATE]
    for mount in sort_mounts(options.mounts):
        target = host.resolve(mount.target)
        if is_below(target, covered):
            continue
        if is_below(target, hidden):
            points.append((target, is_directory(mount)))
        elif not host.find_kind(target):
            points.append((target, is_directory(mount)))
            ancestor = os.path.dirname(target)
            while host.find_kind(ancestor) != "dir":
                ancestor = os.path.dirname(ancestor)
            if ancestor != "/":
                overlays[ancestor] = None
        covered.append(target)
    return RootPlan(
        binds=tuple(binds),
        links=tuple(links),
        files=tuple(files),
        empty=tuple(dict.fromkeys([*empty, *(path for path in PRIVATE if path.count("/") == 1)])),
        hidden=hidden,
        overlays=tuple(sorted(overlays)),
        points=tuple(points),
    )


def sort_mounts(mounts: Iterable[Mount]) -> list[Mount]:
    """Outer mounts first; of two for one path the later wins."""
    chosen = {os.path.normpath(mount.target): mount for mount in mounts}
    return [chosen[path] for path in sorted(chosen, key=lambda path: (path.count("/"), path))]


def read_host() -> Host:
    entries = []
    for entry in os.scandir("/"):
        if entry.is_symlink():
            entries.append(RootEntry(entry.name, os.readlink(entry.path), False))
        else:
            entries.append(RootEntry(entry.name, "", entry.is_dir(follow_symlinks=False)))
    return Host(entries, os.path.realpath, find_kind)


def find_kind(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    return "dir" if stat.S_ISDIR(mode) else "file"


def build_root(options: RootOptions) -> None:
    """In a new mount namespace: on return the new root is the root, and the working directory is /."""
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    mounts = {mount: _take(mount, options) for mount in sort_mounts(options.mounts)}
    plan = plan_root(read_host(), options, lambda mount: beneath.is_directory(mounts[mount]))
    scratch = _take_scratch(options)
    machine_sys = -1 if options.own_network else linux.open_tree("/sys")
    linux.mount("tmpfs", STAGE, "tmpfs", _DEFAULTS, "mode=755,size=16m")
    _put_machine(plan, options)
    _put_private(options, scratch, machine_sys)
    os.chdir(STAGE)
    linux.pivot_root(".", ".")
    linux.umount(".")
    os.chdir("/")
    for mount, tree in mounts.items():
        put_mount(mount.target, tree)
    if options.protect_proc:
        _protect_proc()
    if options.read_only_root:
        for path in ("/", "/run"):
            linux.mount(None, path, None, linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | _DEFAULTS)


def _take(mount: Mount, options: RootOptions) -> int:
    """Opens the volume as a detached mount."""
    if mount.kind == TMPFS:
        tree = linux.make_tree(
            "tmpfs", {"mode": "1777", **({"size": str(mount.size)} if mount.size else {})}, _DEFAULTS
        )
    elif mount.kind == OVERLAY:
        tree = _take_layer(mount, options)
    elif mount.sub_path:
        tree = _take_sub_path(mount)
    else:
        tree = linux.open_tree(mount.source)
    if mount.read_only:
        linux.set_read_only(tree)
    return tree


def _take_sub_path(mount: Mount) -> int:
    root = beneath.open_directory(mount.source)
    try:
        place = beneath.open_beneath(root, mount.sub_path)
    except beneath.PathEscapes:
        raise OSError(errno.EXDEV, f"subPath {mount.sub_path!r} leads out of its volume") from None
    except OSError as error:
        raise OSError(error.errno, f"cannot open subPath {mount.sub_path!r}: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(root)
    try:
        return linux.copy_tree(place)
    finally:
        os.close(place)


def _take_layer(mount: Mount, options: RootOptions) -> int:
    place = mount.layer or f"{options.scratch}/layer{mount.target.replace('/', '-')}"
    for name in ("upper", "work"):
        os.makedirs(f"{place}/{name}", exist_ok=True)
    shutil.copymode(mount.source, f"{place}/upper")
    layers = {"lowerdir": _escape(mount.source), "upperdir": f"{place}/upper", "workdir": f"{place}/work"}
    # The upper layer must contain whole files, never only metadata, because what was written is read from there.
    layers |= {"userxattr": ""} if options.user_namespace else {"metacopy": "off"}
    if not os.path.exists(f"{place}/{COPY}"):
        try:
            return linux.make_tree("overlay", layers, _DEFAULTS)
        except OSError:
            # The file system does not support overlays (it is one itself, or a network file system); or there is
            # another error, and earlier writes must not be lost.
            if os.listdir(f"{place}/upper"):
                raise
            shutil.copytree(mount.source, f"{place}/{COPY}.partial", symlinks=True, dirs_exist_ok=True)
            os.rename(f"{place}/{COPY}.partial", f"{place}/{COPY}")
    return linux.open_tree(f"{place}/{COPY}")


def _escape(path: str) -> str:
    """Colons separate lower layers."""
    return path.replace("\\", "\\\\").replace(":", "\\:")


def _take_scratch(options: RootOptions) -> dict[str, int]:
    """/tmp is on disk, as in a container, so that files there do not use the job's memory."""
    trees = {}
    for path in ("/tmp", "/var/tmp"):
        place = f"{options.scratch}/tmp{path.count('/')}"
        os.makedirs(place, exist_ok=True)
        os.chmod(place, 0o1777)
        trees[path] = linux.open_tree(place)
        if options.read_only_root:
            linux.set_read_only(trees[path])
    return trees


def _put_machine(plan: RootPlan, options: RootOptions) -> None:
    for path, link in plan.links:
        os.symlink(link, STAGE + path)
    for path in (*plan.binds, *plan.empty):
        os.mkdir(STAGE + path)
    for path in plan.files:
        _touch(STAGE + path)
    skipped = set()
    for path in (*plan.binds, *plan.files):
        try:
            linux.bind(path, STAGE + path)
        except PermissionError:
            # A file system that even the machine cannot read (another user's FUSE mount) is empty in the Pod.
            skipped.add(path)
    for path in plan.hidden:
        if os.path.isdir(STAGE + path):
            linux.mount("tmpfs", STAGE + path, "tmpfs", _DEFAULTS, "mode=755,size=1m")
    stage = beneath.open_directory(STAGE)
    _put_overlays(stage, plan.overlays, options.user_namespace)
    for path, directory in plan.points:
        os.close(beneath.make_inside(stage, path, beneath.MakeOptions(directory=directory)))
    os.close(stage)
    if not options.writable or options.read_only_root:
        for path in (*plan.binds, *plan.files):
            if path not in skipped:
                linux.set_read_only(STAGE + path)


def _put_overlays(stage: int, places: Sequence[str], user_namespace: bool) -> None:
    if not places:
        return
    layers = f"{STAGE}/{_LAYERS}"
    os.mkdir(layers)
    linux.mount("tmpfs", layers, "tmpfs", _DEFAULTS, "mode=700,size=16m")
    below = [line.split()[4] for line in _read_mounts()]
    for number, path in enumerate(places):
        upper, work = f"{layers}/{number}u", f"{layers}/{number}w"
        os.mkdir(upper)
        os.mkdir(work)
        shutil.copymode(path, upper)
        options = {"lowerdir": _escape(path), "upperdir": upper, "workdir": work}
        point = beneath.open_inside(stage, path)
        try:
            tree = linux.make_tree("overlay", options | ({"userxattr": ""} if user_namespace else {}), 0)
        except OSError:
            _put_skeleton(stage, point, path)
            continue
        _move(tree, point)
        inner = [place for place in below if place.startswith(f"{path}/")]
        for place in inner:
            if not is_below(os.path.dirname(place), inner):
                linux.bind(place, STAGE + place)
    linux.umount(layers)
    os.rmdir(layers)


def _put_skeleton(stage: int, point: int, path: str) -> None:
    """Where overlays are not supported: a tmpfs with a bind mount of each entry of the directory."""
    mode = os.stat(path).st_mode & 0o7777
    _move(linux.make_tree("tmpfs", {"mode": f"{mode:o}", "size": "16m"}, _DEFAULTS), point)
    target = beneath.open_inside(stage, path)
    for entry in os.scandir(path):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), entry.name, dir_fd=target)
            continue
        making = beneath.MakeOptions(directory=entry.is_dir(follow_symlinks=False))
        _move(linux.open_tree(entry.path), beneath.make_inside(target, entry.name, making))
    os.close(target)


def _move(tree: int, place: int) -> None:
    """Attaches the tree to the descriptor's location; both descriptors are closed."""
    try:
        linux.move_mount(tree, place)
    finally:
        os.close(tree)
        os.close(place)


def _read_mounts() -> list[str]:
    with open("/proc/self/mountinfo") as stream:
        return stream.read().splitlines()


def _put_private(options: RootOptions, scratch: dict[str, int], machine_sys: int) -> None:
    for path, tree in scratch.items():
        if os.path.isdir(STAGE + path):
            linux.move_mount(tree, STAGE + path)
        os.close(tree)
    linux.mount("tmpfs", f"{STAGE}/run", "tmpfs", _DEFAULTS, "mode=755,size=64m")
    os.mkdir(f"{STAGE}/run/lock")
    os.chmod(f"{STAGE}/run/lock", 0o1777)
    if options.own_pids:
        linux.mount("proc", f"{STAGE}/proc", "proc", _DEFAULTS | linux.MS_NOEXEC)
    else:
        linux.bind("/proc", f"{STAGE}/proc")
    if machine_sys >= 0:
        linux.move_mount(machine_sys, f"{STAGE}/sys")
        linux.set_read_only(f"{STAGE}/sys")
    else:
        # A new mount shows the Pod's own network interfaces.
        with contextlib.suppress(PermissionError):
            linux.mount("sysfs", f"{STAGE}/sys", "sysfs", _DEFAULTS | linux.MS_NOEXEC | linux.MS_RDONLY)
    build_dev(f"{STAGE}/dev", options.devices, options.shm, make_nodes=not options.user_namespace)


def put_mount(target: str, tree: int) -> None:
    """After the pivot: links in the path, including those in volumes, are resolved inside the new root."""
    directory = beneath.is_directory(tree)
    place = make_point(target, directory=directory)
    if beneath.is_directory(place) != directory:
        os.close(place)
        what = ("a directory", "a file") if directory else ("a file", "a directory")
        raise NotADirectoryError(errno.ENOTDIR, f"cannot mount {what[0]} on {target}, which is {what[1]}")
    _move(tree, place)


def make_point(path: str, *, directory: bool = True) -> int:
    """Creates a mount point in the new root if it is missing. Links in /proc, which would lead to the machine, are not
    followed."""
    root = beneath.open_directory("/")
    try:
        return beneath.make_inside(root, path, beneath.MakeOptions(directory=directory))
    finally:
        os.close(root)


def _protect_proc() -> None:
    for path in _PROTECTED:
        if os.path.exists(path):
            tree = linux.open_tree(path)
            linux.set_read_only(tree)
            linux.move_mount(tree, path)
            os.close(tree)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
