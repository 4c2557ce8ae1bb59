"""Turns a forked, warm interpreter into a container's program, as if it had been executed.

Everything here runs in the container's process, after the shim's frames are gone from the stack. The program finds the
descriptors, variables, command line, streams, signals, `__main__` and path that a new interpreter would have; random
seeds and what libraries cached about threads, directories and time are renewed. At exit, threads are joined, exit
functions run and files are flushed; then the process ends without tearing down modules, because that is where torch's
process groups hang and abort. Used by `zygote` only.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import threading
import types
import zipfile
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from trainmaster.shim.loop import get_wall
from trainmaster.shim.protocol import ContainerSpec
from trainmaster.shim.sandbox import linux
from trainmaster.shim.warm import conditions

LoadedModule: TypeAlias = Any
"""A library's module, whose attributes only the library knows."""
OURS = "trainmaster"
_FLUSH_FAILED = 120
"""The interpreter's exit code if its streams cannot be flushed."""


class WarmProgram:
    def __init__(self, spec: ContainerSpec, report: int, package: str, area: linux.CommandArea) -> None:
        """`report`: the descriptor for reporting the result of the start, or -1. The caller has checked that a warm
        start is possible."""
        self._argv, self._executable = conditions.resolve_interpreter(spec, conditions.get_warm_state().prefix)
        command = conditions.parse_command(self._argv)
        assert command is not None, "there was no obstacle"
        self.command = command
        self._spec = spec
        self._report = report
        self._package = package
        self._area = area
        # As the interpreter does it: nothing is resolved or shortened.
        self._file = os.path.join(os.getcwd(), command.target) if command.kind == "script" else ""
        self._main = types.ModuleType("__main__")
        self._code = 0
        self._interrupted = False
        self.call: Callable[..., object] = runpy._run_module_as_main if command.kind == "module" else exec  # type: ignore[attr-defined]

    @property
    def arguments(self) -> tuple[object, ...]:
        """Arguments for `call`. Syntax errors in the program are raised here."""
        if self.command.kind == "module":
            return (self.command.target,)
        if self.command.kind == "code":
            source: str | bytes = self.command.target
        else:
            with open(self._file, "rb") as stream:
                source = stream.read()
        # Without the future statements of this module.
        code = compile(source, self._file or "<string>", "exec", dont_inherit=True)
        return (code, self._main.__dict__)

    def settle(self) -> None:
        """Prepares everything up to the first line of the program. Errors are reported as a failed start."""
        try:
            gc.collect()  # objects of the shim must not close the program's descriptors later
            close_all_but(self._report)
            self._renew_process()
            self._renew_interpreter()
            _renew_libraries(self._spec.env)
            hook = sys.modules.get(conditions.LAYER_HOOK)
            if hook is not None:
                hook.follow_imports()
            if self._report < 0:
                return
            conditions.write_note(self._report, conditions.get_warm_state().describe())
            os.close(self._report)
        except BaseException as error:  # noqa: BLE001 - reported to the shim; this process ends
            text = f"warm start: {type(error).__name__}: {error}".encode(errors="replace")[:4096]
            os.write(self._report if self._report >= 0 else 2, text)
            os._exit(127)

    def _renew_process(self) -> None:
        argv, env = self._argv, self._spec.env
        words = b"".join(os.fsencode(word) + b"\0" for word in argv)
        self._area.show(words, b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items()))
        linux.set_process_name(os.path.basename(argv[0]))
        if os.geteuid() != 0:
            linux.set_capabilities(0)
        linux.set_dumpable(True)  # as exec does: a program may read its own /proc
        os.environ.clear()
        os.environ.update(env)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)

    def _renew_interpreter(self) -> None:
        command = self.command
        first = {"script": command.target, "module": "-m", "code": "-c"}[command.kind]
        sys.argv[:] = [first, *command.arguments]
        sys.orig_argv[:] = list(self._argv)
        sys.executable = self._executable
        if sys.path[0] == self._package:  # not for a worker of torchrun, whose agent has already been prepared
            del sys.path[0]
        sys.path[0] = "" if command.kind == "code" else conditions.find_folder(command)
        sys.path_importer_cache.pop(self._package, None)
        for name in conditions.get_warm_state().modules:
            sys.modules.pop(name, None)
        self._fill_main()
        _renew_streams()

    def _fill_main(self) -> None:
        loader: object = importlib.machinery.BuiltinImporter
        names = {"__annotations__": {}, "__builtins__": sys.modules["builtins"]}
        if self._file:
            loader = importlib.machinery.SourceFileLoader("__main__", self._file)
            names.update({"__file__": self._file, "__cached__": None})
        self._main.__dict__.update({"__loader__": loader, "__spec__": None, "__package__": None, **names})
        sys.modules["__main__"] = self._main

    # The end

    def fail(self) -> None:
        """Call in the handler of the exception that ended the program."""
        kind, error, trace = sys.exc_info()
        assert kind is not None and error is not None
        if isinstance(error, SystemExit):
            self._code = _read_exit_code(error)
            return
        while trace is not None and _is_ours(trace.tb_frame):
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
        self._code, self._interrupted = 1, isinstance(error, KeyboardInterrupt)
        try:
            sys.excepthook(kind, error, trace)
        except SystemExit as wanted:
            self._code = _read_exit_code(wanted)
        except BaseException:  # noqa: BLE001 - as the interpreter does: both are shown
            _show("Error in sys.excepthook:", sys.exc_info())
            _show("\nOriginal exception was:", (kind, error, trace))

    def end(self) -> NoReturn:
        try:
            _call_quietly(getattr(threading, "_shutdown"))  # noqa: B009 - the types do not know it
            _call_quietly(atexit._run_exitfuncs)
            _flush_files()
            if not _flush_streams():
                self._code = _FLUSH_FAILED
            if self._interrupted:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            os._exit(self._code & 0xFF)


