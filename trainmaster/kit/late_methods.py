"""Makes dataclasses compile their methods on first call, for classes that are defined during imports.

`dataclass` generates and compiles five or six methods per class. A server has close to 300 dataclasses: that took half
of its import time (150 of 340 ms), for methods most of which are never called. Used where a command and the server are
loaded. Classes behave as before; on its first call a method replaces itself with the compiled one, so later calls cost
nothing extra. A class without a docstring gets its name as one, without the signature, which would have to be compiled.

The compiling function is private to Python. Python 3.13 no longer has it (it compiles all methods of a class at once);
there, and wherever it is missing, this does nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

_COMPILER = "_create_fn"
_INSPECT = "inspect"

Compiler = Callable[..., Callable[..., object]]
"""(name, parameters, lines of the body, ...) -> the function."""


@contextmanager
def late_methods() -> Iterator[None]:
    """Applies to dataclasses that are defined inside the block. Can be nested."""
    compiler: Compiler | None = vars(dataclasses).get(_COMPILER)
    if compiler is None or compiler.__module__ == __name__:
        yield
        return
    setattr(dataclasses, _COMPILER, _defer(compiler))
    setattr(dataclasses, _INSPECT, SimpleNamespace(**{**vars(inspect), "signature": lambda _: ""}))
    try:
        yield
    finally:
        setattr(dataclasses, _COMPILER, compiler)
        setattr(dataclasses, _INSPECT, inspect)


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
    """Replaces the method in the class that defines it, which may be a base of `cls`."""
    for owner in cls.__mro__:
        if owner.__dict__.get(method.__name__) is method:
            setattr(owner, method.__name__, compiled)
