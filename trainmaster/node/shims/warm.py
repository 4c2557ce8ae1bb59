"""Which Pods may begin warm, and with what: setting, annotation, environment, command. See docs/warm-start.md.

Here only what can be told from outside is decided (`decide_warm`, which looks at the environment's directories);
whether a program really begins warm is decided at the last moment inside its sandbox (`trainmaster/shim/warm.py`). A
warm zygote is shared by the Pods of one namespace only: all that it forks have the same address layout and hash seed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Literal

from trainmaster.api.labels import WARM
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.images.contract import Environment
from trainmaster.shim.protocol import FULL, ContainerSpec

IMPORTS = ("numpy", "torch", "torch.distributed", "torch._dynamo", "torch.distributed.run")
"""What takes long in a training program. Only imports that are known to start no thread and open nothing."""
_MARK = "torch"
"""An environment with this package is known to be safe."""

Mode = Literal["off", "auto"]


@dataclass(frozen=True, slots=True)
class WarmSettings:
    mode: Mode = "off"
    imports: tuple[str, ...] = IMPORTS
    mark: str = _MARK


@dataclass(frozen=True, slots=True)
class WarmZygote:
    """A warm zygote that a Pod could come from."""

    key: str
    prefix: str
    """Of the layer whose interpreter it runs."""
    imports: tuple[str, ...]
    label: str


OFF = WarmSettings()


def decide_warm(
    pod: Pod, spec: ContainerSpec, image: Environment, settings: WarmSettings, level: str = FULL
) -> WarmZygote | None:
    """None: the container is executed, as ever."""
    if not is_wanted(pod, settings) or not image.layer:
        return None
    if image.made:
        return None  # the zygote would import with the server's rights what was written with the Pod's
    if spec.run_as_user not in (None, os.geteuid()) or spec.run_as_group is not None:
        return None  # the zygote imports as the server's user
    if os.path.dirname(spec.argv[0]) not in image.programs:
        return None
    if spec.limits.memory and level != FULL:
        return None  # memory is watched there, and pages shared with the zygote would count
    if settings.mark and not _has(image, settings.mark):
        return None
    imports = tuple(name for name in settings.imports if not settings.mark or _has(image, name.partition(".")[0]))
    stamp = [str(os.stat(place).st_mtime_ns) for place in image.packages if os.path.isdir(place)]
    parts = (image.layer, pod.namespace, *imports, *stamp)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return WarmZygote(key, image.layer, imports, image.prefix)


def is_wanted(pod: Pod, settings: WarmSettings) -> bool:
    """The Pod's own word goes over the setting; one that is neither true nor false says nothing."""
    asked = pod.annotations.get(WARM)
    return asked == "true" if asked in ("true", "false") else settings.mode == "auto"


def _has(image: Environment, package: str) -> bool:
    return any(os.path.exists(f"{place}/{package}/__init__.py") for place in image.packages)
