"""What is said where no server runs in a home: the same by `status` and by every command that needs one.

A server that was stopped takes its description with it; one that was killed, or whose machine lost power, leaves it.
"""

from __future__ import annotations

import shlex

from trainmaster.app.home.folder import Home


def explain_absent(home: Home, chosen: str = "") -> str:
    """That no server runs, whether the last one died, and how to start one. `chosen`: the home that was named."""
    start = shlex.join(["trainmaster", "up", "--detach", *(("--home", chosen) if chosen else ())])
    if (died := home.find_died()) is None:
        return f"no server runs in {home.root}: start it with `{start}`"
    return (
        f"the server of {home.root} died (pid {died.pid}): `{start}` starts it again and takes its jobs over, which go "
        f"on meanwhile; its log is {home.server_log}"
    )
