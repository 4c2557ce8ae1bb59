"""Programs that begin as forks of a warm interpreter, compared with the same programs executed.

Torch-free: the warm list is some of the standard library. What a program can see of itself must be the same both ways;
what takes effect at exec or import time must make it cold; and a shim of a warm zygote must be a shim like any other.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node import warm_probes
from tests.node.shims import LIMIT
from tests.node.warm_pairs import IMPORTS, Pair, run, sort_lines
from trainmaster.shim.protocol import FULL, PLAIN
from trainmaster.version import PACKAGE

pytestmark = pytest.mark.node

HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
AGENT = f"""
import os, sys
from {HANDLER} import SubprocessHandler
worker = SubprocessHandler()._popen((sys.executable, "-u", "worker.py", "one"), dict(os.environ))
sys.exit(worker.wait())
"""
TORCH = """
import types
cuda = types.SimpleNamespace(is_initialized=lambda: False)
default_generator = types.SimpleNamespace(seed=lambda: None)
def set_num_threads(number): pass
"""
STARTS_WORKERS = """
import subprocess
class SubprocessHandler:
    _stdout = _stderr = None
    def _popen(self, args, env):
        return subprocess.Popen(args=args, env=env, start_new_session=True)
"""


def test_a_worker_of_torchrun_sees_the_same_whether_it_begins_warm_or_cold(tmp_path: Path) -> None:
    """The environment contains Trainmaster itself, as after `pip install torch trainmaster`."""
    module = tmp_path.joinpath("packages", *HANDLER.split(".")).with_suffix(".py")
    module.parent.mkdir(parents=True)
    module.write_text(STARTS_WORKERS)
    (tmp_path / "packages" / "torch" / "__init__.py").write_text(TORCH)

    async def test(it: Pair) -> None:
        it.write("worker.py", f"import trainmaster\n{warm_probes.build_program()}")
        cold, warm = await it.both(it.write("torchrun", AGENT))
        seen = [warm_probes.read_answers(text, pod) for text, pod in ((cold, it.count - 1), (warm, it.count))]
        assert seen[1].pop("FIRST") - seen[0].pop("FIRST") <= {"torch", "__mp_main__"}
        assert seen[1] == seen[0]

    ours = str(Path(PACKAGE).parent)
    run(tmp_path, test, packages=(str(tmp_path / "packages"), ours), imports=(*IMPORTS, HANDLER))


ENDINGS = {
    "raise.py": "def inner():\n    raise ValueError('no')\n\ninner()\n",
    "syntax.py": "print('x'\n",
    "cause.py": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error\n",
    "interrupt.py": "raise KeyboardInterrupt\n",
    "exit_none.py": "import sys; sys.exit()\n",
    "exit_text.py": "import sys; sys.exit('words')\n",
    "exit_code.py": "import sys; sys.exit(300)\n",
    "exit_negative.py": "raise SystemExit(-1)\n",
    "exit_true.py": "raise SystemExit(True)\n",
    "hard.py": "import os; os._exit(7)\n",
    "kill.py": "import os; os.kill(os.getpid(), 9)\n",
    "abort.py": "import os; os.abort()\n",
    "hook.py": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise OSError\n",
    "stdin.py": "import sys; print(repr(sys.stdin.read()))\n",
    "at_exit.py": "import atexit, sys\natexit.register(print, 'bye')\natexit.register(lambda: 1 / 0)\nsys.exit(3)\n",
    "thread.py": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()\n",
    "open_file.py": "f = open('left', 'w'); f.write('text')\n",
    "closed.py": "import sys; sys.stdout.close()\n",
    "fork.py": "import multiprocessing as m\nif __name__ == '__main__':\n    with m.get_context('fork').Pool(2) as p:"
    "\n        print(p.map(abs, [-1, -2]))\n",
    "spawn.py": "import multiprocessing as m\ndef twice(x):\n    return 2 * x\nif __name__ == '__main__':\n"
    "    with m.get_context('spawn').Pool(1) as p:\n        print(p.map(twice, [1, 2]))\n",
    "child.py": "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import sys; print(sys.prefix)'],"
    " capture_output=True, text=True).stdout)\n",
    "bytes.py": "import sys; sys.stdout.buffer.write(b'\\xff raw\\n'); print('t\\u00e4xt', file=sys.stderr)\n",
    "pickle_main.py": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A, A.__module__)\n",
}


def test_programs_end_warm_as_they_end_cold(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        for name, text in ENDINGS.items():
            cold, warm = await it.both(it.write(name, text))
            assert sort_lines(warm) == sort_lines(cold), name
            left = it.work / "left"
            if name == "open_file.py":
                assert left.read_text() == "text"

    run(tmp_path, test)


COLD = {
    "PYTHONHASHSEED": "1",
    "PYTHONPATH": "/somewhere",
    "LD_LIBRARY_PATH": "/somewhere",
    "OMP_PROC_BIND": "true",
    "TORCH_LOGS": "dynamo",
    "PYTHONUNBUFFERED": "0",
}


def test_what_takes_effect_at_exec_or_import_makes_a_program_cold_and_is_said(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        script = it.write("script.py", "print('ran')\n")
        for name, value in COLD.items():
            ended, _, began = await it.run(it.make_spec(script, env={name: value}), warm=True)
            assert (ended.exited.code, began.started.note.startswith(f"started cold: {name} ")) == (0, True), name
        for arguments in (("-O", script), ("-X", "dev", script), ("missing.py",), ("-m", "pip", "--version")):
            _, _, began = await it.run(it.make_spec(*arguments), warm=True)
            assert began.started.note.startswith("started cold: "), arguments
        it.write("decimal.py", "HERE = True\n")
        use = it.write("use.py", "import decimal; print(decimal.HERE)\n")
        ended, log, began = await it.run(it.make_spec(use), warm=True)
        assert (log, "decimal.py comes before" in began.started.note) == ("True\n", True)

    run(tmp_path, test)


@pytest.mark.parametrize("level", [PLAIN, FULL])
def test_a_warm_program_is_signalled_killed_with_its_tree_and_survives_its_zygotes(tmp_path: Path, level: str) -> None:
    text = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.pause()
print("random", os.urandom(4).hex(), flush=True)
while True:
    signal.pause()
"""

    async def test(it: Pair) -> None:
        spec = it.make_spec(it.write("loop.py", text))
        first, second = await it.start(spec, warm=True), await it.start(spec, warm=True)
        for uid in (first, second):
            await it.shims.wait_for_log(uid, "random")
        for path in Path("/proc").glob("[0-9]*/comm"):
            try:
                word = path.read_text().strip()
                root = (path.parent / "cmdline").read_text()
            except OSError:
                continue
            if word in ("tm-warm", "tm-zygote") and str(it.shims.root) in root:
                os.kill(int(path.parent.name), signal.SIGKILL)
        await it.shims.supervisor.signal(first, "main", signal.SIGTERM)
        assert (await it.shims.wait_ended(first)).exited.code == 5
        os.kill(it.shims.read_shim(second).pid, signal.SIGKILL)
        await it.shims.wait_lost(second)
        left = [path for path in Path("/proc").glob("[0-9]*/environ") if _has(path, f"={second}/main/0")]
        assert left == [], "a detached child that was never executed carries the mark too"

    run(tmp_path, test, level)


