"""GPUs through NVIDIA's binding, over a stand-in for the C library with recorded answers."""

from __future__ import annotations

import io
import json

import pytest

from tests.unit.node.devices.fake_nvml import (
    DRIVER_NOT_LOADED,
    LOST,
    MISMATCH,
    NOT_SUPPORTED,
    RECORDED,
    UNKNOWN,
    XID,
    FakeGpu,
    FakeMig,
    FakeNvml,
    FakeUsers,
    make_inventory,
    open_nvml,
)
from trainmaster.api.devices import Device
from trainmaster.node.devices.nvml import NvmlError, NvmlGpu, read_answer, serve

pytestmark = pytest.mark.unit


def test_a_gpu_has_a_number_a_name_memory_and_a_load() -> None:
    nvml = open_nvml(FakeNvml(RECORDED, FakeGpu("GPU-b", busy=87, used=512 << 20, pids=[7, 7, 3])))
    assert nvml.list_gpus() == [
        NvmlGpu(0, RECORDED.uuid, "NVIDIA H200", 143771, percent=0, used_mib=615),
        NvmlGpu(1, "GPU-b", "NVIDIA H200", 143771, (3, 7), percent=87, used_mib=512),
    ]
    assert nvml.list_gpus() == nvml.list_gpus()


def test_a_driver_that_does_not_report_utilization_and_memory_still_shows_its_gpus() -> None:
    found = open_nvml(FakeNvml(FakeGpu("GPU-a", busy=None, error=NOT_SUPPORTED))).list_gpus()
    assert found == [NvmlGpu(0, "GPU-a", "NVIDIA H200")]


def test_an_older_driver_lists_processes_through_an_older_function() -> None:
    newer = "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"
    assert open_nvml(FakeNvml(FakeGpu("GPU-a", pids=[42]), missing=newer)).list_gpus()[0].pids == (42,)
    both = *newer, "nvmlDeviceGetComputeRunningProcesses_v2"
    assert open_nvml(FakeNvml(FakeGpu("GPU-a", pids=[42]), missing=both)).list_gpus()[0].pids == ()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (DRIVER_NOT_LOADED, "NVML cannot be used: Driver Not Loaded"),
        (MISMATCH, "NVML cannot be used: RM has detected an NVML/RM version mismatch."),
    ],
)
def test_a_library_that_does_not_fit_the_driver_says_so(code: int, text: str) -> None:
    with pytest.raises(NvmlError, match=text):
        open_nvml(FakeNvml(start=code))


def test_the_program_answers_line_by_line_until_nobody_asks() -> None:
    library, answers = FakeNvml(FakeGpu("GPU-a", pids=[42])), io.StringIO()
    serve(io.StringIO("\n\n"), answers, lambda: open_nvml(library))
    lines = answers.getvalue().splitlines()
    assert [read_answer(line)[0].pids for line in lines] == [(42,), (42,)]
    assert not library.is_open
    answers = io.StringIO()
    serve(io.StringIO("\n"), answers, lambda: open_nvml(FakeNvml(start=MISMATCH)))
    assert json.loads(answers.getvalue())["error"].startswith("NVML cannot be used")
    with pytest.raises(NvmlError):
        read_answer(answers.getvalue())


def test_a_machine_without_the_driver_has_no_gpus_and_may_declare_some() -> None:
    inventory = make_inventory(FakeNvml())
    assert inventory.read(None).devices == ()
    assert inventory.read(2).devices == (Device(0, "declared-0"), Device(1, "declared-1"))
    inventory.close()


def test_a_gpu_on_which_a_foreign_process_computes_is_held_until_it_ends() -> None:
    library, users = FakeNvml(FakeGpu("GPU-a", pids=[42, 43]), FakeGpu("GPU-b")), FakeUsers()
    inventory = make_inventory(library, users)
    text = "is used by process 42 (python) of bob and 1 more, which belong to no job"
    assert [device.held for device in inventory.read(None).devices] == [text, ""]
    users.ended = {42, 43}
    assert [device.is_free for device in inventory.read(None).devices] == [True, True], "the driver is late"
    library.gpus[0].pids = []
    assert [device.is_free for device in inventory.read(None).devices] == [True, True]


def test_a_process_of_a_pod_does_not_hold_its_gpu() -> None:
    users = FakeUsers()
    users.pods = {42: ("default", "train", "uid-1")}
    found = make_inventory(FakeNvml(FakeGpu("GPU-a", pids=[42])), users).read(None)
    assert found.devices[0].is_free
    assert [(device, user.pid) for device, user in found.users] == [("GPU-a", 42)]
    found = make_inventory(FakeNvml(FakeGpu("GPU-a", pids=[42, 43])), users).read(None)
    assert found.devices[0].held == "is used by process 43 (python) of bob, which belongs to no job"


