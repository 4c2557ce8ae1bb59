"""What a program can observe of itself, of its interpreter and of its environment, in about a hundred questions.

`QUESTIONS` change nothing, so one program asks them all; `FORMS` are the ways to start it. `PROGRAMS` are programs of
their own, because they do something. Answers must not contain anything that differs between two cold starts.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

IMPORTED = (
    "asyncio atexit codecs contextvars copyreg ctypes datetime decimal faulthandler gc getpass importlib.metadata "
    "importlib.util io json linecache locale logging multiprocessing.resource_tracker multiprocessing.spawn os "
    "pkgutil platform random resource shutil signal site socket subprocess sysconfig tempfile threading time "
    "tracemalloc uuid warnings"
)
"""Before anything is asked, so that both programs have imported the same."""

QUESTIONS = {
    # the import path
    "path": "sys.path",
    "prefixes": "sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, site.PREFIXES",
    "executable": "sys.executable, sys._base_executable, os.readlink('/proc/self/exe')",
    "finders": "[getattr(entry, '__name__', type(entry).__name__) for entry in (*sys.meta_path, *sys.path_hooks)]",
    "site": "site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE, site.getsitepackages()",
    "user site": "site.getuserbase(), site.getusersitepackages()",
    "paths": "sorted(sysconfig.get_paths().items()), sysconfig.get_config_var('userbase')",
    "customized": "sys.customized, sys.from_pth",
    "pth file": "importlib.import_module('from_pth').__file__",
    "editable finder": "importlib.import_module('edited.part').__file__",
    "editable path": "importlib.import_module('edited_by_path').__file__",
    "namespace": "list(importlib.import_module('spread').__path__), importlib.import_module('spread.two').__file__",
    "found": "[importlib.util.find_spec(name).origin for name in ('pure', 'pure.inner', 'from_pth', 'json')]",
    "not found": "importlib.util.find_spec('no_such_module'), importlib.util.find_spec('trainmaster.shim')",
    "preloaded": "importlib.import_module('pure.inner').__spec__.origin, importlib.import_module('pure').VALUE",
    "modules in the path": "sorted({entry.name for entry in pkgutil.iter_modules()})",
    "distributions": "sorted((d.name, d.version) for d in importlib.metadata.distributions())",
    "entry points": "sorted(str(entry) for entry in importlib.metadata.entry_points(group='probes'))",
    "metadata": "importlib.metadata.version('pure-probe'), importlib.metadata.requires('pure-probe')",
    "ours": "sorted(name for name in sys.modules if name.partition('.')[0] == 'trainmaster')",
    "bytecode": "sys.dont_write_bytecode, sys.pycache_prefix, sys.implementation.cache_tag",
    # the program
    "arguments": "sys.argv, sys.orig_argv",
    "flags": "sys.flags, sys.warnoptions, sys._xoptions, __debug__",
    "main": "sorted(MAIN), __name__, __package__, __doc__, globals() is vars(sys.modules['__main__'])",
    "main file": "globals().get('__file__'), globals().get('__cached__')",
    "main spec": "__spec__ and (__spec__.name, __spec__.origin)",
    "main loader": "__loader__ if isinstance(__loader__, type) else (type(__loader__), vars(__loader__))",
    "annotations": "__annotations__, type(__builtins__)",
    "builtins": "sorted(vars(__import__('builtins')))",
    "names of sys": "sorted(set(vars(sys)) - {'last_type', 'last_value', 'last_traceback', 'last_exc', 'probed'})",
    "hooks": "sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook, "
    "sys.breakpointhook, sys.gettrace(), sys.getprofile(), sys.get_asyncgen_hooks(), threading.excepthook",
    "limits of the interpreter": "sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), "
    "sys.getdlopenflags(), sys.get_coroutine_origin_tracking_depth()",
    "encodings": "sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()",
    "collector": "gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage",
    "debugging": "faulthandler.is_enabled(), tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()",
    "hash policy": "sys.flags.hash_randomization, sys.hash_info",
    "denormal numbers": "sys.float_info.min / 2 > 0",
    # the process
    "variables": "dict(os.environ)",
    "variables of the kernel": "open('/proc/self/environ').read()",
    "variables of C": "[LIBC.getenv(name) for name in (b'OWN', b'OPENBLAS_NUM_THREADS', b'HOME', b'LANG')]",
    "variables of a child": "subprocess.run(['env'], capture_output=True, text=True).stdout",
    "command line": "open('/proc/self/cmdline').read(), open('/proc/self/comm').read()",
    "status": "{key: value for key, value in STATUS.items() if key in KEPT_STATUS}",
    "descriptors": "[describe(number) for number in sorted(map(int, os.listdir('/proc/self/fd')))[:-1]]",
    "descriptors of a child": "len(subprocess.run(['ls', '/proc/self/fd'], capture_output=True, close_fds=False)"
    ".stdout.split())",
    "resource limits": "open('/proc/self/limits').read(), resource.getrlimit(resource.RLIMIT_STACK)",
    "usage": "resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw < 50, resource.getpagesize()",
    "scheduling": "os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))",
    "process options": "[LIBC.prctl(option, 0, 0, 0, 0) for option in (3, 7, 21, 23, 27, 30, 39, 42, 46)]",
    "death signal": "read_int(2)",
    "subreaper": "read_int(37)",
    "out of memory": "open('/proc/self/oom_score_adj').read(), open('/proc/self/coredump_filter').read()",
    "namespaces": "sorted(os.readlink(f'/proc/self/ns/{name}') for name in ('cgroup', 'net', 'time', 'user'))",
    "session": "os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()",
    "user": "os.getresuid(), os.getresgid(), sorted(os.getgroups()), getpass.getuser(), os.path.expanduser('~')",
    "directory": "os.getcwd(), os.path.realpath('/proc/self/cwd'), os.path.realpath('/proc/self/root')",
    "umask": "STATUS['Umask']",
    "owner of its files": "os.stat('/proc/self/environ').st_uid == os.getuid()",
    "terminal": "[os.isatty(number) for number in range(3)], shutil.get_terminal_size(), os.ctermid()",
    "host": "socket.gethostname(), platform.node(), os.uname(), os.cpu_count()",
    "programs": "shutil.which('python'), shutil.which('python3'), shutil.which('env')",
    "temporary": "tempfile.gettempdir(), tempfile.tempdir",
    # signals and threads
    "signal handlers": "{number: str(signal.getsignal(number)) for number in signal.valid_signals()}",
    "signal mask": "signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.sigpending(), signal.set_wakeup_fd(-1)",
    "timers": "[signal.getitimer(which) for which in range(3)]",
    "threads": "threading.active_count(), threading.enumerate() == [threading.main_thread()], len(os.listdir("
    "'/proc/self/task')), threading.stack_size(), threading.main_thread().name, threading.main_thread().daemon",
    "main thread": "threading.current_thread() is threading.main_thread(), threading.get_native_id() == os.getpid(), "
    "threading.main_thread().ident == threading.get_ident(), threading.main_thread().native_id == os.getpid()",
    "exit functions": "atexit._ncallbacks()",
    "context": "list(contextvars.copy_context())",
    "loop": "type(asyncio.get_event_loop_policy()), asyncio.run(asyncio.sleep(0, 5))",
    # locale, time, chance
    "locale": "locale.setlocale(locale.LC_ALL), locale.getlocale(), locale.getpreferredencoding(), locale.localeconv()",
    "time zone": "time.tzname, time.timezone, time.daylight, datetime.datetime.now().astimezone().tzname()",
    "age": "time.process_time() < 10, 0 <= time.time() - logging._startTime < 20",
    "random": "random.getstate()[0], random.getstate()[2], random.random() != random.Random().random()",
    "unique": "uuid.uuid4() != uuid.uuid4(), uuid.uuid4().version",
    # libraries of the interpreter
    "streams": "[(repr(s), s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.mode, s.name, "
    "s.fileno(), type(s.buffer), s.seekable(), s.closed) for s in (sys.stdin, sys.stdout, sys.stderr)]",
    "raw streams": "[(type(r), r.name, r.mode, r.closefd, r.fileno()) for r in (sys.stdin.buffer.raw, "
    "sys.stdout.buffer, sys.stderr.buffer)]",
    "standard streams": "sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__",
    "warning filters": "warnings.filters, warnings.defaultaction, warnings.showwarning",
    "logging": "logging.root.handlers, logging.root.level, logging.raiseExceptions, logging.lastResort.stream.name, "
    "sorted(logging.root.manager.loggerDict), logging._srcfile",
    "multiprocessing": "multiprocessing.get_start_method(allow_none=True), multiprocessing.current_process().name, "
    "multiprocessing.parent_process(), multiprocessing.active_children()",
    "multiprocessing's key": "len(multiprocessing.current_process().authkey)",
    "multiprocessing's program": "multiprocessing.spawn.get_executable(), multiprocessing.process.ORIGINAL_DIR",
    "multiprocessing's main": "sys.modules['__mp_main__'] is sys.modules['__main__']",
    "multiprocessing's helpers": "multiprocessing.resource_tracker._resource_tracker._fd",
    "preparation for spawn": "sorted((k, v) for k, v in multiprocessing.spawn.get_preparation_data('x').items() "
    "if k not in ('authkey', 'log_to_stderr'))",
    "decimal": "decimal.getcontext(), decimal.DefaultContext",
    "codecs": "codecs.lookup('utf-8').name, codecs.lookup_error('strict'), io.text_encoding(None)",
    "pickling": "sorted(str(entry) for entry in copyreg.dispatch_table)",
    "line cache": "sorted(linecache.cache)",
    "platform": "platform.python_version(), platform.machine(), platform.python_implementation(), sys.platlibdir",
}

_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_PRELUDE = f"""import sys
FIRST, MAIN = sorted(sys.modules), list(globals())
NOTED: int = 1
import {", ".join(IMPORTED.split())}
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getenv.restype = ctypes.c_char_p
STATUS = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
KEPT_STATUS = "Umask Uid Gid Groups SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp " \\
    "Threads THP_enabled Cpus_allowed_list Mems_allowed_list".split()