def _has(path: Path, text: str) -> bool:
    try:
        return text in path.read_text(errors="replace")
    except OSError:
        return False


def test_an_import_for_which_the_machine_was_idle_stops_when_a_pod_starts_and_can_be_repeated(tmp_path: Path) -> None:
    """It stops in the middle of a package that is being tried, in a child process."""
    packages, learned = tmp_path / "packages", tmp_path / "learned"
    packages.mkdir()
    (packages / "slow.py").write_text("import time\ntime.sleep(60)\n")
    learned.write_text("slow")

    def list_importing() -> list[str]:
        found = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, str(learned))]
        return [path.name for path in found]

    async def wait_for(count: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(list_importing()) != count:
                await asyncio.sleep(0.02)

    async def test(it: Pair) -> None:
        zygotes = it.shims.supervisor.zygotes
        slow = replace(it.wish, key="slow", learned=str(learned))
        importing = asyncio.create_task(it.shims.supervisor.ensure_warm(slow, is_idle=True))
        await wait_for(2)
        assert [report.state for report in zygotes.describe_warm()][1:] == ["it is being prepared"]
        zygotes.stop_idle_warm()
        await importing
        await wait_for(0)
        assert zygotes.needs_warm(slow) and zygotes.is_warm(it.wish)
        learned.write_text("")
        await it.shims.supervisor.ensure_warm(slow, is_idle=True)
        ready = Pair(it.shims, slow, it.work, 100)
        cold, warm = await ready.both("-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.nice(0))")
        assert warm == cold, "it imported with the lowest priority"
        zygotes.drop_all_warm()
        assert zygotes.describe_warm() == []

    run(tmp_path, test, packages=(str(packages),))


def test_an_environment_that_disappears_under_its_zygote_is_said(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "pure.py").touch()

    async def test(it: Pair) -> None:
        script = it.write("script.py", "print('ran')\n")
        packages.rename(tmp_path / "away")
        ended, log, began = await it.run(it.make_spec(script), warm=True)
        assert (ended.exited.code, log) == (0, "ran\n")
        assert began.started.note == f"started cold: {packages} is not visible in the Pod"

    run(tmp_path, test, packages=(str(packages),), imports=("pure",))


def test_too_little_memory_for_the_imports_means_no_warm_start_and_is_said(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        zygotes = it.shims.supervisor.zygotes
        zygotes.budget = 1 << 20
        large = replace(it.wish, key="large")
        await it.shims.supervisor.ensure_warm(large)
        assert zygotes.has_failed(large) and not zygotes.is_warm(large)
        assert "and node.warm_mib allows 1" in zygotes.describe_warm()[-1].state
        other = Pair(it.shims, large, it.work, 100)
        _, log, began = await other.run(other.make_spec("-c", "print('ran')"), warm=True)
        assert (log, began.started.note) == ("ran\n", "")

    run(tmp_path, test)


def test_an_import_that_starts_a_thread_or_fails_means_no_warm_start_and_nothing_worse(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        script = it.write("script.py", "print('ran')\n")
        for number, (name, why) in enumerate(
            {"no_such_module": "No module named", "threaded": "starts threads"}.items()
        ):
            bad = replace(it.wish, key=name, imports=(name,))
            await it.shims.supervisor.ensure_warm(bad)
            assert why in it.shims.supervisor.zygotes.describe_warm()[-1].state
            other = Pair(it.shims, bad, it.work, 100 * (number + 1))
            ended, log, began = await other.run(other.make_spec(script), warm=True)
            assert (ended.exited.code, log, began.started.note) == (0, "ran\n", "")

    packages = tmp_path / "packages"
    packages.mkdir()
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    (packages / "threaded.py").write_text(text)
    run(tmp_path, test, packages=(str(packages),))
