"""Lets dataclasses compile their methods when they are first called, while a program's modules are being imported.

`dataclass` writes and compiles five or six methods per class, one by one. A server has close to 300 such classes: that
was half of the time of all its imports (150 of 340 ms), for methods most of which a process never calls. Used where a
command and the server are loaded. A class behaves as before; at its first call a method puts the compiled one in its
own place, so later calls cost what they always did.

The function that compiles is Python's own and private. Python 3.13 has it no more (it compiles all methods of a class
at once); there, and wherever it is missing, nothing is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_COMPILER = "_create_fn"

Compiler = Callable[..., Callable[..., object]]
"""(name, parameters, lines of the body, ...): the function."""


@contextmanager
def late_methods() -> Iterator[None]:
    """For dataclasses that are defined inside. May be nested."""
    compiler: Compiler | None = vars(dataclasses).get(_COMPILER)
    if compiler is None or compiler.__module__ == __name__:
        yield
        return
    setattr(dataclasses, _COMPILER, _defer(compiler))
    try:
        yield
    finally:
        setattr(dataclasses, _COMPILER, compiler)


def _defer(compiler: Compiler) -> Compiler:
    def create(name: str, *source: object, **surroundings: object) -> Callable[..., object]:
        compiled: Callable[..., object] | None = None

        def method(self: object, *arguments: object, **named: object) -> object:
            nonlocal compiled
            if compiled is None:
                compiled = compiler(name, *source, **surroundings)
                compiled.__qualname__ = method.__qualname__
                _put_in_place(type(self), method, compiled)
            return compiled(self, *arguments, **named)

        method.__name__ = name
        return method

    return create


def _put_in_place(cls: type, method: Callable[..., object], compiled: Callable[..., object]) -> None:
    """In the class that has it, which may be one that `cls` inherits from."""
    for owner in cls.__mro__:
        if owner.__dict__.get(method.__name__) is method:
            setattr(owner, method.__name__, compiled)
