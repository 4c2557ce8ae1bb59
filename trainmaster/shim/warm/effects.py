"""What an import must not do, because programs that start with it would see it, or could not be forked: one list.

`look` describes this process, before and after the imports; `refusing_calls` prevents what would not be seen in it.
Used for packages that are tried (`trials`) and, without the calls, for what a warm zygote has imported (`zygote`).
"""

from __future__ import annotations

import locale
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

VARIABLES = "it changes variables"
_WRITES = "it writes files"
_STARTS = "it starts processes"
_CONNECTS = "it uses the network"
_CALLS = {
    **dict.fromkeys(("os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "subprocess.Popen"), _STARTS),
    **dict.fromkeys(("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"), _WRITES),
    **dict.fromkeys(("tempfile.mkstemp", "tempfile.mkdtemp"), _WRITES),
    **dict.fromkeys(("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"), _CONNECTS),
}
"""Audit event of the interpreter -> what it means."""
_MAKES_SCRATCH = "tempfile.mkdtemp"
_HARMLESS = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"})
_COMPILED = "__pycache__"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def look() -> dict[str, object]:
    """What imports must not change, by the text that says that they did."""
    return dict(_look())


def find_change(before: Mapping[str, object], *, ignored: Collection[str] = ()) -> str:
    """The first text whose value is not the same any more, with what is new; empty if there is none."""
    for text, value in look().items():
        old = before[text]
        if value != old and text not in ignored:
            new = value - old if isinstance(value, set) and isinstance(old, set) else ()
            return f"{text}: {', '.join(sorted(new))}" if new else text
    return ""


def _look() -> Iterator[tuple[str, object]]:
    yield "it starts threads", _read(lambda: len(os.listdir("/proc/self/task")))
    yield _STARTS, _read(lambda: open(f"/proc/self/task/{os.getpid()}/children").read())  # noqa: SIM115
    yield "it initialises a device", _has_device()
    yield "it leaves files open", _list_descriptors()
    yield VARIABLES, dict(vars(os.environ)["_data"])  # looking them up would count as reading them
    yield "it changes signal handlers", {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield "it changes the locale", locale.setlocale(locale.LC_ALL)
    yield "it changes the directory", os.getcwd()


def _read(function: Callable[[], object]) -> object:
    try:
        return function()
    except OSError:
        return None  # a kernel without it


def _has_device() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _list_descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}") + f" ({name})")
        except FileNotFoundError:
            continue  # the one that listed them
    return found


@contextmanager
def refusing_calls() -> Iterator[list[str]]:
    """During the block such calls fail, and are listed. Once in a process, which keeps its audit hooks. A temporary
    directory may be used if it is removed again, which is how filelock finds out what the file system can do."""
    seen: list[str] = []
    scratch: list[str] = []
    is_active = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        text = _describe_open(*arguments) if event == "open" else _CALLS.get(event, "")
        if not is_active or not text or _is_interpreters(event, arguments):
            return
        if event == _MAKES_SCRATCH:
            scratch.append(str(arguments[0]))
        elif text is not _WRITES or not _is_beneath(scratch, arguments):
            seen.append(text)
            raise PermissionError(text)

    sys.addaudithook(note)
    try:
        yield seen
    finally:
        is_active = False
        if any(map(os.path.lexists, scratch)):
            seen.append(_WRITES)


def _describe_open(path: object, _: object, flags: object) -> str:
    name = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    if not name or name in _HARMLESS:
        return ""
    if isinstance(flags, int) and flags & _WRITING:
        return _WRITES
    return "it opens a device" if name.startswith("/dev/") else ""


def _is_beneath(directories: Collection[str], arguments: tuple[object, ...]) -> bool:
    """Whether all paths among the arguments of an audit event are in one of the directories. Relative ones belong to
    the descriptor among the arguments, if there is one."""
    descriptor = next((one for one in reversed(arguments) if isinstance(one, int) and one >= 0), None)
    for path in (os.fsdecode(one) for one in arguments if isinstance(one, str | bytes | os.PathLike)):
        if not os.path.isabs(path) and descriptor is not None:
            path = os.path.join(str(_read(lambda: os.readlink(f"/proc/self/fd/{descriptor}"))), path)
        if not any(os.path.abspath(path).startswith(f"{place}/") or path == place for place in directories):
            return False
    return True


def _is_interpreters(event: str, arguments: tuple[object, ...]) -> bool:
    """Whether it writes compiled modules, or looks for a directory for temporary files."""
    if _COMPILED in str(arguments[:1]):
        return True
    return not event.startswith("tempfile.") and sys._getframe(2).f_globals.get("__name__") == "tempfile"
