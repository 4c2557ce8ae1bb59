"""What must hold at every moment of chaos, read from the machine and not from the server.

`list_violations` looks at the ledger, the processes, the control groups and the Pods' directories of one home. What it
finds may be on its way out, so only what is still there some seconds later is a violation (`assert_sound`).
"""

from __future__ import annotations

import glob
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.crash.chaos_jobs import OVERLAP
from trainmaster.node.network.leases import name_home
from trainmaster.shim.processes import list_ancestors
from trainmaster.shim.sandbox.cgroups import NODE_GROUP, read_hierarchies
from trainmaster.shim.zygote import SPARES

_PATIENCE = 20.0
_CONTAINER_ID = b"TRAINMASTER_CONTAINER_ID="


def find_processes(wanted: Callable[[list[bytes], list[bytes]], bool]) -> list[int]:
    """Asked with the words of the command line and of the environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted(words, environ):
            found.append(int(name))
    return found


def find_named(home: Path, name: str) -> list[int]:
    """Processes of that name (`tm-zygote`, `tm-warm`) that belong to the home."""
    pods = os.fsencode(home / "pods")
    return [
        pid for pid in find_processes(lambda words, _: any(pods in word for word in words)) if _read_name(pid) == name
    ]


def list_programs(mark: str) -> dict[int, str]:
    """Pid to Pod uid, of all processes of containers that carry the mark."""
    found: dict[int, str] = {}
    for pid in find_processes(lambda _, environ: f"CHAOS_MARK={mark}".encode() in environ):
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        tokens = [word.removeprefix(_CONTAINER_ID) for word in words if word.startswith(_CONTAINER_ID)]
        if tokens:
            found[pid] = tokens[0].decode().partition("/")[0]
    return found


def list_groups(home: Path) -> list[tuple[str, str]]:
    """Path and Pod uid, of all control groups of Pods of the home."""
    prefix = f"{name_home(home / 'pods')}-"
    paths = [path for base in read_hierarchies().bases for path in glob.glob(f"{base}/{NODE_GROUP}/{prefix}*")]
    names = [(path, os.path.basename(path).removeprefix(prefix)) for path in paths]
    return [(path, uid) for path, uid in names if not uid.startswith("tenant-")]


def list_surplus(home: Path) -> list[str]:
    """Shims and warm zygotes that a home without unfinished Pods does not have. It may have a warm zygote, and a zygote
    of either kind may have spare shims."""
    warm = find_named(home, "tm-warm")
    parents = {*find_named(home, "tm-zygote"), *warm}
    shims = [(pid, _read_parent(pid)) for pid in find_named(home, "tm-shim")]
    spares = Counter(parent for _, parent in shims)
    return [f"warm zygote {pid}" for pid in warm[1:]] + [
        f"shim {pid} of {parent}" for pid, parent in shims if parent not in parents or spares[parent] > SPARES
    ]


def list_violations(home: Path, ledger: Path, mark: str) -> set[str]:
    found = set()
    for path in ledger.iterdir():
        lines = path.read_text().split()
        found |= {f"run twice: {path.name} {line}" for line, count in Counter(lines).items() if count > 1}
        if OVERLAP in lines:
            found.add(f"run twice at the same time: {path.name} {lines}")
    owned = [(f"process {pid}", uid) for pid, uid in list_programs(mark).items()]
    owned += [(f"group {path}", uid) for path, uid in list_groups(home)]
    found |= {
        f"{what} outlived the directory of its Pod {uid}" for what, uid in owned if not (home / "pods" / uid).exists()
    }
    zygotes = find_named(home, "tm-zygote")
    if len(zygotes) > 1:
        found.add(f"{len(zygotes)} zygotes: {zygotes}")
    return found


def assert_sound(home: Path, ledger: Path, mark: str) -> None:
    violations = list_violations(home, ledger, mark)
    deadline = time.monotonic() + _PATIENCE
    while violations:
        assert time.monotonic() < deadline, sorted(violations)
        time.sleep(0.1)
        violations &= list_violations(home, ledger, mark)


def count_descriptors(pid: int) -> Counter[str]:
    """Kinds of open descriptors: `socket`, `pipe`, `anon_inode`, or the path of a file."""
    kinds = Counter[str]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            kinds[os.readlink(entry).partition(":")[0]] += 1
        except OSError:
            continue
    return kinds


def _read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _read_parent(pid: int) -> int:
    """0 if it is gone."""
    return next(iter(list_ancestors(pid)), 0)
