"""The warm zygote: runs in the interpreter of an environment and has done that environment's slow imports.

It is executed by the home's zygote, stays in its namespaces, and exists once per environment and tenant. Its shims are
like all others, except that programs of their containers may start as forks (`conditions`, `program`). It only imports:
first a fixed list, which must not create threads, descriptors or devices (checked before it listens; a library that
does so has no warm start), then what earlier programs imported, as far as that is safe (`trials`). The environment
variables that were read meanwhile are recorded.

Started as `python -c ... <package> <options>` (`zygote`); prints `ready` on its standard output once it listens.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.shim import launch
from trainmaster.shim.protocol import ZYGOTE_FOLDER
from trainmaster.shim.sandbox import build as sandbox
from trainmaster.shim.sandbox import linux
from trainmaster.shim.warm import conditions, effects, trials, workers
from trainmaster.shim.warm.program import OURS, WarmProgram, close_all_but, find_blas
from trainmaster.shim.wire import Message
from trainmaster.shim.zygote import Zygote, report_and_detach

_STANDARD = frozenset({"os", "posixpath", "genericpath", "collections.abc", "_collections_abc", "getpass", __name__})
"""Reads of a variable through these modules are attributed to their caller."""


class WarmError(Exception):
    """The imports created something that cannot be forked."""


def main(text: str) -> WarmProgram | None:
    """None if the zygote has ended. Otherwise this is a child, and the result is the program that it becomes."""
    options = json.loads(text)
    package, ground = sys.path[0], options["ground"]
    launch.arrange_signals()
    close_all_but(int(ground["switch"]))
    linux.set_process_name("tm-warm")
    linux.set_subreaper()
    linux.keep_thread_number()
    sandbox.restore_inherited(ground)
    state = load(options)
    if options["priority"] is not None:
        os.setpriority(os.PRIO_PROCESS, 0, options["priority"])
    ours = tuple(name for name in sys.modules if name.partition(".")[0] == OURS)
    conditions.set_warm_state(replace(state, modules=ours))
    find_blas()
    area = linux.CommandArea()
    zygote = Zygote(options["root"], str(ground["level"]), options["fingerprint"], -1, options["socket"])
    report_and_detach(f"{options['root']}/{ZYGOTE_FOLDER}", "ready")
    try:
        zygote.serve()
        return None
    except conditions.BecomeProgram as become:
        spec = become.spec
        program = WarmProgram(become.spec, become.report, package, area)
    del zygote
    program.settle()
    handler = workers.find_handler(program.command)
    worker = workers.fork_spawner(handler, spec) if handler is not None else None
    if worker is None:
        return program
    program = WarmProgram(worker, -1, package, area)
    program.settle()
    return program


def load(options: Message) -> conditions.WarmState:
    before = effects.look()
    reads: dict[str, tuple[str | None, set[str]]] = {}
    plain = type(os.environ)
    os.environ.__class__ = _build_recorder(plain, reads)
    try:
        for name in options["imports"]:
            importlib.import_module(name)
        _check(before, options["imports"])
        learned, left_out = trials.import_in_advance(_read_learned(options["learned"]), options["varying"], reads)
    finally:
        os.environ.__class__ = plain
    _check(before, learned)
    return conditions.WarmState(
        key=options["key"],
        prefix=options["prefix"],
        imports=tuple(dict.fromkeys((*options["imports"], *learned))),
        reads={name: (value, frozenset(who)) for name, (value, who) in reads.items()},
        modules=(),
        loaded=frozenset(name.partition(".")[0] for name in sys.modules) - {"__main__"},
        path=tuple(place for place in sys.path[2:] if os.path.exists(place)),
        label=options["label"],
        left_out=tuple(left_out),
    )


def _read_learned(path: str) -> list[str]:
    try:
        with open(path) as stream:
            return stream.read().split()
    except OSError:
        return []  # nothing was learned


def _build_recorder(plain: Any, reads: dict[str, tuple[str | None, set[str]]]) -> Any:
    class LookupRecorder(plain):  # type: ignore[misc]
        def __getitem__(self, key: str) -> str:
            value = self._data.get(self.encodekey(key))
            who = _find_caller()
            if key.startswith(conditions.PICKED.get(who, "")):
                reads.setdefault(key, (None if value is None else os.fsdecode(value), set()))[1].add(who)
            return str(super().__getitem__(key))

        def __iter__(self) -> Iterator[str]:
            if (who := _find_caller()) not in conditions.PICKED:
                reads.setdefault(conditions.ALL_VARIABLES, (None, set()))[1].add(who)
            return iter(super().__iter__())

    return LookupRecorder


def _find_caller() -> str:
    """The module that reads a variable."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _STANDARD:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _check(before: Mapping[str, object], imported: Sequence[str]) -> None:
    """Variables may change: those of the program replace them."""
    if problem := effects.find_change(before, ignored={effects.VARIABLES}):
        raise WarmError(f"{', '.join(imported)} cannot be imported in advance: {problem}")
