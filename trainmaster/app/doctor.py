"""The checks of `trainmaster doctor` for a machine and its home, one function each; the dashboard shows them too.

They change nothing and need no running server. A check returns findings: a name, a state, what was observed, and how to
fix it if it is a problem. To add a check, write a function and add it to `CHECKS`.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainmaster.app.home.control import ControlError, ControlMessage, ask
from trainmaster.app.home.folder import Home
from trainmaster.app.settings import Settings
from trainmaster.node.host.hardware import measure_memory
from trainmaster.node.host.isolation import IsolationError, decide_level, run_probe
from trainmaster.node.shims.pod_directory import list_live
from trainmaster.node.shims.warm import compute_budget
from trainmaster.shim import features
from trainmaster.shim.features import IsolationFinding
from trainmaster.shim.protocol import PLAIN
from trainmaster.shim.sandbox import linux
from trainmaster.store.damages import list_damages
from trainmaster.version import __version__

State = Literal["ok", "note", "problem"]
_GIB = 1 << 30
_LITTLE_DISK = 2 * _GIB
_PATIENCE = 2.0
"""Seconds for an answer of the server."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    check: str
    state: State
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    home: Home
    settings: Settings
    findings: tuple[IsolationFinding, ...]
    """The results of the isolation probe, which runs once for all checks."""


Check = Callable[[MachineFacts], list[Diagnosis]]

_ADVICE = {
    features.USER_NAMESPACE: "allow user namespaces for ordinary users, or run the server as root",
    features.MOUNTS: "run as root, or where ordinary users may make user namespaces",
    features.OVERLAY: "needs Linux 5.11 for ordinary users; without it mount points cost a little more",
    features.PROCESSES: "in a nested container, /proc must not be masked",
    features.NETWORK: "the kernel needs veth and bridge; without them jobs share one network",
    features.GROUPS: "run as root, or let the service manager delegate control groups; limits are watched until then",
    features.KILL: "needs Linux 5.14 and a writable unified hierarchy",
    features.SECCOMP: "",
}


async def examine(home: Home, settings: Settings) -> list[Diagnosis]:
    patient = MachineFacts(home, settings, tuple(await run_probe()))
    return [line for check in CHECKS for line in check(patient)]


def check_isolation(patient: MachineFacts) -> list[Diagnosis]:
    wanted = patient.settings.node.isolation
    try:
        found = decide_level(wanted, os.geteuid(), patient.findings)
    except IsolationError as error:
        return [Diagnosis("isolation", "problem", str(error), "set node.isolation to auto")]
    weak = found.level == PLAIN and wanted == "auto"
    advice = "jobs run, but share one network and see the machine's files; see docs/isolation.md" if weak else ""
    return [Diagnosis("isolation", "note" if weak else "ok", f"{found.level}: {found.why}", advice)]


def check_probes(patient: MachineFacts) -> list[Diagnosis]:
    if not patient.findings:
        return [Diagnosis("probe", "note", f"nothing could be tried on {platform.system()}")]
    return [
        Diagnosis(one.name, "ok", one.detail or "works")
        if one.works
        else Diagnosis(one.name, "note", one.detail, _ADVICE.get(one.name, ""))
        for one in patient.findings
    ]


def check_gpus(patient: MachineFacts) -> list[Diagnosis]:
    found = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if not found:
        return [Diagnosis("gpus", "ok", "none")]
    if not os.access(f"/dev/{found[0]}", os.R_OK | os.W_OK):
        advice = "add this user to the group that owns the device files"
        return [Diagnosis("gpus", "problem", f"{', '.join(found)} cannot be opened", advice)]
    return [Diagnosis("gpus", "ok", ", ".join(found))]


def check_warm(patient: MachineFacts) -> list[Diagnosis]:
    server = patient.home.find_running()
    wanted = (server.warm if server is not None else "") or patient.settings.node.warm
    whose = "of the running server" if server is not None and server.warm else "node.warm"
    if wanted == "off":
        return [Diagnosis("warm start", "ok", f"off ({whose})")]
    reply = _ask_about_warm(patient.home) if server is not None else {}
    budget = int(reply.get("budget", compute_budget(patient.settings.node.warm_mib, measure_memory())))
    if not budget:
        seen = f"auto ({whose}), but this machine has too little memory for it"
        return [Diagnosis("warm start", "note", seen, "set node.warm_mib to try it nevertheless")]
    if not reply and importlib.util.find_spec("torch") is None:
        seen = f"auto ({whose}), but this environment has no torch: only Pods with one that has it start warm"
        return [Diagnosis("warm start", "note", seen, "see docs/warm-start.md")]
    seen = f"auto ({whose}): Python programs start with torch imported, in up to {budget >> 20} MiB"
    return [Diagnosis("warm start", "ok", seen), *map(_describe_prepared, reply.get("found", ()))]


