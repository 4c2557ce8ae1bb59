"""Builds the shim's spec for one attempt of a container, with everything resolved.

Reads the file system (whether a program or directory exists), and creates subPaths. In a sandbox the Pod's own
directories appear in `/trainmaster`; at the plain level paths are those of the machine, and mounts, names and ports are
rewritten (`rewriting`). The notes say what was approximated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.workloads import read_v1_gang
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.caches.mirror import CacheView
from trainmaster.node.devices.device_nodes import list_nodes, renumber
from trainmaster.node.images.contract import Environment
from trainmaster.node.launch.budgets import build_rlimits
from trainmaster.node.launch.contract import START_ERROR, LaunchError, Prepared, Site, get_container
from trainmaster.node.launch.environment import build_variables, list_bad_names
from trainmaster.node.launch.expansion import expand
from trainmaster.node.launch.limits import build_limits
from trainmaster.node.launch.mounts import (
    Bound,
    build_mounts,
    get_kubeconfig,
    link_neighbours,
    resolve_mounts,
)
from trainmaster.node.launch.rewriting import Rewriter, build_rewriter
from trainmaster.node.launch.security import decide_privileges
from trainmaster.node.threads import node_env
from trainmaster.node.volumes.creation import API_ACCESS
from trainmaster.shim.protocol import PLAIN, USER, ContainerSpec, Mount, Paths

INSIDE = "/trainmaster"
"""Where a sandboxed program sees what the node provides to its Pod."""
_ENV = ".pod-env"
_CACHE = "cache"
_CACHE_HOME = "XDG_CACHE_HOME"
_MOST_PLACES = 200
"""Directories in PATH that are searched for a program; if there are more, the container searches itself."""
DEFAULT_MESSAGE = "/dev/termination-log"
MESSAGE_VARIABLE = "TRAINMASTER_TERMINATION_LOG"
"""At the plain level: the path of the termination message, for programs whose code cannot be rewritten."""
WORKSPACE = "/workspace"
"""Where initializer images write."""
_MPI_DIRECTORIES = (
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_orte_tmpdir_base",
    "OMPI_MCA_osc_sm_backing_directory",
)
"""The variables that say where Open MPI puts its files."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the program sees the Pod's own directories, and where they are."""

    work: str
    env: str
    """Where packages that the Pod installs go; created on first use."""
    mounts: tuple[Mount, ...]


def build_layout(site: Site, image: Environment) -> Layout:
    work = f"{site.directory}/work"
    if site.level == PLAIN:
        return Layout(work, f"{work}/{_ENV}", ())
    mounts = [Mount(f"{INSIDE}/work", work)]
    if image.home:
        mounts.append(Mount(image.home, work))
    if image.gang_directory:
        mounts.append(Mount(f"{INSIDE}/gang", image.gang_directory, read_only=image.gang_read_only))
    # Shared environments may be in the home, which is hidden in a sandbox.
    shared = dict.fromkeys(filter(None, (image.prefix, image.layer, *image.programs, *image.shown)))
    # Paths inside another one are visible with it; listed separately, the server would follow a link that an
    # installation left there.
    outer = [path for path in shared if not any(path.startswith(f"{other}/") for other in shared)]
    mounts += [Mount(path, path, read_only=True) for path in outer if not path.startswith("/usr")]
    return Layout(f"{INSIDE}/work", f"{INSIDE}/work/{_ENV}", tuple(mounts))


