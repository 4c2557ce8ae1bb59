"""Whether the machine runs short of disk, memory or processes, and what the Node says about it. Pure.

A condition turns True below a threshold and False again some way above it, so that it does not flicker. While it is
True a taint keeps new Pods away (`controllers.scheduler.placement`); those that run go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.node.hardware import Health

MIB = 1024**2
_MEMORY_FREE = 100 * MIB
"""As kubelet."""
_PROCESS_SHARE = 0.95
_RELIEF = 1.2
"""How far above its threshold a value must be before all is well again."""


@dataclass(frozen=True, slots=True)
class Finding:
    condition: str
    taint: str
    is_true: bool
    reason: str
    message: str


def judge(health: Health, min_free_disk: int, before: Mapping[str, bool]) -> list[Finding]:
    """`before`: which conditions are True now."""
    findings = []
    factor = _RELIEF if before.get("MemoryPressure") else 1.0
    short = health.memory_free_bytes < _MEMORY_FREE * factor
    free = health.memory_free_bytes // MIB
    text = f"{free} MiB of memory are left" if short else "there is enough memory"
    findings.append(_find("MemoryPressure", "memory", short, "InsufficientMemory", "SufficientMemory", text))
    factor = _RELIEF if before.get("DiskPressure") else 1.0
    short = health.disk_free_bytes < min_free_disk * factor
    free, least = health.disk_free_bytes // MIB, min_free_disk // MIB
    text = (
        f"the disk of the home has {free} MiB left, {least} are kept free: no new Pods"
        if short
        else "the disk has room"
    )
    findings.append(_find("DiskPressure", "disk", short, "DiskPressure", "NoDiskPressure", text))
    factor = 1 / _RELIEF if before.get("PIDPressure") else 1.0
    short = health.processes > health.processes_most * _PROCESS_SHARE * factor
    text = (
        f"{health.processes} of {health.processes_most} processes are in use" if short else "processes can be started"
    )
    findings.append(_find("PIDPressure", "pid", short, "InsufficientPID", "SufficientPID", text))
    return findings


def _find(condition: str, word: str, short: bool, bad: str, good: str, text: str) -> Finding:
    """Reasons as kubelet gives them."""
    return Finding(condition, f"node.kubernetes.io/{word}-pressure", short, f"KubeletHas{bad if short else good}", text)


def merge_taints(taints: Sequence[Mapping[str, Any]], findings: Sequence[Finding]) -> list[Mapping[str, Any]]:
    """The Node's taints with ours as they should be; those of others stay."""
    own = {finding.taint for finding in findings}
    kept: list[Mapping[str, Any]] = [taint for taint in taints if taint.get("key") not in own]
    known = {taint.get("key"): taint for taint in taints}
    for finding in findings:
        if finding.is_true:
            kept.append(known.get(finding.taint) or {"key": finding.taint, "effect": "NoSchedule"})
    return kept