def _describe_prepared(entry: Mapping[str, Any]) -> Diagnosis:
    seen = f"{entry['environment']} in namespace {entry['namespace']}: {entry['state']}"
    return Diagnosis("warm environment", "ok" if entry["is_ready"] else "note", seen)


def _ask_about_warm(home: Home) -> ControlMessage:
    try:
        return ask(home.root, {"operation": "warm"}, timeout=_PATIENCE)
    except (OSError, ValueError, ControlError):
        return {}  # it is starting, or has another version


def check_disk(patient: MachineFacts) -> list[Diagnosis]:
    place = patient.home.root
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    seen = f"{usage.free / _GIB:.1f} GiB free of {usage.total / _GIB:.1f} GiB at {place}"
    if usage.free < _LITTLE_DISK:
        return [Diagnosis("disk", "problem", seen, "free some, or choose another home with --home")]
    return [Diagnosis("disk", "ok", seen)]


def check_store(patient: MachineFacts) -> list[Diagnosis]:
    """Data that was missing when the server started."""
    advice = "look over your jobs, or `trainmaster restore` a backup; then remove the damage-* files there"
    return [
        Diagnosis("store", "problem", f"{damage.found}: {damage.describe()}", advice)
        for damage in list_damages(patient.home.store)
    ]


def check_clock(_: MachineFacts) -> list[Diagnosis]:
    if platform.system() != "Linux":
        return []
    if linux.is_clock_synchronised():
        return [Diagnosis("clock", "ok", "synchronised")]
    advice = "tokens and deadlines depend on it: run a time service, unless a hypervisor keeps it"
    return [Diagnosis("clock", "note", "nobody keeps it synchronised", advice)]


def check_home(patient: MachineFacts) -> list[Diagnosis]:
    root = patient.home.root
    if not root.exists():
        return [Diagnosis("home", "ok", f"{root} (made by the first `trainmaster up`)")]
    if not os.access(root, os.W_OK | os.X_OK):
        return [Diagnosis("home", "problem", f"{root} cannot be written", "choose another with --home")]
    info = patient.home.find_running()
    return [Diagnosis("home", "ok", f"{root}, " + (f"served by process {info.pid}" if info else "no server runs"))]


def check_server(patient: MachineFacts) -> list[Diagnosis]:
    """Whether the server has the version of this command, and whether Pods are waiting for a server to return."""
    info = patient.home.find_running()
    if info is None:
        pods = list_live(patient.home.pods)
        if not pods:
            return []
        seen = f"none runs, and {len(pods)} Pods of it live on"
        return [Diagnosis("server", "note", seen, "`trainmaster up --detach` takes them over")]
    if info.version and info.version != __version__:
        seen = f"version {info.version} runs, this command is {__version__}"
        advice = "`trainmaster down`, then `trainmaster up --detach`: Pods live on meanwhile"
        return [Diagnosis("server", "note", seen, advice)]
    return [Diagnosis("server", "ok", f"version {info.version} at {info.server or 'an address to come'}")]


def check_privacy(patient: MachineFacts) -> list[Diagnosis]:
    """Whether others can read the kubeconfig or the keys, which give full access."""
    private = stat.S_IRWXG | stat.S_IRWXO
    rules = {
        patient.home.root: stat.S_IWGRP | stat.S_IWOTH,
        patient.home.kubeconfig: private,
        patient.home.pki: private,
    }
    open_to_others = [str(path) for path, bits in rules.items() if path.exists() and path.stat().st_mode & bits]
    if not open_to_others:
        return []
    advice = f"chmod go-rwx {shlex.join(open_to_others)}"
    return [Diagnosis("privacy", "problem", f"open to other users: {', '.join(open_to_others)}", advice)]


def check_kubectl(_: MachineFacts) -> list[Diagnosis]:
    found = shutil.which("kubectl")
    if found is None:
        return [
            Diagnosis("kubectl", "note", "not installed", "not needed: `trainmaster --help` lists our own commands")
        ]
    return [Diagnosis("kubectl", "ok", found)]


def check_system(_: MachineFacts) -> list[Diagnosis]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    seen = f"{system}, {cores} cores, uid {os.geteuid()}"
    return [Diagnosis("system", "ok", seen)]


CHECKS: tuple[Check, ...] = (
    check_system,
    check_home,
    check_privacy,
    check_server,
    check_kubectl,
    check_isolation,
    check_probes,
    check_gpus,
    check_warm,
    check_disk,
    check_store,
    check_clock,
)
