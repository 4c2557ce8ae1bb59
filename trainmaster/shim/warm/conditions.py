"""Decides whether a Python program can start in a forked, warm interpreter instead of being executed.

A warm interpreter has already imported slow libraries. This is checked in the container's child, inside its sandbox,
just before exec; in case of doubt the program is executed, and a note says why. A warm start is possible for a script,
`-m` or `-c`, run by the interpreter of exactly the environment that was imported, if no variable that is read at exec
or import time differs from the warm zygote's, and no file beside the script would have been imported instead. Used by
`launch`; in a zygote without imports this is never called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.shim.protocol import ENVIRON, ContainerSpec

WHILE_IMPORTING = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A library that starts threads at import cannot be forked."""
THREADS = "OMP_NUM_THREADS"
"""May have any value: it is passed to the libraries again after the fork."""

LAYER_HOOK = "_trainmaster_layer"
"""The module that interpreters of an environment run at start (`node.images.layer_hook`)."""

PICKED = {"tqdm.utils": "TQDM_"}
"""Module that reads all variables -> prefix of those that it uses."""

ALL_VARIABLES = "all variables"
"""Stands for a read of variables whose names are not known in advance."""

_AT_EXEC = ("LD_", "GLIBC_", "MALLOC_", "PYTHON", "LC_", "LANGUAGE", "TZ", "ASAN_", "LSAN_", "UBSAN_", "TSAN_")
_AT_IMPORT = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "VECLIB_", "NUMEXPR_", "NPY_", "NUMPY_"),
    *("TORCH", "PYTORCH_", "ATEN_", "C10_", "CAFFE2_", "DNNL_", "ONEDNN_", "AOT", "INDUCTOR_", "TRITON_", "KINETO_"),
    *("CUBLAS", "CUDNN_", "CUDA_MODULE_LOADING", "CUDA_CACHE_", "HSA_", "HIP_", "ROCR_", "ROCM", "LLVM_", "MLIR_"),
    *PICKED.values(),
)
"""What compiled libraries read on their own when they are loaded; reads in Python are seen by the recorder."""
_LATER = ("TORCHELASTIC_", "TORCH_NCCL_", "TORCH_HOME")
"""Exceptions from these, which are only read when used: torchrun sets them for its workers, and the node the last."""
_REFRESHED = {"HOME": {"sysconfig", "triton.knobs"}}
"""Variable -> modules for which `program` renews it."""
_NAMES = ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}")
_SUFFIXES = (".py", ".pyc", ".so")
_SCRIPT = b"#!/usr/bin/env python3\n"
_MARK = b"\0"


@dataclass(frozen=True, slots=True)
class WarmState:
    """What a warm zygote has imported."""

    key: str
    prefix: str
    """The layer that contains this interpreter."""
    imports: tuple[str, ...]
    reads: Mapping[str, tuple[str | None, frozenset[str]]]
    """Variable -> (value during the imports, modules that read it)."""
    modules: tuple[str, ...]
    """Our modules, which the program must not see."""
    loaded: frozenset[str]
    """Top-level names of all imported modules."""
    path: tuple[str, ...]
    """The import path."""
    label: str
    """Display name of the environment."""
    left_out: tuple[str, ...] = ()
    """Packages that earlier programs imported, but that cannot be imported in advance, and why."""

    def describe(self) -> str:
        text = f"started warm: environment {self.label} (imports: {', '.join(self.imports)}"
        return f"{text}; not in advance: {', '.join(self.left_out)})" if self.left_out else f"{text})"


@dataclass(frozen=True, slots=True)
class Command:
    kind: str
    """script, module or code."""
    target: str
    arguments: tuple[str, ...]


class BecomeProgram(BaseException):
    """Unwinds a child out of shim and zygote to the bottom of the interpreter's stack."""

    def __init__(self, spec: ContainerSpec, report: int) -> None:
        super().__init__("become a program")
        self.spec = spec
        self.report = report


_warm_state: list[WarmState] = []


def set_warm_state(warmth: WarmState) -> None:
    _warm_state[:] = [warmth]


def get_warm_state() -> WarmState:
    return _warm_state[0]


def is_asked(spec: ContainerSpec) -> bool:
    return bool(_warm_state) and bool(spec.warm) and spec.warm == _warm_state[0].key


