"""Excludes objects from Python's cycle collector, for many small objects that can never be part of a cycle.

A full collection visits every tracked object. For 100,000 stored records that takes 30 to 65 ms, in which nothing else
runs. Untracked objects cost nothing, and reference counting still frees them. Use only for objects that cannot be
reached from what they refer to: a cycle through an untracked object is never freed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable


def _load_untrack() -> Callable[[object], None]:
    if sys.implementation.name != "cpython":
        return lambda _: None
    function = ctypes.pythonapi.PyObject_GC_UnTrack
    function.argtypes = [ctypes.py_object]
    function.restype = None
    return function


untrack = _load_untrack()
"""Takes 0.3 us. Does nothing if the object is not tracked."""