def describe(number):
    flags = open(f"/proc/self/fdinfo/{{number}}").read().split("flags:")[1].split()[0]
    return number, os.readlink(f"/proc/self/fd/{{number}}").split(":")[0], flags, os.get_inheritable(number)
def read_int(option):
    value = ctypes.c_int()
    return LIBC.prctl(option, ctypes.byref(value), 0, 0, 0), value.value
def answer(question):
    try:
        return repr(eval(question))
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""


def build_program() -> str:
    """It writes one line for each answer, because logs split very long ones."""
    asked = f"for name, question in {QUESTIONS!r}.items():\n    print(json.dumps([name, answer(question)]))\n"
    return _PRELUDE + "print(json.dumps(['FIRST', FIRST]))\n" + asked


def read_answers(log: str, pod: int) -> dict[str, Any]:
    """By question, without what differs between any two Pods; `FIRST`: the modules before the program's first line."""
    lines = _ADDRESS.sub("", log).replace(f"pod-{pod}/", "pod/").splitlines()
    answers = dict(json.loads(line) for line in lines)
    answers["FIRST"] = {name.partition(".")[0] for name in answers["FIRST"]} - sys.stdlib_module_names
    return answers


def write_forms(work: Path) -> dict[str, tuple[str, ...]]:
    """Writes the program in all its forms, and returns their command lines."""
    program = build_program()
    (work / "probe.py").write_text(program)
    (work / "sub folder").mkdir()
    (work / "sub folder" / "pröbe").write_text("# no suffix\n" + program)
    (work / "link.py").symlink_to("sub folder/pröbe")
    (work / "package").mkdir()
    (work / "package" / "__init__.py").touch()
    (work / "package" / "__main__.py").write_text(program)
    (work / "package" / "module.py").write_text(program)
    return {
        "script": ("probe.py", "one", "two words", "--three=ü"),
        "unbuffered": ("-u", "probe.py"),
        "script in a folder": ("sub folder/pröbe", "x"),
        "script in this folder": ("./probe.py",),
        "script with its path": (f"{work}/probe.py",),
        "script from above": (f"../{work.name}/probe.py",),
        "link": ("link.py",),
        "module": ("-m", "probe", "x"),
        "package": ("-m", "package"),
        "module of a package": ("-m", "package.module", "-v"),
        "code": ("-c", program, "y"),
    }