def find_obstacle(spec: ContainerSpec) -> str:
    """Why the program must be executed; empty if it can start warm. Called in its sandbox and working directory."""
    warmth = _warm_state[0]
    argv, _ = resolve_interpreter(spec, warmth.prefix)
    if not argv:
        return f"{spec.argv[0]} is not run by the interpreter of {warmth.label}"
    command = parse_command(argv)
    if command is None:
        return "only python SCRIPT, python -m MODULE and python -c CODE are started warm"
    if command.kind == "module" and command.target == "pip":
        return "pip makes an environment of the Pod's own"
    if name := find_variable(spec.env, warmth):
        return f"{name} takes effect only when a program or its libraries are loaded"
    if os.path.lexists(spec.env.get("TRAINMASTER_ENV", "")):
        return "the Pod has installed packages of its own"
    if missing := next((place for place in warmth.path if not os.path.exists(place)), ""):
        return f"{missing} is not visible in the Pod"
    return _find_in_the_way(command, warmth)


def resolve_interpreter(spec: ContainerSpec, prefix: str) -> tuple[tuple[str, ...], str]:
    """(command line, interpreter) as the kernel would resolve them; empty if it is not the prefix's own interpreter.

    A script in the environment refers to the python3 in PATH in its first line, as the node's copies do.
    """
    program, own = spec.argv[0], f"{prefix}/bin"
    if os.path.dirname(program) == own and os.path.basename(program) in _NAMES:
        return spec.argv, program
    try:
        with open(program, "rb") as stream:
            first = stream.read(len(_SCRIPT))
    except OSError:
        return (), ""
    places = [place for place in spec.env.get("PATH", "").split(":") if os.access(f"{place}/python3", os.X_OK)]
    if first != _SCRIPT or places[:1] != [own]:
        return (), ""
    return ("python3", *spec.argv), f"{own}/python3"


def parse_command(argv: tuple[str, ...]) -> Command | None:
    """None for an option of the interpreter itself, or if there is no program."""
    words = list(argv[1:])
    while words[:1] == ["-u"]:
        words.pop(0)
    if not words:
        return None
    if words[0] in ("-m", "-c"):
        return Command("module" if words[0] == "-m" else "code", words[1], tuple(words[2:])) if words[1:] else None
    return None if words[0].startswith("-") else Command("script", words[0], tuple(words[1:]))


def find_variable(env: Mapping[str, str], warmth: WarmState) -> str:
    """A variable of the program that would have been needed at import; empty if there is none."""
    for name, value in env.items():
        if ENVIRON.get(name) == value or (name == THREADS and value.isdigit() and int(value) > 0):
            continue
        early = name.startswith(_AT_EXEC) or name.startswith(_AT_IMPORT)
        if (early and not name.startswith(_LATER)) or name in ENVIRON:
            return name
    # Likewise for variables that were set during the imports and the program does not have.
    known = {**{name: value for name, (value, _) in warmth.reads.items()}, **ENVIRON}
    differs = (name for name, value in known.items() if env.get(name) != value)
    return next((name for name in differs if name not in WHILE_IMPORTING and not _is_refreshed(name, warmth)), "")


def _is_refreshed(name: str, warmth: WarmState) -> bool:
    return name in warmth.reads and warmth.reads[name][1] <= _REFRESHED.get(name, set())


def find_folder(command: Command) -> str:
    """The directory that the interpreter would put first on its path."""
    return os.path.dirname(os.path.realpath(command.target)) if command.kind == "script" else os.getcwd()


def _find_in_the_way(command: Command, warmth: WarmState) -> str:
    try:
        if command.kind == "script":
            if not os.path.isfile(command.target):
                return f"{command.target} is not a file"
            if not _is_source(command.target):
                return f"{command.target} is not source code"
        folder = find_folder(command)
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError as error:
        return f"{error.filename} cannot be read"
    for name in names:
        stem = name.partition(".")[0]
        if stem in warmth.loaded and _is_module(folder, name, stem):
            return f"{folder}/{name} comes before the module {stem} of the environment"
    return ""


def _is_source(path: str) -> bool:
    """False for an archive or a compiled module, which contain null bytes."""
    with open(path, "rb") as stream:
        return not any(b"\0" in part for part in iter(lambda: stream.read(1 << 16), b""))


def _is_module(folder: str, name: str, stem: str) -> bool:
    return os.path.exists(f"{folder}/{stem}/__init__.py") if name == stem else name.endswith(_SUFFIXES)


def write_note(report: int, text: str) -> None:
    """Writes a note to the report pipe, in which anything else is an error."""
    os.write(report, _MARK + text.encode(errors="replace")[:1000].replace(b"\n", b" ") + b"\n")


def split_report(content: bytes) -> tuple[str, str]:
    """(note, error)."""
    note = b""
    if content.startswith(_MARK):
        note, _, content = content[1:].partition(b"\n")
    return note.decode(errors="replace"), content.decode(errors="replace")
