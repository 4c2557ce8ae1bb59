"""What a training framework adds to the trainer's Pods, one module each, as pure functions.

`select` picks by the runtime's `mlPolicy`. To support a framework: one module with an `Ml` value, one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.controllers.frameworks import plain, torch
from trainmaster.controllers.frameworks.contract import Framework

FRAMEWORKS: Mapping[str, Framework] = {"torch": torch.FRAMEWORK}


def select_framework(ml_policy: Mapping[str, Any] | None) -> Framework:
    """The framework that the policy names; plain when it names none. KeyError carries the name of an unknown one."""
    for name in ml_policy or {}:
        if name == "numNodes":
            continue
        if name not in FRAMEWORKS:
            raise KeyError(name)
        return FRAMEWORKS[name]
    return plain.FRAMEWORK
