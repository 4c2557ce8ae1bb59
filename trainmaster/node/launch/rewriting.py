"""Rewrites mounts, names and ports where there are no namespaces (the plain level). Pure.

An absolute mountPath in a command, an argument, a value or the working directory becomes the volume's directory. A name
of the Pod's headless service, or of a Pod of the same v1 job, becomes the loopback address, and a port that follows it
or is in a rendezvous variable becomes one that is leased to the gang; in a TFJob, where every Pod listens, to that Pod.
The names of an MPIJob's workers stay, because they name Pods to `kubectl exec`. All changes are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from trainmaster.api.training.reports import FOLDER
from trainmaster.api.v1jobs.frameworks import BY_KIND, JOB_NAME, MPI, TENSORFLOW, V1Framework
from trainmaster.api.workloads import POD, find_controller
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.launch.contract import LOOPBACK, LeasePort

PORT_VARIABLES = frozenset(
    {
        "COORDINATOR_PORT",
        "DMLC_PS_ROOT_PORT",
        "DMLC_TRACKER_PORT",
        "JAX_COORDINATOR_PORT",
        "MASTER_PORT",
        "PET_MASTER_PORT",
    }
)
_BEGIN = r"(?<![A-Za-z0-9.-])"
_HOST = rf"{_BEGIN}[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_END = r"(?![A-Za-z0-9-]|\.[A-Za-z0-9])"


@dataclass(frozen=True, slots=True)
class HostNames:
    """The names of a gang's Pods in a text. Compiled only for a text with the part that all of them have."""

    part: str
    pattern: str

    def sub(self, put: Callable[[re.Match[str]], str], text: str) -> str:
        return re.sub(self.pattern, put, text) if self.part in text else text


@dataclass(slots=True)
class Rewriter:
    """For one container. Collects what it changed."""

    paths: Mapping[str, str]
    """mountPath -> directory."""
    names: HostNames | None
    lease_port: LeasePort
    all_listen: bool = False
    """Whether every Pod of the gang listens on the port, not just one."""
    seen_paths: set[str] = field(default_factory=set)
    seen_names: set[str] = field(default_factory=set)
    seen_ports: dict[tuple[str, int], int] = field(default_factory=dict)
    _pattern: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        self._pattern = _build_path_pattern(self.paths)

    def rewrite(self, text: str) -> str:
        return self.rewrite_names(self.rewrite_paths(text))

    def rewrite_paths(self, text: str) -> str:
        if self._pattern is None or "/" not in text:
            return text
        return self._pattern.sub(self._put_path, text)

    def rewrite_variable(self, name: str, value: str) -> str:
        if name in PORT_VARIABLES and value.isdigit():
            return str(self._lease(int(value)))
        return self.rewrite(value)

    def rewrite_names(self, text: str) -> str:
        return self.names.sub(self._put_address, text) if self.names is not None else text

    def list_notes(self) -> list[str]:
        lines = []
        # Every trainer has the one for reports, which the user did not ask for.
        if seen := sorted(self.seen_paths - {FOLDER}):
            shown = ", ".join(f"{path} became {self.paths[path]}" for path in seen)
            lines.append(f"{shown} in command, arguments and variables: the plain level has no mounts")
        if self.seen_names:
            shown = ", ".join(sorted(self.seen_names))
            lines.append(f"{shown} became {LOOPBACK}: the plain level has no name service")
        for (host, asked), leased in sorted(self.seen_ports.items()):
            if asked != leased:
                whose = f" of {host}" if host else ""
                lines.append(f"port {asked}{whose} became {leased}: the plain level has one network for all jobs")
        return lines

    def _put_path(self, match: re.Match[str]) -> str:
        self.seen_paths.add(match.group(0))
        return self.paths[match.group(0)]

    def _put_address(self, match: re.Match[str]) -> str:
        self.seen_names.add(match.group("name"))
        port = match.group("port")
        host = match.group("host") if self.all_listen else ""
        return f"{LOOPBACK}:{self._lease(int(port), host)}" if port else LOOPBACK

    def _lease(self, asked: int, host: str = "") -> int:
        self.seen_ports[host, asked] = leased = self.lease_port(asked, host)
        return leased


def build_rewriter(pod: Pod, paths: Mapping[str, str], lease_port: LeasePort) -> Rewriter:
    return Rewriter(paths, _build_host_names(pod), lease_port, _find_framework(pod) is TENSORFLOW)


def _find_framework(pod: Pod) -> V1Framework | None:
    """That of the v1 job that controls the Pod."""
    owner = find_controller(pod.raw, POD)
    return None if owner is None else BY_KIND.get(owner.kind)


def _build_path_pattern(paths: Iterable[str]) -> re.Pattern[str] | None:
    longest = sorted((path for path in paths if path != "/"), key=len, reverse=True)
    if not longest:
        return None
    # A path starts where no other continues, or after the scheme of a file URL; it ends at a slash or at the end of a
    # name.
    begin = r"(?:(?<=file://)|(?<![\w./-]))"
    return re.compile(begin + "(?:" + "|".join(map(re.escape, longest)) + r")(?=/|(?![\w.-])|\.(?!\w))")


def _build_host_names(pod: Pod) -> HostNames | None:
    if pod.subdomain:
        part = f".{pod.subdomain}"
        host = f"{_HOST}{re.escape(part)}"
    elif JOB_NAME in pod.labels and _find_framework(pod) not in (None, MPI):
        part = f"{pod.labels[JOB_NAME]}-"
        host = rf"{_BEGIN}{re.escape(part)}[a-z]+-\d+"
    else:
        return None
    tail = rf"(?:\.{re.escape(pod.namespace)}(?:\.svc(?:\.cluster\.local)?)?)?"
    return HostNames(part, rf"(?P<name>(?P<host>{host}){tail}){_END}(?::(?P<port>\d{{1,5}})(?!\d))?")