def _show(head: str, what: Any) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{head}\n")
        sys.__excepthook__(*what)


def _is_ours(frame: types.FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith(f"{OURS}.shim") or frame.f_back is None


def close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed them


def _renew_streams() -> None:
    """Renews the streams in place, because handlers of libraries keep references to them."""
    for number, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        assert isinstance(stream, io.TextIOWrapper)
        encoding, errors = stream.encoding, stream.errors
        try:
            raw: Any = open(number, "rb" if number == 0 else "wb", -1 if number == 0 else 0, closefd=False)  # noqa: SIM115
        except OSError:
            continue  # not open in the program either
        bare = raw.raw if number == 0 else raw
        bare.name = f"<{('stdin', 'stdout', 'stderr')[number]}>"
        stream.__init__(raw, encoding, errors, "\n", False, True)  # type: ignore[misc]
        setattr(stream, "mode", "r" if number == 0 else "w")  # noqa: B010 - the type says that it cannot be set
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__


def _renew_libraries(env: dict[str, str]) -> None:
    """Renews what modules cached at import and would be different in a new process."""
    threads = int(env.get(conditions.THREADS) or 0) or count_cores()
    for name, renew in _RENEWALS.items():
        module = sys.modules.get(name)
        if module is not None:
            renew(module, threads)


def _renew_random(module: LoadedModule, _: int) -> None:
    module.seed()


def _renew_tempfile(module: LoadedModule, _: int) -> None:
    module.tempdir = module._name_sequence = None


def _renew_multiprocessing(module: LoadedModule, _: int) -> None:
    sys.modules["__mp_main__"] = sys.modules["__main__"]
    module.ORIGINAL_DIR = os.path.abspath(os.getcwd())
    module._current_process._config["authkey"] = module.AuthenticationString(os.urandom(32))


def _renew_threading(module: LoadedModule, _: int) -> None:
    module.main_thread()._set_native_id()


def _renew_logging(module: LoadedModule, _: int) -> None:
    module._startTime = get_wall()


def _renew_platform(module: LoadedModule, _: int) -> None:
    module._uname_cache = None  # with the name of the host


def _renew_site(module: LoadedModule, _: int) -> None:
    if module.USER_SITE is not None:
        module.USER_BASE = module.USER_SITE = None
        module.getusersitepackages()


def _renew_sysconfig(module: LoadedModule, _: int) -> None:
    if module._CONFIG_VARS is not None:
        module._CONFIG_VARS["userbase"] = module._getuserbase()


def _renew_triton(module: LoadedModule, _: int) -> None:
    module.cache_knobs.__dict__["home_dir"].default = os.path.expanduser("~/")


def _renew_dynamo(module: LoadedModule, _: int) -> None:
    module.debug_dir_root = module.default_debug_dir_root()


def _renew_numpy(module: LoadedModule, threads: int) -> None:
    module.random.seed()
    for set_threads in _blas:
        set_threads(threads)


def _renew_torch(module: LoadedModule, threads: int) -> None:
    module.default_generator.seed()
    module.set_num_threads(threads)


_blas: list[Callable[[int], object]] = []


def find_blas() -> None:
    """Called once, after the imports: finds the function that sets the number of threads of numpy's library."""
    with open("/proc/self/maps") as stream:
        paths = {line.split()[-1] for line in stream if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"):
            if hasattr(library, name):
                _blas.append(getattr(library, name))
                break


_RENEWALS: dict[str, Callable[[LoadedModule, int], None]] = {
    "random": _renew_random,
    "tempfile": _renew_tempfile,
    "multiprocessing.process": _renew_multiprocessing,
    "threading": _renew_threading,
    "logging": _renew_logging,
    "platform": _renew_platform,
    "site": _renew_site,
    "sysconfig": _renew_sysconfig,
    "triton.knobs": _renew_triton,
    "torch._dynamo.config": _renew_dynamo,
    "numpy": _renew_numpy,
    "torch": _renew_torch,
}


def count_cores() -> int:
    """The number of physical cores that this process may use: the default of the libraries."""
    found = set()
    for number in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list") as stream:
                found.add(stream.read())
        except OSError:
            found.add(str(number))
    return len(found)


def _read_exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code if abs(error.code) < 1 << 63 else -1
    if sys.stderr is not None:
        sys.stderr.write(f"{error.code}\n")
    return 1


def _call_quietly(function: Callable[[], object]) -> None:
    """Reports an error and continues, as at the end of any program."""
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - see above
        what: Any = types.SimpleNamespace(exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__)
        what.err_msg, what.object = None, function
        sys.unraisablehook(what)


def _flush_files() -> None:
    """Flushes files that the program left open, which normally happens when they are destroyed."""
    found = gc.get_objects()
    standard = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    # By exact type: asking for `__class__` may run code of the object.
    archives = [item for item in found if type(item) is zipfile.ZipFile]
    texts = [item for item in found if type(item) is io.TextIOWrapper and item not in standard]
    layered = [item for item in found if type(item).__module__ in _COMPRESSED and hasattr(item, "close")]
    buffers = [item for item in found if type(item) in (io.BufferedWriter, io.BufferedRandom)]
    del found
    for item in texts:
        _try(item.flush)
    for item in (*archives, *layered):
        _try(item.close)
    for item in buffers:
        _try(item.flush)


_COMPRESSED = frozenset({"gzip", "bz2", "lzma"})


def _try(function: Callable[[], object]) -> None:
    """Ignores errors: a file that is already closed, or belongs to another process."""
    try:
        function()
    except (OSError, ValueError):
        return


def _flush_streams() -> bool:
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            return stream is sys.stderr
    return True
