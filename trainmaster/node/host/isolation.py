"""Chooses the isolation level of this node's Pods from what the probe found, or from a setting.

The probe runs in a separate process (`trainmaster.shim.probe`); its findings are cached in a file of the home until the
machine is rebooted or the user or the program changes. `decide_level` is pure. If a requested level is not available,
the error says why: there is no silent degradation.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from trainmaster.shim import features
from trainmaster.shim.features import IsolationFinding
from trainmaster.shim.protocol import FULL, PLAIN, USER, write_whole

Wanted = Literal["auto", "full", "user", "plain"]
_PROBE_SECONDS = 60.0
_NEEDED = (features.MOUNTS, features.PROCESSES, features.NETWORK)


class IsolationError(Exception):
    """The requested level is not available here; one sentence for the administrator."""


@dataclass(frozen=True, slots=True)
class Isolation:
    level: str
    why: str
    """One sentence."""
    findings: tuple[IsolationFinding, ...]

    def find(self, name: str) -> IsolationFinding:
        return next((one for one in self.findings if one.name == name), IsolationFinding(name, False, "was not tried"))


def decide_level(wanted: Wanted, uid: int, findings: Sequence[IsolationFinding]) -> Isolation:
    known = {one.name: one for one in findings}
    best, why = _choose_best(uid, known)
    if wanted in ("auto", best):
        return Isolation(best, why if wanted == "auto" else f"{why} (as set)", tuple(findings))
    if wanted == PLAIN:
        return Isolation(PLAIN, "set to plain: no namespaces, one network for all jobs", tuple(findings))
    if wanted == FULL and uid != 0:
        raise IsolationError("node.isolation is full, which needs a server that runs as root; user and auto do not")
    if wanted == USER and best == FULL:
        refused = known.get(features.USER_NAMESPACE)
        if refused is None or refused.works:
            return Isolation(USER, "set to user: Pods live in a user namespace, also under root", tuple(findings))
        raise IsolationError(f"node.isolation is user, but user namespaces are refused: {refused.detail}")
    raise IsolationError(f"node.isolation is {wanted}, but {why}")


def _choose_best(uid: int, known: Mapping[str, IsolationFinding]) -> tuple[str, str]:
    missing = [known[name] for name in _NEEDED if name in known and not known[name].works]
    tried = all(name in known for name in _NEEDED)
    if not tried:
        return PLAIN, "this machine has no namespaces"
    refused = known.get(features.USER_NAMESPACE)
    if missing:
        first = refused if refused is not None and not refused.works and uid != 0 else missing[0]
        return PLAIN, f"{first.name}: {first.detail}"
    if uid == 0:
        return FULL, "the server runs as root and may make namespaces"
    return USER, "an ordinary user may make user namespaces here"


async def choose_isolation(file: Path, wanted: Wanted) -> Isolation:
    """Runs the probe, or uses the findings cached in `file`."""
    return decide_level(wanted, os.geteuid(), await read_findings(file))


async def read_findings(file: Path) -> list[IsolationFinding]:
    key = _read_key()
    kept = _read_kept(file, key)
    if kept is not None:
        return kept
    findings = await run_probe()
    if findings and file.parent.is_dir():
        content = {"key": key, "findings": [asdict(one) for one in findings]}
        write_whole(str(file), json.dumps(content).encode())
    return findings


async def run_probe() -> list[IsolationFinding]:
    """Without Linux, or if the probe fails, there are no findings, and only the plain level remains."""
    if platform.system() != "Linux":
        return []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "trainmaster.shim.probe"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return []
    return parse_findings(output) if process.returncode == 0 else []


def parse_findings(output: bytes) -> list[IsolationFinding]:
    return [IsolationFinding(**entry) for entry in json.loads(output)]


def _read_key() -> dict[str, object]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    # Capabilities of this process: the same user may have had others in another container.
    return {"boot": boot, "uid": os.geteuid(), "capabilities": _read_capabilities(), "version": 1}


def _read_capabilities() -> str:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return ""
    return next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "")


def _read_kept(path: Path, key: Mapping[str, object]) -> list[IsolationFinding] | None:
    try:
        content = json.loads(path.read_bytes())
        if content["key"] != key:
            return None
        return [IsolationFinding(**entry) for entry in content["findings"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
