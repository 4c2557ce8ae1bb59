"""What a container becomes as a process: arguments, environment, and what had to be approximated.

Reads the file system (is there such a program, such a directory) and changes nothing. On the plain level there is no
name service and one network for all. Names of the job's own headless service in environment values become the
loopback address, and the rendezvous port becomes one that no other job has. Both are said in an event, as is the
Python environment that stands in for the image.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.api.meta import Object
from trainmaster.node.launch.contract import START_ERROR, LaunchError
from trainmaster.node.status import ADDRESS
from trainmaster.node.threads import node_env

PORT_VARIABLE = "PET_MASTER_PORT"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['([^']*)'\]$")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs: the directory of its Pod and the Python environment that stands in for images."""

    directory: str
    python_prefix: str
    path: str
    """PATH of the control plane; that of the Pod begins with the environment's own programs."""
    lease_port: Callable[[int], int]
    """The port that the Pod's job may use in place of the asked-for one."""


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str
    approximations: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    env: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    port: tuple[int, int] | None = None


def build_launch(pod: Object, container: Mapping[str, Any], place: Place) -> Launch:
    draft = _Draft(env={**_build_base(pod, place), **node_env(pod, container)})
    for entry in container.get("env") or ():
        draft.env[entry["name"]] = _resolve(pod, entry, draft, place)
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not container.get("command"):
        raise LaunchError(
            START_ERROR,
            f'container "{container["name"]}" has no command, and there is no image to take one from: '
            "set command (with kubectl run: --command)",
        )
    argv = [_expand(part, draft.env) for part in command]
    directory = container.get("workingDir") or place.directory
    if not os.path.isdir(directory):
        raise LaunchError(START_ERROR, f"workingDir {directory} does not exist on this machine")
    program = shutil.which(argv[0], path=draft.env["PATH"]) if "/" not in argv[0] else argv[0]
    if program is None:
        raise LaunchError(START_ERROR, f'exec: "{argv[0]}": executable file not found in $PATH')
    if not os.access(os.path.join(directory, program), os.X_OK):
        raise LaunchError(START_ERROR, f'exec: "{argv[0]}": no such file or not executable')
    return Launch((program, *argv[1:]), draft.env, directory, tuple(_list_approximations(container, draft, place)))


def _build_base(pod: Object, place: Place) -> dict[str, str]:
    """What a container would have from its image and runtime. The Pod's own variables go over it."""
    return {
        "PATH": f"{place.python_prefix}/bin:{place.path}",
        "VIRTUAL_ENV": place.python_prefix,
        "HOME": place.directory,
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
        "LANG": "C.UTF-8",
        # Output to a file is block-buffered by default; people follow logs.
        "PYTHONUNBUFFERED": "1",
        # All Pods talk over loopback; gloo would look up the machine's own name and may find another interface.
        "GLOO_SOCKET_IFNAME": "lo",
        # Several agents on one machine otherwise try to share one store and hang (pod-runtime 9.1).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _resolve(pod: Object, entry: Mapping[str, Any], draft: _Draft, place: Place) -> str:
    source = (entry.get("valueFrom") or {}).get("fieldRef")
    if source is not None:
        return read_field(pod, source["fieldPath"])
    value = _expand(str(entry.get("value") or ""), draft.env)
    if entry["name"] == PORT_VARIABLE and value.isdigit():
        leased = place.lease_port(int(value))
        if leased != int(value):
            draft.port = (int(value), leased)
        return str(leased)
    return _replace_names(pod, value, draft)


def _replace_names(pod: Object, value: str, draft: _Draft) -> str:
    subdomain = pod["spec"].get("subdomain")
    if not subdomain or subdomain not in value:
        return value
    namespace = re.escape(pod["metadata"]["namespace"])
    host = r"(?<![A-Za-z0-9.-])[a-z0-9]([a-z0-9-]*[a-z0-9])?"
    name = rf"{host}\.{re.escape(subdomain)}(\.{namespace}(\.svc(\.cluster\.local)?)?)?(?![A-Za-z0-9-]|\.[A-Za-z0-9])"

    def put_address(match: re.Match[str]) -> str:
        draft.names.add(match.group(0))
        return ADDRESS

    return re.sub(name, put_address, value)


def read_field(pod: Object, path: str) -> str:
    match = _SUBSCRIPT.match(path)
    if match:
        return str((pod["metadata"].get(match.group(1)) or {}).get(match.group(2), ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.hostIP": ADDRESS,
        "status.hostIPs": ADDRESS,
        "status.podIP": ADDRESS,
        "status.podIPs": ADDRESS,
    }
    if path not in known:
        raise LaunchError(START_ERROR, f"unsupported fieldPath: {path}")
    return str(known[path])


def _expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` from what is known so far; an unknown one stays as it is, `$$(NAME)` is written as `$(NAME)`."""

    def put(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return env.get(match.group(1), match.group(0))

    return _REFERENCE.sub(put, text)


def _list_approximations(container: Mapping[str, Any], draft: _Draft, place: Place) -> list[str]:
    lines = []
    if container.get("image"):
        lines.append(f"image {container['image']} is run as the Python environment {place.python_prefix}")
    if draft.names:
        names = ", ".join(sorted(draft.names))
        lines.append(f"{names} in environment values became {ADDRESS}: the plain level has no name service")
    if draft.port is not None:
        asked, leased = draft.port
        lines.append(f"{PORT_VARIABLE} {asked} became {leased}: the plain level has one network for all jobs")
    if (container.get("resources") or {}).get("limits"):
        lines.append("resource limits are not enforced on the plain level")
    return lines
