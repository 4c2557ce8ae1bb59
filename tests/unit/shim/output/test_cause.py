"""Why a program failed, as its output tells: one function for all readers, for every way to fail that people meet."""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable

import pytest

from trainmaster.shim.output.cause import FailureCause, excerpt, read_cause

pytestmark = pytest.mark.unit

HEAD = "Traceback (most recent call last):"
LIBRARY = "/opt/env/lib/python3.11/site-packages/torch/serialization.py"
OWN = ['  File "/workspace/code/train.py", line 4, in load', '    return torch.load("/does/not/exist.pt")']
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/does/not/exist.pt'"
GLOO = (
    "RuntimeError: [/__w/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[10.244.0.7]:43182. This is typically caused by a remote worker crashing."
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2005, remote process exited or there was "
    "a network error, NCCL version 2.27.5"
)
WORKER = (
    "E1116 13:28:55.419000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {}) local_rank: "
    "0 (pid: 6) of binary: /usr/bin/python3"
)
LAUNCHER = [
    HEAD,
    '  File "/opt/env/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    "             ^^^^^^",
    *(f'  File "/opt/env/lib/python3.11/site-packages/torch/distributed/run.py", line {n}, in main' for n in range(9)),
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "Root Cause (first observed failure):",
    "[0]:",
    "  exitcode  : 1 (pid: 6) ",
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    "============================================================",
]
STOPPED = [
    "W1116 13:29:05.2 2 torch/distributed/elastic/agent/server/api.py:752] Received 15 death signal, shutting down",
    *LAUNCHER[:5],
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2 got signal: 15",
]


def tell(cause: FailureCause) -> str:
    return f"{cause.error}, at {cause.place}" if cause.place else cause.error


def deep(frames: int, error: str = MISSING) -> list[str]:
    """A traceback of own code that calls a library many frames deep."""
    inside = [f'  File "{LIBRARY}", line {number}, in call\n    return call()' for number in range(frames)]
    return [HEAD, *OWN, *"\n".join(inside).splitlines(), error]


def prefixed(rank: int, lines: list[str]) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in lines]


def mixed(*parts: list[str]) -> list[str]:
    """Line by line, as two processes print at the same time."""
    longest = max(map(len, parts))
    return [part[number] for number in range(longest) for part in parts if number < len(part)]


def formatted(fail: Callable[[], object]) -> list[str]:
    """As Python itself prints it."""
    try:
        fail()
    except BaseException as error:  # noqa: BLE001 - groups too
        return "".join(traceback.format_exception(error)).splitlines()
    raise AssertionError("it does not fail")


def fail_while_handling() -> None:
    try:
        raise KeyError("weights")
    except KeyError:
        raise RuntimeError("no checkpoint has weights")  # noqa: B904 - the other sentence than `from`


def fail_because() -> None:
    try:
        raise KeyError("weights")
    except KeyError as error:
        raise RuntimeError("no checkpoint has weights") from error


def fail_as_group() -> None:
    def fail(error: Exception) -> Exception:
        try:
            raise error
        except Exception as raised:  # noqa: BLE001
            return raised

    inner = ExceptionGroup("loaders", [fail(ValueError("bad shard 3")), TypeError("bad shard 4")])
    raise ExceptionGroup("unhandled errors in a TaskGroup", [inner, fail(OSError("disk"))])


def in_json(key: str, lines: list[str]) -> list[str]:
    entry = {"level": "error", "message": "training failed", key: "\n".join(lines)}
    return ['{"level": "info", "message": "step 3"}', json.dumps(entry)]


