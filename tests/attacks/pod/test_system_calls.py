"""A program asks the kernel for what no training job needs: rings, tracing of the machine, mounts, keys, modules."""

from __future__ import annotations

import asyncio
import errno
import json
import platform
import textwrap
from pathlib import Path

import pytest

from tests.attacks.site import Site, unique
from tests.node.sandboxes import LEVELS, Sandboxes, run_sandboxed
from trainmaster.shim.sandbox.security import DENIED

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="numbers of calls are not known"),
]
COLUMN = 0 if platform.machine() == "x86_64" else 1
NUMBERS = {name: pair[COLUMN] for name, pair in DENIED.items() if pair[COLUMN] >= 0}

CALL_ALL = textwrap.dedent(
    f"""
    import ctypes, errno, json
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = json.loads('{json.dumps({**NUMBERS, "clone3": 435})}')
    def call(*words):
        ctypes.set_errno(0)
        return ctypes.get_errno() if libc.syscall(*(ctypes.c_long(word) for word in words)) < 0 else 0
    said = {{name: call(number, 0, 0, 0, 0, 0) for name, number in numbers.items()}}
    said["future"] = call(600, 0, 0)
    said["vsock"] = call({(41, 198)[COLUMN]}, 40, 1, 0)
    said["alg"] = call({(41, 198)[COLUMN]}, 38, 5, 0)
    said["read_implies_exec"] = call({(135, 92)[COLUMN]}, 0x400000)
    said["clone_newuser"] = call({(56, 220)[COLUMN]}, 0x10000000 | 17, 0, 0, 0, 0)
    print(json.dumps(said))
    """
)
OTHER_GATES = textwrap.dedent(
    """
    import ctypes, json, mmap, os
    def run(code):
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(code)
            place = ctypes.addressof(ctypes.c_char.from_buffer(page))
            os.write(writer, str(ctypes.CFUNCTYPE(ctypes.c_int)(place)()).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        return os.read(reader, 100).decode() or "killed"
    # mov eax, 20 (getpid of i386); int 0x80; ret
    old = run(bytes.fromhex("53b814000000cd805bc3"))
    # mov eax, 0x40000027 (getpid of x32); syscall; ret
    x32 = run(bytes.fromhex("b8270000400f05c3"))
    print(json.dumps([old, x32]))
    """
)
ORDINARY_WORK = textwrap.dedent(
    """
    import ctypes, multiprocessing, os, signal, subprocess, sys, threading
    from concurrent.futures import ProcessPoolExecutor
    def square(number):
        return number * number
    if __name__ == "__main__":
        threads = [threading.Thread(target=square, args=(number,)) for number in range(20)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        for method in ("fork", "spawn", "forkserver"):
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
                assert list(pool.map(square, range(5))) == [0, 1, 4, 9, 16], method
        assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout == b"1\\n"
        # What debuggers do to a process of their own container.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long] * 4
        child = subprocess.Popen(["sleep", "1000"])
        assert libc.ptrace(16, child.pid, 0, 0) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(child.pid, 0)
        assert libc.ptrace(17, child.pid, 0, 0) == 0
        child.kill()
        child.wait()
        print("works")
    """
)


def build_script(program: str) -> str:
    return f"cat > /tmp/x.py <<'E'\n{program}\nE\nexec python3 /tmp/x.py"


def check_all(said: dict[str, int]) -> None:
    odd = {"clone3": errno.ENOSYS, "future": errno.ENOSYS, "vsock": errno.EAFNOSUPPORT, "alg": errno.EAFNOSUPPORT}
    got = {name: errno.errorcode.get(number, "ok") for name, number in said.items()}
    assert got == {name: errno.errorcode[odd.get(name, errno.EPERM)] for name in said}


def test_a_tenants_program_is_refused_every_call_that_leads_out(site: Site) -> None:
    check_all(json.loads(site.ann.run_pod(unique("calls"), build_script(CALL_ALL))))


@pytest.mark.parametrize("level", LEVELS)
def test_the_calls_are_refused_at_every_level_and_work_goes_on(folder: Path, level: str) -> None:
    async def test(sandboxes: Sandboxes) -> None:
        programs = [CALL_ALL, ORDINARY_WORK, *([OTHER_GATES] if COLUMN == 0 else [])]
        pods = [sandboxes.make_pod("calls", number, peers=len(programs)) for number in range(len(programs))]
        said = await asyncio.gather(
            *(sandboxes.finish(pod, build_script(text)) for pod, text in zip(pods, programs, strict=True))
        )
        check_all(json.loads(said[0]))
        assert said[1].strip() == "works"
        if COLUMN == 0:
            assert [answer for answer in json.loads(said[2]) if answer not in (str(-errno.ENOSYS), "killed")] == []

    run_sandboxed(folder, level, f"calls-{level}", test)
