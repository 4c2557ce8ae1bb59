"""`$(NAME)` in values, commands and arguments, by the kubelet's rules. Pure.

A reference is replaced by a variable that is known at that point; an unknown one stays as it is. `$$` is a dollar
sign, so `$$(NAME)` is written to get `$(NAME)`. There are no escapes and no nesting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Any run of characters up to the bracket may be a name: upstream does not look at its form here.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


def expand(text: str, *known: Mapping[str, str]) -> str:
    def put(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        for variables in known:
            if match.group(1) in variables:
                return variables[match.group(1)]
        return match.group(0)

    return _REFERENCE.sub(put, text) if "$" in text else text
