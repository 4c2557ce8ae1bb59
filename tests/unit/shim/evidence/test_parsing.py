"""What tools and programs write about stacks and collectives, and how much of it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.shim.evidence import dumps, recorder, spy
from trainmaster.shim.evidence.examining import fit

pytestmark = pytest.mark.unit

FAULTHANDLER = """\
Thread 0x00007f11d2ffd640 [loader] (most recent call first):
  File "/code/data.py", line 41 in load_batch
  File "/code/train.py", line 9 in main

Current thread 0x00007f11e3b4a740 (most recent call first):
  File "<string>", line ??? in <lambda>
"""


def test_stacks_of_faulthandler_are_read() -> None:
    assert dumps.parse(FAULTHANDLER) == [
        {
            "name": "loader",
            "tid": 0,
            "frames": [
                {"function": "load_batch", "file": "/code/data.py", "line": 41},
                {"function": "main", "file": "/code/train.py", "line": 9},
            ],
        },
        {"name": "MainThread", "tid": 0, "frames": [{"function": "<lambda>", "file": "<string>", "line": 0}]},
    ]
    assert dumps.parse("  File nonsense\nThread 0xzz\n") == []


@pytest.mark.parametrize(
    ("output", "want"),
    [
        ("Permission Denied: Try running again with elevated permissions: '(os error 1)'", True),
        ("Error: Failed to open /proc/7/maps: Permission denied (os error 13)", True),
        ("Error: Failed to find python version\nReason: x", False),
        ("", False),
    ],
)
def test_a_refusal_of_the_kernel_is_told_from_other_errors(output: str, want: bool) -> None:
    assert (spy.explain(output) == spy.REFUSED) == want


def test_the_oldest_collective_that_is_open() -> None:
    entries = [
        {"record_id": 3, "profiling_name": "nccl:all_gather", "state": "scheduled", "collective_seq_id": 9},
        {"record_id": 2, "profiling_name": "nccl:all_reduce", "state": "started", "collective_seq_id": 8},
        {"record_id": 1, "profiling_name": "nccl:broadcast", "state": "completed", "collective_seq_id": 7},
    ]
    found = recorder.read_dump(json.dumps({"entries": entries}))
    assert found is not None
    assert (found["name"], found["sequence"], found["state"]) == ("nccl:all_reduce", 8, "started")
    assert recorder.read_dump(json.dumps({"entries": entries[2:]})) is None


@pytest.mark.parametrize("text", ["\x80\x04pickle", "{", '{"entries": 3}', '{"entries": [[]]}', "[]"])
def test_what_is_no_json_dump_is_not_read(text: str) -> None:
    found = recorder.read_dump(text)
    assert found is not None and "not" in found["note"]


def build_process(pid: int, threads: int, depth: int) -> dict[str, Any]:
    frames = [{"function": f"f{number}", "file": "/code/train.py", "line": number} for number in range(depth)]
    stacks = [{"name": f"t{n}", "tid": pid + n, "active": n == 2, "frames": frames} for n in range(threads)]
    return {"pid": pid, "name": "python", "stacks": stacks}


@pytest.mark.parametrize("most", [200, 2_000, 20_000, 65_536])
def test_evidence_is_never_larger_than_its_limit(most: int) -> None:
    processes = [build_process(pid, 40, 120) for pid in range(1, 101)]
    assert len(fit(processes, None, most)) <= most


def test_what_says_most_is_kept_longest() -> None:
    found = json.loads(fit([build_process(7, 10, 200)], None, 3_000))
    (process,) = found["processes"]
    assert [thread["tid"] for thread in process["stacks"]][:2] == [7, 9], "the main thread, then the active one"
    frames = process["stacks"][0]["frames"]
    assert (frames[0]["line"], frames[-1]["line"]) == (0, 199)
    assert process["stacks"][0]["frames_left_out"] == 200 - len(frames)
    assert process["threads_left_out"] == 10 - len(process["stacks"])
