"""GPUs through NVML. One suite, two libraries: the stand-in, and on a machine with GPUs NVIDIA's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.node.devices.fake_nvml import XID, FakeGpu, FakeNvml
from trainmaster.api.devices import Device
from trainmaster.node.devices.gpus import Inventory, describe_process_of
from trainmaster.node.devices.nvml import LIBRARY, Load, Nvml, NvmlError

pytestmark = pytest.mark.unit


def find_libraries() -> list[Any]:
    found: list[Any] = [pytest.param(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")), id="stand-in")]
    with contextlib.suppress(OSError):
        found.append(pytest.param(ctypes.CDLL(LIBRARY), id="real"))
    return found


@pytest.fixture(params=find_libraries())
def nvml(request: pytest.FixtureRequest) -> Iterator[Nvml]:
    try:
        opened = Nvml(request.param)
    except NvmlError as error:
        # A library without a driver: it says so, and that is all it can show.
        assert str(error).startswith("nvmlInit: ")
        opened = Nvml(FakeNvml(FakeGpu("GPU-a")))
    yield opened
    opened.close()


def test_every_gpu_has_a_number_a_name_and_memory(nvml: Nvml) -> None:
    gpus = nvml.list_gpus()
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    assert len({gpu.uuid for gpu in gpus}) == len(gpus) > 0
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-") and gpu.product and gpu.memory_mib > 1000 and not gpu.trouble


def test_looking_again_shows_the_same(nvml: Nvml) -> None:
    first, second = nvml.list_gpus(), nvml.list_gpus()
    assert [(gpu.uuid, gpu.product, gpu.memory_mib) for gpu in first] == [
        (gpu.uuid, gpu.product, gpu.memory_mib) for gpu in second
    ]


def test_loads_are_shares_of_time_and_memory_that_is_taken(nvml: Nvml) -> None:
    loads = nvml.list_loads()
    assert [load.uuid for load in loads] == [gpu.uuid for gpu in nvml.list_gpus()]
    for load in loads:
        assert load.percent is None or 0 <= load.percent <= 100
        assert load.memory_mib >= 0


def test_gpus_that_do_not_answer_have_no_load_and_a_silent_driver_no_share() -> None:
    quiet = FakeGpu("GPU-a", busy=None, used=512 * 1024**2)
    nvml = Nvml(FakeNvml(quiet, FakeGpu("GPU-b", lost=True), FakeGpu("GPU-c", busy=87)))
    assert nvml.list_loads() == [Load("GPU-a", None, 512), Load("GPU-c", 87, 0)]


def open_inventory(library: FakeNvml) -> Inventory:
    return Inventory(lambda: Nvml(library), lambda pid: f"process {pid}")


def test_a_machine_without_the_driver_has_no_gpus_and_may_declare_some() -> None:
    inventory = open_inventory(FakeNvml(starts=False))
    assert inventory.read(None).devices == ()
    assert inventory.read(2).devices == (Device(0, "declared-0"), Device(1, "declared-1"))
    inventory.close()


def test_a_gpu_on_which_somebody_computes_is_held_until_he_ends() -> None:
    library = FakeNvml(FakeGpu("GPU-a", pids=[42, 43]), FakeGpu("GPU-b"))
    inventory = open_inventory(library)
    assert [device.held for device in inventory.read(None).devices] == ["process 42 and 1 others", ""]
    library.gpus[0].pids = []
    assert [device.is_free for device in inventory.read(None).devices] == [True, True]


def test_more_processes_than_expected_are_all_read() -> None:
    nvml = Nvml(FakeNvml(FakeGpu("GPU-a", pids=list(range(1, 1001)))))
    assert len(nvml.list_gpus()[0].pids) == 1000


def test_a_gpu_that_was_lost_stays_out_of_use() -> None:
    library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", lost=True))
    inventory = open_inventory(library)
    marked = inventory.read(None).devices
    assert marked[1].unhealthy == "it does not answer any more (GPU is lost)"
    library.gpus[1].lost = False
    assert inventory.read(None).devices[1].unhealthy
    again = open_inventory(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert again.read(None, marked).devices[1].unhealthy == marked[1].unhealthy
    assert not again.read(None).devices[1].unhealthy


@pytest.mark.parametrize(("number", "is_broken"), [(79, True), (48, True), (31, False), (13, False)])
def test_a_critical_error_of_the_driver_takes_a_gpu_out_of_use(number: int, is_broken: bool) -> None:
    library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    nvml = Nvml(library)
    library.events = [(1, XID, number)]
    assert [bool(gpu.trouble) for gpu in nvml.list_gpus()] == [False, is_broken]
    assert [bool(gpu.trouble) for gpu in nvml.list_gpus()] == [False, is_broken]


def test_a_gpu_that_does_not_open_is_shown_as_broken() -> None:
    found = Nvml(FakeNvml(FakeGpu("GPU-a", opens=False), FakeGpu("GPU-b"))).list_gpus()
    assert [(gpu.uuid, bool(gpu.trouble)) for gpu in found] == [("index-0", True), ("GPU-b", False)]


def test_a_driver_without_events_still_shows_its_gpus() -> None:
    assert len(Nvml(FakeNvml(FakeGpu("GPU-a"), has_events=False)).list_gpus()) == 1


def test_fewer_may_be_declared_than_there_are_and_more_are_reported() -> None:
    inventory = open_inventory(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert [device.id for device in inventory.read(1).devices] == ["GPU-a"]
    found = inventory.read(8)
    assert len(found.devices) == 2
    assert found.note == "8 GPUs are declared and 2 were found"


def test_closing_ends_the_library() -> None:
    library = FakeNvml(FakeGpu("GPU-a"))
    inventory = open_inventory(library)
    assert library.is_open
    inventory.close()
    assert not library.is_open


def test_a_process_is_described_by_name_and_owner() -> None:
    text = describe_process_of(os.getpid())
    assert text.startswith(f"process {os.getpid()} (") and " of " in text
    assert describe_process_of(2**30) == f"process {2**30}"
