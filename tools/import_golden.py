"""Makes the expectations in `tests/golden/data/` from a folder of objects recorded from upstream's programs.

    python -m tools.import_golden FOLDER

FOLDER holds one folder per version of Trainer (2.1, 2.3) with a folder per case: `manifest.json`, `running/KIND.json`,
`KIND.json`, `events.json`, and for cases with steps `steps.json` and a numbered folder per step. The folder `v1` has
the same of training-operator 1.8 (`golden_v1.py`). Written: one JSON file per case with what was submitted, what was
done and seen in order, and the masked objects; per version the runtimes that were installed and the refused manifests
with the texts of their answers. The output depends on the input alone. The recordings are not part of this
repository; the tests need only the output.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.golden.masking import (
    Object,
    drop_counts,
    mask_captures,
    mask_events,
    read_snapshot,
    strip_runtime,
)
from tools import golden_v1
from tools.golden_answers import read_answer, read_refusal
from tools.golden_objects import read_objects
from tools.golden_runtimes import build_runtimes

DATA = Path(__file__).resolve().parent.parent / "tests" / "golden" / "data"
VERSIONS = ("2.1", "2.3")
POD_SECONDS = {"2.1": 6.0, "2.3": 2.0}
"""How long the recorded Pods ran before they ended by themselves."""
SETTLE = {"2.1": 2.5, "2.3": 0.5}
"""How long after the Pods ran the picture `running` was taken."""

# Where the pictures of a case with steps were taken: numbers are entries of steps.json.
ORDER: dict[str, tuple[int | str, ...]] = {
    "2.1/s1-suspended": ("1-suspended", 0, "2-changed", 1, 2, "3-resumed"),
    "2.1/s2-suspended-while-running": ("running", 0, 1, 2, "1-suspended", 3, "2-changed", 4, "3-resumed"),
    "2.1/s3-numnodes-suspended": (0, "1-changed", 1),
    "2.1/s4-numnodes-running": ("running", 0, "1-changed", 1),
    "2.1/s5-running-suspended-resumed": ("running", 0, 1, 2, "1-suspended", 3, "2-changed", 4, "3-resumed"),
    "2.1/s6-volume-suspended": (0, "1-changed", 1),
}
LAST = {
    "2.1/m1-deepspeed": "launcher",
    "2.1/m2-mlx": "node",
    "2.1/m3-deepspeed-gpus-count": "launcher",
    "2.3/c-deepspeed-mpi": "launcher",
}
"""The job whose Pods were seen to end last, where that decides about the outcome and all Pods ran equally long."""
TAKEN_AT_ONCE = ("2.1/r2-failed-backoff",)
CLEANED_UP = {"2.3/n-ttl-runtime": 5.0}
"""Seconds from the terminal condition to the last picture; 1.5 elsewhere. A TTL of two seconds has struck by then."""
RESUME: Object = {"spec": {"suspend": False}}

_KINDS = (
    "trainjobs",
    "jobsets",
    "jobs",
    "pods",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "podgroups-coscheduling",
    "podgroups-volcano",
)


def build_case(version: str, folder: Path) -> Object:
    name = f"{version}/{folder.name}"
    manifest = json.loads((folder / "manifest.json").read_text())
    case: Object = {"case": name, "manifest": manifest, "podSeconds": POD_SECONDS[version], "last": LAST.get(name, "")}
    refusal = folder / "rejected.txt"
    if refusal.exists():
        return {**case, "refused": read_refusal(refusal.read_text().strip())}
    end = read_objects(folder, _KINDS)
    captures = {part.name: read_objects(part, _KINDS) for part in sorted(folder.iterdir()) if part.is_dir()}
    loose = ["running"] if (version == "2.3" or name in TAKEN_AT_ONCE) and "running" in captures else []
    for moment in loose:
        captures[moment] = [drop_counts(obj) for obj in captures[moment]]
    return {
        **case,
        "loose": loose,
        "acts": list(build_acts(version, folder, end)),
        "captures": mask_captures({**captures, "end": end}),
        "events": mask_events(json.loads((folder / "events.json").read_text())),
    }


def build_acts(version: str, folder: Path, end: Iterable[Object]) -> Iterable[Object]:
    """What was done and seen, in order; `after`: seconds to wait first."""
    name = f"{version}/{folder.name}"
    settle = SETTLE[version]
    if name in ORDER:
        steps = json.loads((folder / "steps.json").read_text())
        for entry in ORDER[name]:
            if isinstance(entry, int):
                yield {"do": "patch", "patch": steps[entry]["patch"], "answer": read_answer(steps[entry]["answer"])}
            else:
                yield {"do": "capture", "name": entry, "after": settle}
    elif (folder / "running").exists():
        yield {"do": "capture", "name": "running", "after": settle}
    finished = _find_end(end)
    yield {"do": "until", "condition": finished} if finished else {"do": "wait", "after": 20.0}
    if (folder / "1-complete").exists():
        yield {"do": "capture", "name": "1-complete", "after": 0.0}
        yield {"do": "wait", "after": 20.0}
    yield {"do": "events", "after": CLEANED_UP.get(name, 1.5)}
    yield {"do": "capture", "name": "end", "after": 0.0}
    if (folder / "resumed").exists():
        yield {"do": "patch", "patch": RESUME, "answer": None}
        yield {"do": "until", "condition": "Complete"}
        yield {"do": "capture", "name": "resumed", "after": 1.0}


def _find_end(objects: Iterable[Object]) -> str | None:
    """The terminal condition of the TrainJob, if it got one."""
    for obj in objects:
        if obj["kind"] == "TrainJob":
            for condition in (obj.get("status") or {}).get("conditions") or ():
                if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
                    return str(condition["type"])
    return None


def collect_runtimes(folder: Path) -> list[Object]:
    """The cluster's runtimes, from the snapshots that 2.3 keeps of them."""
    found: dict[str, Object] = {}
    for path in sorted(folder.glob("*/configmaps.json")):
        for config_map in json.loads(path.read_text()):
            if "runtime" in config_map["data"]:
                runtime = strip_runtime(read_snapshot(config_map["data"]["runtime"]))
                if runtime["kind"] == "ClusterTrainingRuntime":
                    found[runtime["metadata"]["name"]] = runtime
    return [found[name] for name in sorted(found)]


