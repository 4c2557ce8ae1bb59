"""The program that reads GPUs: it may hang, crash or speak nonsense, and the server goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainmaster.node.devices.nvml import NvmlError
from trainmaster.node.devices.reader import GpuReader

pytestmark = pytest.mark.node

ANSWER = '{"gpus": [{"index": 0, "uuid": "GPU-a", "pids": [42]}]}'
GOOD = f"import sys\nfor _ in sys.stdin: print('{ANSWER}', flush=True)"
HANGS = "import time; time.sleep(600)"
CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
REFUSES = """print('{"error": "NVML cannot be used: Driver Not Loaded"}')"""


def start(program: str, seconds: float = 30.0) -> GpuReader:
    return GpuReader([sys.executable, "-c", program], lambda: "", seconds)


def test_it_is_asked_again_and_again() -> None:
    reader = start(GOOD)
    assert [reader.list_gpus()[0].pids for _ in range(3)] == [(42,)] * 3
    process = reader._process
    reader.close()
    assert process is not None and process.returncode == 0, "it ends with the server"


@pytest.mark.parametrize(("program", "text"), [(REFUSES, "Driver Not Loaded"), (CRASHES, "may not fit the driver")])
def test_one_that_ends_is_started_again_after_a_while(program: str, text: str, tmp_path: Path) -> None:
    script = tmp_path / "reader.py"
    script.write_text(program)
    reader = GpuReader([sys.executable, str(script)], lambda: "", 30.0)
    for _ in range(5):
        with pytest.raises(NvmlError, match=text):
            reader.list_gpus()
    script.write_text(GOOD)
    with pytest.raises(NvmlError, match=text):
        reader.list_gpus()
    assert reader.list_gpus()
    reader.close()


def test_one_that_hangs_is_killed_in_the_end() -> None:
    reader = start(HANGS, 0.01)
    process = reader._process
    assert process is not None
    for _ in range(12):
        with pytest.raises(NvmlError, match="NVML does not answer"):
            reader.list_gpus()
        if reader._process is None:
            break
    assert process.wait(30) < 0
    reader.close()


def test_an_answer_that_comes_late_is_taken_at_the_next_call(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    program = f"""
import os, sys, time
for _ in sys.stdin:
    while not os.path.exists({str(gate)!r}): time.sleep(0.01)
    print('{ANSWER}', flush=True)
"""
    reader = start(program, 0.1)
    with pytest.raises(NvmlError, match="does not answer"):
        reader.list_gpus()
    gate.touch()
    reader._seconds = 30.0
    assert reader.list_gpus() and reader.list_gpus()
    reader.close()


def test_a_machine_without_the_library_pays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.node.devices.reader.build_command", pytest.fail)
    reader = GpuReader(find_trouble=lambda: "libnvidia-ml.so.1 cannot be loaded")
    assert reader._process is None
    assert reader.list_gpus() == []
    reader.close()


def test_the_real_program_answers_on_a_machine_without_the_driver() -> None:
    reader = GpuReader(find_trouble=lambda: "", seconds=60.0)
    try:
        reader.list_gpus()
    except NvmlError as error:
        assert str(error).startswith("NVML cannot be used: ")
    reader.close()