SENTENCE = f"{MISSING}, at train.py:4 in load"
CASES = {
    "a deep traceback": (deep(3), SENTENCE),
    "under torchrun": ([*deep(3), WORKER.format(1), *LAUNCHER], SENTENCE),
    "deeper than any limit": ([*deep(1500), WORKER.format(1), *LAUNCHER], SENTENCE),
    "its beginning is lost": (deep(30)[21:], f"{MISSING}, at torch/serialization.py:29 in call"),
    "nothing but its last lines": (["    return call()", MISSING], MISSING),
    "caught before, and failed later": ([*deep(2, "KeyError: 1"), "retrying", *deep(2)], SENTENCE),
    "two ranks at once": (mixed(prefixed(1, deep(5)), prefixed(0, deep(2, GLOO))), SENTENCE),
    "two ranks at once, the other first": (mixed(prefixed(0, deep(2, GLOO)), prefixed(1, deep(5))), SENTENCE),
    "two ranks at once without prefixes": (mixed(deep(3), deep(3)), SENTENCE),
    "gloo after another rank": ([*deep(3), *deep(1, GLOO), WORKER.format(1), *LAUNCHER], SENTENCE),
    "NCCL after another rank": ([*prefixed(0, deep(1, NCCL)), *prefixed(3, deep(3))], SENTENCE),
    "another rank is all that is known": (prefixed(0, deep(1, GLOO)), f"{GLOO}, at train.py:4 in load"),
    "stopped by torchrun while it failed": ([*prefixed(1, deep(3)), *STOPPED], SENTENCE),
    "at the plain level": ([line.replace("/workspace", "/h/pods/1/volumes") for line in deep(2)], SENTENCE),
    "mpirun's prefix": ([f"[1,1]<stderr>:{line}" for line in deep(2)], SENTENCE),
    "behind a progress bar": (["", f"  0%|    | 0/9\r 50%|##  | 4/9 [00:01<00:00]{HEAD}", *deep(2)[1:]], SENTENCE),
    "a bar redrawn after it": ([*deep(2), "\r 50%|##  | 4/9\r 55%|##  | 5/9"], SENTENCE),
    "in colours": ([f"\x1b[31m{line}\x1b[0m" for line in deep(2)], SENTENCE),
    "a JSON log": (in_json("exc_info", deep(2)), SENTENCE),
    "a JSON log of structlog": (in_json("exception", deep(2)), SENTENCE),
    "a JSON log without a traceback": (['{"event": "no such dataset", "level": "error"}'], "no such dataset"),
    "JSON that is no log": (["[1, 2]", '{"loss": 3}'], '{"loss": 3}'),
    "nested too deeply to read": (['{"a":' * 5000 + "}" * 5000], '{"a":' * 5000 + "}" * 5000),
    "not UTF-8": ([b"caf\xe9".decode(errors="replace"), *deep(2, "KeyError: \ufffd")],
                  "KeyError: \ufffd, at train.py:4 in load"),
    "a worker of a data loader": (
        [HEAD, *OWN, "ValueError: Caught ValueError in DataLoader worker process 0.",
         f"Original {HEAD}", '  File "/workspace/code/data.py", line 7, in __getitem__', "    decode(x)",
         "ValueError: bad sample 17"],
        "ValueError: bad sample 17, at data.py:7 in __getitem__",
    ),
    "the message in the next line": (
        [HEAD, *OWN, "RuntimeError: Error(s) in loading state_dict for Net:", '\tMissing key(s): "a". '],
        'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): "a"., at train.py:4 in load',
    ),
    "without a message": ([HEAD, *OWN, "AssertionError"], "AssertionError, at train.py:4 in load"),
    "a syntax error": (
        ['  File "/workspace/code/train.py", line 3', "    x = = 1", "        ^", "SyntaxError: invalid syntax"],
        "SyntaxError: invalid syntax, at train.py:3",
    ),
    "only frames of libraries": ([HEAD, *deep(2)[3:]], f"{MISSING}, at torch/serialization.py:1 in call"),
    "a C++ exception": (
        ["step 3", "terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: an illegal "
         "memory access was encountered", "Exception raised from c10_cuda_check (most recent call first):",
         *(f"frame #{number}: c10::something (0x7f in /lib/libc10.so)" for number in range(40))],
        "c10::Error: CUDA error: an illegal memory access was encountered",
    ),
    "a C++ exception long after one that was caught": (
        [*deep(2), *(f"step {number}" for number in range(30)), "free(): invalid pointer", "Aborted (core dumped)"],
        "free(): invalid pointer",
    ),
    "a C++ exception while Python ends": ([*deep(2), "terminate called without an active exception"], SENTENCE),
    "a segmentation fault": (
        ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f (most recent call first):",
         f'  File "{LIBRARY}", line 3 in read', '  File "/workspace/code/train.py", line 9 in main'],
        "Fatal Python error: Segmentation fault, at train.py:9 in main",
    ),
    "killed below torchrun": (["step 3", WORKER.format(-9), *LAUNCHER], "torchrun: local rank 0 was ended by SIGKILL"),
    "a message and an exit code": (["loading", "no dataset c4", WORKER.format(2), *LAUNCHER], "no dataset c4"),
    "a worker that printed nothing": ([WORKER.format(3), *LAUNCHER], "torchrun: local rank 0 ended with exit code 3"),
    "only the end of torchrun's own": (LAUNCHER[4:], "torchrun: local rank 0 ended with exit code 1"),
    "torchrun cannot connect": (
        [*LAUNCHER[:5], "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection failed."],
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection failed., at "
        "torch/distributed/run.py:0 in main",
    ),
    "the last line": (["loss 3", "Segmentation fault", "======", ""], "Segmentation fault"),
    "nothing": ([], ""),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "want"), CASES.values(), ids=CASES)
