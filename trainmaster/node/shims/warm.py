"""Decides which Pods may start warm, and from which zygote: setting, annotation, environment, command.

See docs/warm-start.md. `decide_warm` decides only what can be determined from outside (it looks at the environment's
directories); the final decision is made inside the sandbox (`trainmaster/shim/warm`). A warm zygote is shared only
by Pods of one namespace, because all its forks have the same address layout and hash seed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Literal

from trainmaster.api.labels import WARM
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.node.shims.learned import LearnedImports
from trainmaster.shim.protocol import ENVIRON, FULL, PLAIN, ContainerSpec

IMPORTS = ("numpy", "torch", "torch.distributed", "torch._dynamo", "torch.distributed.run")
"""The slow imports of training programs. Only imports that are known to start no threads and open nothing."""
_MARK = "torch"
"""An environment with this package is known to be safe."""

_CONTEXT = ("PATH", "HOME", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""Variables that libraries read when they are imported, and that are the same in all sandboxes of an environment."""
_OF_WORKERS = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "OMPI_COMM_WORLD_RANK"),
)
"""Variables that launchers set for their workers."""

_SHARE = 16
_LEAST = 192 << 20
"""A zygote with torch has about 130 MB of its own."""

Mode = Literal["off", "auto"]


@dataclass(frozen=True, slots=True)
class WarmSettings:
    mode: Mode = "off"
    imports: tuple[str, ...] = IMPORTS
    mark: str = _MARK
    budget: int = 1 << 30
    """Bytes of memory for all warm zygotes; without any, nothing starts warm."""


@dataclass(frozen=True, slots=True)
class WarmZygote:
    """A warm zygote that a Pod can be forked from."""

    key: str
    prefix: str
    """The layer whose interpreter it runs."""
    imports: tuple[str, ...]
    label: str
    """The environment."""
    namespace: str = ""
    learned: str = ""
    """A file with more modules, which earlier programs have imported."""
    environ: tuple[tuple[str, str], ...] = ()
    """Variables to import them with."""
    varying: tuple[str, ...] = ()
    """Variables of Pods that have other values than in the zygote; nothing that reads them is imported."""


OFF = WarmSettings()


def compute_budget(wanted_mib: int, memory: int) -> int:
    """Bytes for warm zygotes on a machine with this memory."""
    if wanted_mib:
        return wanted_mib << 20
    share = memory // _SHARE
    return share if share >= _LEAST else 0


def decide_warm(
    pod: Pod,
    spec: ContainerSpec,
    image: Environment,
    settings: WarmSettings,
    level: str = FULL,
    learned: LearnedImports | None = None,
) -> WarmZygote | None:
    """None if the container is executed normally."""
    if not is_wanted(pod, settings) or not image.layer:
        return None
    if image.made:
        return None  # the zygote would import, with the server's rights, what was written with the Pod's
    if spec.run_as_user not in (None, os.geteuid()) or spec.run_as_group is not None:
        return None  # the zygote imports as the server's user
    if os.path.dirname(spec.argv[0]) not in image.programs:
        return None
    if spec.limits.memory and level != FULL:
        return None  # pages shared with the zygote would count towards its memory limit
    if learned is None or level == PLAIN:  # there, every Pod has another home
        return build_zygote(pod.namespace, image, settings)
    environ = tuple((name, spec.env[name]) for name in _CONTEXT if name in spec.env)
    same = {*_CONTEXT, *ENVIRON}
    varying = tuple(dict.fromkeys((*(name for name in spec.env if name not in same), *_OF_WORKERS)))
    return build_zygote(pod.namespace, image, settings, learned, environ, varying)


def build_zygote(
    namespace: str,
    image: Environment,
    settings: WarmSettings,
    learned: LearnedImports | None = None,
    environ: tuple[tuple[str, str], ...] = (),
    varying: tuple[str, ...] = (),
) -> WarmZygote | None:
    """None if the environment has nothing that is worth it. `environ`, `varying`: only with what was learned."""
    if settings.mark and not _has(image, settings.mark):
        return None
    imports = tuple(name for name in settings.imports if not settings.mark or _has(image, name.partition(".")[0]))
    stamp = [str(os.stat(place).st_mtime_ns) for place in image.packages if os.path.isdir(place)]
    parts = [image.layer, namespace, *imports, *stamp]
    if learned is None:
        return WarmZygote(_hash(parts), image.layer, imports, image.prefix, namespace)
    key = _hash([*parts, learned.digest, *(f"{name}={value}" for name, value in environ)])
    return WarmZygote(key, image.layer, imports, image.prefix, namespace, learned.path, environ, varying)


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def is_wanted(pod: Pod, settings: WarmSettings) -> bool:
    """The Pod's annotation overrides the setting; a value other than true or false is ignored."""
    if not settings.budget:
        return False
    asked = pod.annotations.get(WARM)
    return asked == "true" if asked in ("true", "false") else settings.mode == "auto"


def _has(image: Environment, package: str) -> bool:
    return any(os.path.exists(f"{place}/{package}/__init__.py") for place in image.packages)