PROGRAMS: dict[str, str | bytes] = {
    "annotations": "class A:\n    x: int = 1\nprint(A.__annotations__)\n",
    "atexit order": "import atexit\nfor word in 'abc':\n    atexit.register(print, word)\n",
    "thread at the end": "import threading, time\n"
    "def late():\n    threading.main_thread().join()\n    print('main thread has ended')\n"
    "threading.Thread(target=late).start()\n",
    "daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "error in a thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='T').start()\n",
    "exit in a thread": "import sys, threading\nthreading.Thread(target=sys.exit, args=(3,)).start()\n",
    "killed by SIGTERM": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "killed by SIGINT": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n",
    "alarm": "import signal\nsignal.alarm(1)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()\n",
    "broken pipe": "import os\nreader, writer = os.pipe()\nos.close(reader)\nos.write(writer, b'x')\n",
    "descriptor numbers": "import os\nprint(os.pipe(), os.dup(1))\n",
    "fork": "import os\nif os.fork() == 0:\n    print('child', flush=True)\n    raise SystemExit(4)\n"
    "print('parent', os.waitstatus_to_exitcode(os.wait()[1]))\n",
    "fork server": "import multiprocessing as m\ndef f(q):\n    q.put(__name__)\nif __name__ == '__main__':\n"
    "    c = m.get_context('forkserver')\n    q = c.Queue()\n    p = c.Process(target=f, args=(q,))\n    p.start()\n"
    "    print(q.get())\n    p.join()\n    print(p.exitcode)\n",
    "process pool": "from concurrent.futures import ProcessPoolExecutor\nif __name__ == '__main__':\n"
    "    with ProcessPoolExecutor(1) as pool:\n        print(list(pool.map(abs, [-3])))\n",
    "shared memory": "from multiprocessing import shared_memory\ns = shared_memory.SharedMemory(create=True, size=8)\n"
    "s.buf[0] = 7\nprint(s.buf[0])\ns.close()\ns.unlink()\n",
    "child with the same interpreter": "import subprocess, sys\n"
    "print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.path, sys.executable)'], "
    "capture_output=True, text=True).stdout)\n",
    "child through PATH": "import subprocess\nprint(subprocess.run(['python3', '-c', 'import sys; print(sys.prefix)'], "
    "capture_output=True, text=True).stdout)\n",
    "recursion": "def f(n):\n    return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as error:\n    print(error)\n",
    "import of what lies beside": "import beside\nprint(beside.__file__)\n",
    "import of a preloaded module": "import pure.inner, sys\nprint(pure.inner.__name__, sys.modules['pure'] is pure)\n",
    "reload": "import importlib, pure\nprint(importlib.reload(pure).VALUE)\n",
    "changed path": "import sys\nsys.path.insert(0, 'elsewhere')\nimport other\nprint(other.__file__)\n",
    "standard input": "try:\n    input('? ')\nexcept EOFError:\n    print('no input')\n",
    "output without a line feed": "import sys\nsys.stdout.write('no line feed')\nsys.stderr.write('nor here')\n",
    "latin-1": b"# coding: latin-1\nprint('\xe4'.encode())\n",
    "byte order mark": b"\xef\xbb\xbfprint('mark')\n",
    "line endings": b"print('''a\r\nb'''.encode())\r\n",
    "first line": "#!/usr/bin/env no-such-program\nprint(__doc__)\n",
    "docstring": "'''Words.'''\nprint(__doc__)\n",
    "warning": "import warnings\nwarnings.warn('careful')\nwarnings.warn('old', DeprecationWarning)\n",
    "logging": "import logging\nlogging.warning('first')\nlogging.getLogger('x').error('second')\n",
    "unraisable": "class A:\n    def __del__(self):\n        1 / 0\nA()\n",
    "assertion": "assert False, 'no'\n",
    "exception group": "raise ExceptionGroup('several', [ValueError(1), KeyError('k')])\n",
    "interpreter options of a child": "import subprocess, sys\nprint(subprocess._args_from_interpreter_flags())\n",
    "profile": "import sys\nsys.setprofile(lambda *a: None)\nprint(sum([1, 2]))\n",
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.create_subprocess_exec('true')\n    print('ran')\n"
    "asyncio.run(main())\n",
    "name server": "import socket\nprint(sorted({e[4][0] for e in socket.getaddrinfo('localhost', 80)}))\n",
    "certificates": "import ssl\nprint(ssl.get_default_verify_paths(), ssl.create_default_context().verify_mode)\n",
}
"""Programs of their own; what they write and how they end is compared."""


