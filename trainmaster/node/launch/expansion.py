"""Expands `$(NAME)` in values, commands and arguments, by the kubelet's rules. Pure.

A reference to a known variable is replaced; an unknown one is kept. `$$` is a dollar sign, so `$$(NAME)` results in
`$(NAME)`. There are no escapes and no nesting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Any characters up to the parenthesis can be a name, as upstream.
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
