"""Decides whether the machine is short of disk, memory or processes, and the Node's conditions and taints. Pure.

A condition turns True below a threshold and False again some way above it, so that it does not flap. While it is True a
taint keeps new Pods away (`controllers.scheduler.placement`). `eviction` decides which Pods are evicted; DiskPressure
stays for a while after that, so that evicted Pods do not come back immediately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Fields
from trainmaster.api.pods.requests import render_amount
from trainmaster.node.host.hardware import NodeHealth

MIB = 1024**2
_MEMORY_FREE = 100 * MIB
"""As in the kubelet."""
_PROCESS_SHARE = 0.95
_RELIEF = 1.2
"""How far above its threshold a value must be before the condition clears."""


_DISK_SHARE = 10
"""On a small disk the threshold is this fraction of it."""


def decide_thresholds(total: int, min_free: int) -> tuple[int, int]:
    """Free bytes of the disk below which it is short, and below which it is nearly full."""
    soft = min(min_free, total // _DISK_SHARE)
    return soft, soft // 2


@dataclass(frozen=True, slots=True)
class PressureFinding:
    condition: str
    taint: str
    is_true: bool
    reason: str
    message: str


def is_disk_short(health: NodeHealth, min_free_disk: int, *, before: bool) -> bool:
    soft, _ = decide_thresholds(health.disk_bytes, min_free_disk)
    return health.disk_free_bytes < soft * (_RELIEF if before else 1.0)


def judge(
    health: NodeHealth, min_free_disk: int, before: Mapping[str, bool], *, disk_was_short: bool = False
) -> list[PressureFinding]:
    """`before`: which conditions are True now. `disk_was_short`: a short while ago."""
    findings = []
    factor = _RELIEF if before.get("MemoryPressure") else 1.0
    short = health.memory_free_bytes < _MEMORY_FREE * factor
    free = health.memory_free_bytes // MIB
    text = f"{free} MiB of memory are left" if short else "there is enough memory"
    findings.append(_find("MemoryPressure", "memory", short, "InsufficientMemory", "SufficientMemory", text))
    is_short = is_disk_short(health, min_free_disk, before=before.get("DiskPressure", False))
    short = is_short or disk_was_short
    text = _describe_disk(health, min_free_disk, is_short=is_short) if short else "the disk has room"
    findings.append(_find("DiskPressure", "disk", short, "DiskPressure", "NoDiskPressure", text))
    factor = 1 / _RELIEF if before.get("PIDPressure") else 1.0
    short = health.processes > health.processes_most * _PROCESS_SHARE * factor
    text = (
        f"{health.processes} of {health.processes_most} processes are in use" if short else "processes can be started"
    )
    findings.append(_find("PIDPressure", "pid", short, "InsufficientPID", "SufficientPID", text))
    return findings


def _describe_disk(health: NodeHealth, min_free_disk: int, *, is_short: bool) -> str:
    """The free space is rounded, because waiting jobs repeat the text, and each of its changes is a write."""
    least, _ = decide_thresholds(health.disk_bytes, min_free_disk)
    step = max(1, least // MIB // 100) * MIB
    free = render_amount("memory", health.disk_free_bytes // step * step)
    numbers = f"{free} free, {render_amount('memory', least)} must stay free (setting node.min_free_disk_mib)"
    if is_short:
        return f"the disk of {health.disk_path} is nearly full: {numbers}"
    return f"the disk of {health.disk_path} was nearly full a moment ago: {numbers}; new Pods start within a minute"


def _find(condition: str, word: str, short: bool, bad: str, good: str, text: str) -> PressureFinding:
    """Reasons as in the kubelet."""
    return PressureFinding(
        condition, f"node.kubernetes.io/{word}-pressure", short, f"KubeletHas{bad if short else good}", text
    )


def merge_taints(taints: Sequence[Fields], findings: Sequence[PressureFinding]) -> list[Fields]:
    """The Node's taints with ours updated; those of others are kept."""
    own = {finding.taint for finding in findings}
    kept: list[Fields] = [taint for taint in taints if taint.get("key") not in own]
    known = {taint.get("key"): taint for taint in taints}
    for finding in findings:
        if finding.is_true:
            kept.append(known.get(finding.taint) or {"key": finding.taint, "effect": "NoSchedule"})
    return kept