def test_more_processes_than_expected_are_all_read() -> None:
    nvml = open_nvml(FakeNvml(FakeGpu("GPU-a", pids=list(range(1, 1001)))))
    assert len(nvml.list_gpus()[0].pids) == 1000


def test_a_gpu_that_was_lost_stays_out_of_use() -> None:
    library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", error=LOST))
    inventory = make_inventory(library)
    marked = inventory.read(None).devices
    assert marked[1].unhealthy == "it does not answer any more (GPU is lost)"
    library.gpus[1].error = 0
    assert inventory.read(None).devices[1].unhealthy
    again = make_inventory(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert again.read(None, marked).devices[1].unhealthy == marked[1].unhealthy
    assert not again.read(None).devices[1].unhealthy


def test_a_gpu_that_answers_with_an_error_is_not_leased_until_it_answers_well() -> None:
    library = FakeNvml(FakeGpu("GPU-a", error=UNKNOWN))
    inventory = make_inventory(library)
    (device,) = inventory.read(None).devices
    assert device.held == "cannot be checked: the driver answers 'Unknown Error'" and not device.unhealthy
    library.gpus[0].error = 0
    assert inventory.read(None).devices[0].is_free


@pytest.mark.parametrize(("number", "is_broken"), [(79, True), (48, True), (31, False), (13, False)])
def test_a_critical_error_of_the_driver_takes_a_gpu_out_of_use(number: int, is_broken: bool) -> None:
    library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    nvml = open_nvml(library)
    library.events = [(1, XID, number)]
    assert [bool(gpu.trouble) for gpu in nvml.list_gpus()] == [False, is_broken]
    assert [bool(gpu.trouble) for gpu in nvml.list_gpus()] == [False, is_broken]


def test_a_gpu_that_does_not_open_is_shown_as_broken() -> None:
    found = open_nvml(FakeNvml(FakeGpu("GPU-a", opens=False), FakeGpu("GPU-b"))).list_gpus()
    assert [(gpu.uuid, bool(gpu.trouble)) for gpu in found] == [("index-0", True), ("GPU-b", False)]


def test_a_driver_without_events_still_shows_its_gpus() -> None:
    assert len(open_nvml(FakeNvml(FakeGpu("GPU-a"), has_events=False)).list_gpus()) == 1


def test_a_gpu_in_mig_mode_is_listed_as_its_mig_devices() -> None:
    parts = [FakeMig("MIG-1", 3, pids=[42]), FakeMig("MIG-2", 4)]
    library = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", mig=parts), FakeGpu("GPU-c", mig=[]))
    nvml = open_nvml(library)
    assert [(gpu.index, gpu.uuid, gpu.pids, gpu.mig) for gpu in nvml.list_gpus()] == [
        (0, "GPU-a", (), ""),
        (1, "MIG-1", (42,), "GPU-b/3/0"),
        (2, "MIG-2", (), "GPU-b/4/0"),
    ]
    library.events = [(1, XID, 79)]
    assert [bool(gpu.trouble) for gpu in nvml.list_gpus()] == [False, True, True], "with the GPU its parts are lost"
    library.gpus[2].mig = [FakeMig("MIG-3", 5)]
    assert nvml.list_gpus()[-1].uuid == "MIG-3", "made while the server runs"


def test_known_gpus_are_kept_and_not_leased_while_nvml_does_not_answer() -> None:
    inventory = make_inventory(FakeNvml(FakeGpu("GPU-a")))
    before = inventory.read(None).devices
    inventory.reader.trouble = "NVML does not answer"  # type: ignore[attr-defined]
    found = inventory.read(None)
    assert found.trouble == "NVML does not answer"
    assert [device.held for device in found.devices] == ["cannot be checked: NVML does not answer"]
    other = make_inventory(FakeNvml())
    other.reader.trouble = "NVML does not answer"  # type: ignore[attr-defined]
    assert [device.id for device in other.read(None, before).devices] == ["GPU-a"], "known from the Node"
    assert [device.id for device in other.read(1, [Device(0, "declared-0")]).devices] == ["declared-0"]
    inventory.reader.trouble = ""  # type: ignore[attr-defined]
    assert inventory.read(None).devices == before


def test_fewer_may_be_declared_than_there_are_and_more_are_reported() -> None:
    inventory = make_inventory(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert [device.id for device in inventory.read(1).devices] == ["GPU-a"]
    found = inventory.read(8)
    assert len(found.devices) == 2
    assert found.note == "8 GPUs are declared and 2 were found"


def test_closing_ends_the_library() -> None:
    library = FakeNvml(FakeGpu("GPU-a"))
    inventory = make_inventory(library)
    inventory.read(None)
    assert library.is_open
    inventory.close()
    assert not library.is_open