def build_container(pod: Pod, name: str, attempt: int, prepared: Prepared) -> tuple[ContainerSpec, list[str]]:
    container = get_container(pod, name)
    site, image = prepared.site, prepared.images[name]
    layout = build_layout(site, image)
    declared = build_variables(pod, container, prepared)
    privileges = decide_privileges(pod, container, site.level, os.geteuid())
    bound = resolve_mounts(container, prepared, declared)
    if site.level == PLAIN:
        link_neighbours(bound, site.directory)
    message = container.get("terminationMessagePath") or DEFAULT_MESSAGE
    given = {message: Paths(site.directory).message(name, attempt)}
    paths = given if message.startswith("/") else {}
    if image.home:
        paths = {image.home: layout.work, **paths}
    rewriter = _build_rewriter(pod, site, {**paths, **{entry.target: entry.source for entry in bound}})
    account = prepared.volumes[API_ACCESS].source if site.api is not None and API_ACCESS in prepared.volumes else ""
    devices = () if site.level == PLAIN else list_nodes(pod.raw, name)
    cache = prepared.cache if privileges.user in (None, os.geteuid()) or site.level == USER else None
    env = {
        **node_env(pod.raw, container),
        **build_cache_variables(cache, site, declared),
        **renumber(devices),
        **_build_base(pod, site, image, layout, account),
    }
    env.update({key: _place(rewriter.rewrite_paths(text), site, layout) for key, text in image.variables.items()})
    if site.level == PLAIN:
        env[MESSAGE_VARIABLE] = given[message]
    if prepared.shared_memory:
        env.update(dict.fromkeys(_MPI_DIRECTORIES, prepared.shared_memory))
    env.update(site.variables)
    if container.get("tty"):
        env.setdefault("TERM", "xterm")  # as containerd does
    env.update({key: rewriter.rewrite_variable(key, text) for key, text in declared.items()})
    argv = [rewriter.rewrite(expand(part, declared)) for part in _build_command(container, image)]
    made = _list_made_directory(container, bound, site)
    spec = ContainerSpec(
        name=name,
        attempt=attempt,
        argv=_resolve_program(argv, env, layout, site),
        env=env,
        directory=_build_directory(container, rewriter, layout, site, bound),
        mounts=() if site.level == PLAIN else (*layout.mounts, *build_cache_mounts(cache), *made, *build_mounts(bound)),
        run_as_user=privileges.user,
        run_as_group=privileges.group,
        groups=privileges.groups,
        read_only_root=privileges.read_only_root,
        stdin=bool(container.get("stdin")),
        stdin_once=bool(container.get("stdinOnce")),
        tty=bool(container.get("tty")),
        message_path=message,
        message_from_logs=_wants_log_end(pod, container),
        limits=build_limits(container),
        devices=devices,
        new_privileges=privileges.new_privileges,
        rlimits=build_rlimits(prepared.budget) if prepared.budget is not None and privileges.user else (),
    )
    notes = [*_list_notes(container, prepared, bound), *privileges.notes, *rewriter.list_notes()]
    return spec, notes


def _wants_log_end(pod: Pod, container: Fields) -> bool:
    """Always for members of a JobSet or v1 job: the failure message of a job includes their last output, and the
    default policy cannot be distinguished from an explicit one."""
    chosen = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    return chosen or JOBSET_UID in pod.labels or bool(read_v1_gang(pod.raw))


def _build_rewriter(pod: Pod, site: Site, paths: Mapping[str, str]) -> Rewriter:
    if site.level != PLAIN:
        return Rewriter({}, None, site.lease_port)
    return build_rewriter(pod, paths, site.lease_port)


def _place(text: str, site: Site, layout: Layout) -> str:
    """At the plain level, a directory that only the image has and without a volume is the Pod's own: the program must
    not write to a directory of the machine with the same name."""
    if site.level == PLAIN and (text == WORKSPACE or text.startswith(f"{WORKSPACE}/")):
        return f"{layout.work}{text}"
    return text


def _build_base(pod: Pod, site: Site, image: Environment, layout: Layout, account: str) -> dict[str, str]:
    """The variables from the image and the runtime. The Pod's own override them. `account`: where the files of its
    ServiceAccount are, "" if it has none."""
    base = {
        "PATH": ":".join((f"{layout.env}/bin", *image.programs, SYSTEM_PATH)),
        "VIRTUAL_ENV": layout.env,
        "TRAINMASTER_ENV": layout.env,
        "HOME": layout.work,
        "HOSTNAME": pod.spec.get("hostname") or pod.name,
        "LANG": "C.UTF-8",
        # Otherwise output to a file is block-buffered, and cannot be followed.
        "PYTHONUNBUFFERED": "1",
        # Several agents on one machine would otherwise try to share one store and hang.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # A pip of the machine must not install into the machine.
        "PIP_REQUIRE_VIRTUALENV": "1",
        "TRAINMASTER_POD_UID": pod.uid,
    }
    if site.level == PLAIN:
        # All Pods communicate over loopback; gloo would look up the machine's name and may choose another interface.
        base["GLOO_SOCKET_IFNAME"] = "lo"
        if account:
            base["KUBECONFIG"] = get_kubeconfig(site)
            # For `remote_start/kubectl_exec.py`.
            base["TRAINMASTER_ACCOUNT_DIR"] = account
    if image.gang_directory:
        base["TRAINMASTER_GANG_DIR"] = image.gang_directory if site.level == PLAIN else f"{INSIDE}/gang"
    return base