def test_the_cause_is_the_programs_own_last_exception(lines: list[str], want: str) -> None:
    assert tell(read_cause(lines)) == want


@pytest.mark.parametrize(("lines", "want"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("limits", [(80, 2048), (24, 2048), (12, 1024)])
def test_what_is_kept_tells_the_same_as_the_whole(lines: list[str], want: str, limits: tuple[int, int]) -> None:
    kept = excerpt(lines, *limits)
    assert len(kept.splitlines()) <= limits[0] and len(kept.encode()) <= limits[1]
    if len(want) < 500:
        assert tell(read_cause(kept.splitlines())) == want
        assert excerpt(kept.splitlines(), *limits) == kept


@pytest.mark.parametrize("fail", [fail_while_handling, fail_because])
def test_of_chained_exceptions_the_last_counts(fail: Callable[[], None]) -> None:
    cause = read_cause(formatted(fail))
    assert cause.error == "RuntimeError: no checkpoint has weights"
    assert f"in {fail.__name__}" in cause.place


def test_of_a_group_the_first_exception_counts_and_the_others_are_counted() -> None:
    lines = ["step 3", *formatted(fail_as_group), "bye"]
    cause = read_cause(lines)
    assert tell(read_cause(prefixed(1, lines))) == tell(cause)
    assert cause.error == "ValueError: bad shard 3 (the first of 2 exceptions in a group)"
    assert "test_cause.py" in cause.place and cause.place.endswith(" in fail")
    assert tell(read_cause(excerpt(lines, 12, 1024).splitlines())) == tell(cause)


def test_of_a_deep_traceback_the_beginning_the_own_frame_and_the_end_are_kept() -> None:
    kept = excerpt([*deep(500), WORKER.format(1), *LAUNCHER], 12, 1024).splitlines()
    assert kept[:4] == [HEAD, *OWN, "  ..."]
    assert kept[-1] == MISSING and kept[-3:-1] == [f'  File "{LIBRARY}", line 499, in call', "    return call()"]


def test_an_error_that_is_too_long_keeps_its_beginning_and_its_traceback() -> None:
    kept = excerpt([*deep(2, f"ValueError: {'x' * 3000}"), WORKER.format(1), *LAUNCHER], 24, 2048).splitlines()
    assert kept[:3] == [HEAD, *OWN] and kept[-1].startswith("ValueError: xxx") and kept[-1].endswith("xxx ...")


def test_a_traceback_whose_beginning_is_lost_has_one_again() -> None:
    kept = excerpt(deep(500)[41:], 12, 1024).splitlines()
    assert kept[:2] == [HEAD, "  ..."] and kept[-1] == MISSING
    assert excerpt(CASES["a syntax error"][0], 12, 1024).splitlines() == CASES["a syntax error"][0]


def test_what_precedes_the_traceback_is_kept_where_there_is_room() -> None:
    assert excerpt(["step 2", "step 3", *deep(0)], 12, 1024).splitlines() == ["step 2", "step 3", *deep(0)]
    assert excerpt([*deep(0, "KeyError: 1"), "again", *deep(0)], 12, 1024).splitlines() == ["again", *deep(0)]


@pytest.mark.parametrize("error", [GLOO, NCCL, "ConnectionResetError: [Errno 104] Connection reset by peer"])
def test_a_lost_connection_follows_from_another_failure(error: str) -> None:
    assert read_cause(deep(1, error)).is_consequence
    assert not read_cause(deep(1)).is_consequence


def test_whatever_is_printed_is_read_and_kept_within_the_limits() -> None:
    """Programs print what they like, and the end of a container must be recorded."""
    chance = random.Random(7)
    known = [line for lines, _ in CASES.values() if len(lines) < 100 for line in lines] + formatted(fail_as_group)
    for _ in range(300):
        count = chance.randrange(60)
        lines = [chance.choice(("", "", "[rank1]: ")) + chance.choice(known) for _ in range(count)]
        for most_lines, most_bytes in ((80, 2048), (12, 1024)):
            kept = excerpt(lines, most_lines, most_bytes)
            assert len(kept.split("\n")) <= most_lines and len(kept.encode()) <= most_bytes
            assert isinstance(read_cause(kept.split("\n")).error, str)