def collect_refusals(folder: Path) -> list[Object]:
    rows = json.loads((folder / "rejected" / "rejected.json").read_text())
    head = ("case", "object", "patch")
    return [{**{key: row[key] for key in head if key in row}, "answer": read_answer(row["message"])} for row in rows]


def encode(value: Any, depth: int = 2) -> str:
    """Sorted and compact, but one object per line where a reader would look for one."""
    if depth and isinstance(value, Mapping) and value:
        body = ",\n".join(f"{json.dumps(key)}: {encode(value[key], depth - 1)}" for key in sorted(value))
        return "{\n" + body + "\n}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(json.dumps(entry, sort_keys=True, separators=(",", ":")) for entry in value) + "\n]"
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def build_files(source: Path) -> dict[str, str]:
    """File name in the data folder -> text."""
    files: dict[str, str] = {}
    for version in VERSIONS:
        folder = source / version
        runtimes = collect_runtimes(folder) or build_runtimes()
        files[f"{version}/runtimes.json"] = encode(runtimes) + "\n"
        files[f"{version}/refusals.json"] = encode(collect_refusals(folder)) + "\n"
        for case in sorted(path for path in folder.iterdir() if (path / "manifest.json").exists()):
            files[f"{version}/cases/{case.name}.json"] = encode(build_case(version, case)) + "\n"
    v1 = source / "v1"
    files[f"{golden_v1.VERSION}/refusals.json"] = encode(collect_refusals(v1)) + "\n"
    for name, value in golden_v1.build_files(v1).items():
        files[f"{golden_v1.VERSION}/{name}"] = encode(value) + "\n"
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the recordings")
    files = build_files(parser.parse_args().folder)
    for path in sorted(DATA.rglob("*.json")):
        if str(path.relative_to(DATA)) not in files:
            path.unlink()
    for name, text in files.items():
        (DATA / name).parent.mkdir(parents=True, exist_ok=True)
        (DATA / name).write_text(text)
    print(f"wrote {len(files)} files, {sum(map(len, files.values())) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
