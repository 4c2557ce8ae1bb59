"""Evidence as text."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cli.view.evidence import describe, find_place
from trainmaster.history import evidence

pytestmark = pytest.mark.unit


def build_process(pid: int, *frames: tuple[str, str, int], **more: Any) -> dict[str, Any]:
    found = [{"function": name, "file": file, "line": line} for name, file, line in frames]
    return {
        "pid": pid,
        "name": "python",
        "command": "python train.py",
        "state": "S",
        "waits_in": "futex_do_wait",
        "threads": 1,
        "cpu_percent": 0,
        "rss": 1 << 30,
        "stacks": [{"name": "MainThread", "tid": pid, "state": "S", "waits_in": "", "gil": True, "frames": found}],
        **more,
    }


def build_rank(*processes: dict[str, Any], **more: Any) -> dict[str, Any]:
    seat = {"job": "node", "job_index": 0, "worker": 3, "container": "node", "error": "", "lines": [], "gpus": []}
    memory = {"used": 1 << 30, "peak": 2 << 30, "limit": 16 << 30, "oom_kills": 0}
    return {**seat, "memory": memory, "processes": list(processes), "collective": None, "end": None, **more}


def show(*ranks: dict[str, Any], reason: str = evidence.DEADLINE) -> str:
    document = {"attempt": 2, "reason": reason, "at": "2026-11-19T02:20:13Z", "seconds": 0.41, "ranks": list(ranks)}
    return "\n".join(describe(document, "default/mnist"))


LOADER = build_process(7, ("sleep", "/env/lib/python3.11/site-packages/x.py", 1), ("load_batch", "/code/data.py", 41))


def test_a_rank_says_where_it_stands() -> None:
    assert (
        show(build_rank(LOADER, lines=["step 41"]))
        == """\
default/mnist, attempt 2: before it was stopped at its deadline, 2026-11-19T02:20:13Z, in 0.4 s

rank 3 of node: load_batch (data.py:41)
  memory      1.0 GiB of 16.0 GiB, at most 2.0 GiB
  pid 7       python train.py
              sleeps in futex_do_wait, 0 % of a CPU, 1 thread, 1.0 GiB
    MainThread (7): sleeps, holds the GIL
      sleep (/env/lib/python3.11/site-packages/x.py:1)
      load_batch (/code/data.py:41)
  last lines
    step 41"""
    )


def test_the_place_is_that_of_the_last_process_with_code_of_its_own() -> None:
    launcher = build_process(1, ("main", "/env/bin/torchrun", 8))
    helper = build_process(9, ("wait", "/usr/lib/python3.11/threading.py", 8))
    assert find_place(build_rank(launcher, LOADER, helper)) == "load_batch (data.py:41)"
    assert find_place(build_rank({**LOADER, "stacks": []})) == ""


def test_what_ended_was_killed_or_cannot_be_seen_is_said() -> None:
    end = {"at": "2026-11-19T02:20:13Z", "code": 137, "signal": 9, "oom_killed": True, "message": ""}
    memory = {"used": None, "peak": None, "limit": 16 << 30, "oom_kills": 2}
    text = show(build_rank(end=end, memory=memory, error="it had ended"), reason=evidence.FAILED)
    assert "ended       by signal 9, killed by the kernel because the memory was used up" in text
    assert "memory      limit 16.0 GiB, the kernel killed 2 processes because it was used up" in text
    assert "processes   unknown: it had ended" in text
    assert "no stacks: the kernel" in show(
        build_rank(build_process(7, stacks=[], error="the kernel does not permit it"))
    )


def test_collectives_and_gpus() -> None:
    collective = {"name": "nccl:all_reduce", "sequence": 8, "state": "started", "group": "default_pg", "note": ""}
    gpus = [{"index": 0, "id": "GPU-1", "percent": 100, "memory_mib": 2048}]
    text = show(build_rank(collective=collective, gpus=gpus))
    assert "collective  nccl:all_reduce (number 8 of default_pg) is started" in text
    assert "gpu 0       100 %, 2.0 GiB" in text


def test_text_of_programs_has_no_effect_on_the_terminal() -> None:
    evil = "a\x1b[2Jb\x9bc\nd"
    process = build_process(7, (evil, evil, 1), command=evil, waits_in=evil, error=evil)
    process["stacks"][0]["name"] = evil
    text = show(build_rank(process, lines=[evil], error=evil, job=evil, collective={"note": evil}))
    assert not any((ord(letter) < 32 and letter != "\n") or 127 <= ord(letter) < 160 for letter in text)
    assert "\nd" not in text