def make_environment(folder: Path) -> str:
    """A virtual environment with system packages, `.pth` files, editable installs, a namespace and metadata."""
    prefix, extra = folder / "environment", folder / "extra"
    packages = prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    interpreter = os.path.realpath(sys.executable)
    files = {
        prefix / "pyvenv.cfg": f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = true\n",
        packages / "pure" / "__init__.py": "VALUE = 5\n",
        packages / "pure" / "inner.py": "",
        packages / "sitecustomize.py": "import sys; sys.customized = sys.prefix\n",
        packages / "paths.pth": f"{extra}\n",
        packages / "code.pth": "import sys; sys.from_pth = __name__\n",
        packages / "__editable__.edited.pth": "import __editable___finder; __editable___finder.install()\n",
        packages / "__editable___finder.py": _FINDER.format(folder=folder / "source"),
        packages / "__editable__.by_path.pth": f"{folder / 'by path'}\n",
        packages / "spread" / "one.py": "",
        extra / "from_pth.py": "",
        extra / "spread" / "two.py": "",
        folder / "source" / "edited" / "__init__.py": "",
        folder / "source" / "edited" / "part.py": "",
        folder / "by path" / "edited_by_path.py": "",
    }
    for number, name in enumerate(("pure-probe", "edited", "other.name")):
        info = packages / f"{name.replace('-', '_')}-{number}.dist-info"
        files[info / "METADATA"] = f"Name: {name}\nVersion: {number}\nRequires-Dist: numpy>={number}\n"
        files[info / "entry_points.txt"] = f"[probes]\n{name} = pure:VALUE\n"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python3").symlink_to(interpreter)
    return str(prefix)


_FINDER = """
import importlib.machinery, importlib.util, sys
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "edited":
            place = "{folder}/edited"
            return importlib.util.spec_from_file_location(name, place + "/__init__.py",
                submodule_search_locations=[place])
def install():
    sys.meta_path.append(Finder)
"""
"""As installers write it for an editable install."""


def write_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "import inside, sys; print(inside.__name__, sys.path[0], __file__)\n")
        archive.writestr("inside.py", "")