def build_cache_variables(cache: CacheView | None, site: Site, declared: Mapping[str, str]) -> dict[str, str]:
    """A job that names a cache directory of its own has all its caches there, as libraries do by themselves."""
    if cache is None or _CACHE_HOME in declared:
        return {}
    place = cache.root if site.level == PLAIN else f"{INSIDE}/{_CACHE}"
    return {_CACHE_HOME: place, "HF_HOME": f"{place}/huggingface", "TORCH_HOME": f"{place}/torch"}


def build_cache_mounts(cache: CacheView | None) -> tuple[Mount, ...]:
    """In a sandbox. The links in the cache name the owner's files by their path on the machine."""
    if cache is None:
        return ()
    shown = (Mount(path, path, read_only=True) for path in cache.shown)
    return (Mount(f"{INSIDE}/{_CACHE}", cache.root), *shown)


def _build_command(container: Fields, image: Environment) -> list[str]:
    args = list_items(container, "args")
    command = list(container.get("command") or image.command)
    if not command and image.default_args:
        return list(args or image.default_args)
    if not command:
        raise LaunchError(
            START_ERROR,
            f'container "{container["name"]}" has no command, and the rule of its image names none: '
            "set command (with kubectl run: --command)",
        )
    stand_in = image.stand_ins.get(command[0])
    if stand_in is not None:
        # The replacement takes none of the program's arguments.
        return list(stand_in)
    return [*command, *args]


def _build_directory(container: Fields, rewriter: Rewriter, layout: Layout, site: Site, bound: Sequence[Bound]) -> str:
    asked = container.get("workingDir")
    if not asked:
        # An image would contain its working directory with the code.
        places = [entry.source if site.level == PLAIN else entry.target for entry in bound if entry.volume.code]
        return places[0] if places else layout.work
    directory = rewriter.rewrite_paths(asked)
    if site.level == PLAIN and not os.path.isdir(directory):
        raise LaunchError(START_ERROR, f"workingDir {asked} does not exist on this machine")
    return directory


def _list_made_directory(container: Fields, bound: Sequence[Bound], site: Site) -> tuple[Mount, ...]:
    """An empty directory for a working directory that only the image has, as runtimes create it."""
    asked = container.get("workingDir")
    if not asked or site.level == PLAIN or os.path.isdir(asked):
        return ()
    if any(asked == entry.target or asked.startswith(f"{entry.target}/") for entry in bound):
        return ()
    source = f"{site.directory}/made/{container['name']}"
    os.makedirs(source, mode=0o755, exist_ok=True)
    os.chmod(source, 0o777)
    return (Mount(asked, source),)


def _resolve_program(argv: list[str], env: dict[str, str], layout: Layout, site: Site) -> tuple[str, ...]:
    """argv with the full path of the program. In a sandbox a program that is not found here may still be in a
    volume."""
    program = argv[0]
    if "/" in program:
        if site.level == PLAIN and program.startswith("/") and not os.access(program, os.X_OK):
            raise LaunchError(START_ERROR, f'exec: "{program}": no such file or not executable')
        return tuple(argv)
    own = f"{site.directory}/work"
    if site.level != PLAIN and env["PATH"].count(":") >= _MOST_PLACES:
        return tuple(argv)
    found = shutil.which(program, path=env["PATH"].replace(layout.work, own))
    if found is None:
        if site.level == PLAIN:
            raise LaunchError(START_ERROR, f'exec: "{program}": executable file not found in $PATH')
        return tuple(argv)
    if found.startswith(f"{own}/"):
        found = layout.work + found[len(own) :]
    return (found, *argv[1:])


def _list_notes(container: Fields, prepared: Prepared, bound: Sequence[Bound]) -> list[str]:
    image, plain = prepared.images[container["name"]], prepared.site.level == PLAIN
    notes = [image.note] if image.note else []
    notes += [entry.volume.note for entry in bound if entry.volume.note]
    if bad := list_bad_names(container, prepared):
        notes.append(f"keys {', '.join(bad)} of envFrom were skipped: they are no names of variables")
    stand_in = image.stand_ins.get(next(iter(container.get("command") or image.command), ""))
    if stand_in:
        notes.append(f"{container['command'][0]} is run as {' '.join(stand_in)}")
    if not (container.get("command") or container.get("args") or image.command):
        notes.append(
            f"the container has no command, so it runs what the image would run: {' '.join(image.default_args)}"
        )
    if plain:
        sealed = [entry.target for entry in bound if entry.read_only and not entry.volume.live]
        if sealed:
            notes.append(f"readOnly of {', '.join(sealed)} is not enforced on the plain level")
        if read_fields(container, "resources", "limits"):
            notes.append("resource limits are not enforced on the plain level")
    return notes
