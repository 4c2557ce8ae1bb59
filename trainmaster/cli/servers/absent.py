"""The message if no server is running in a home, shared by `status` and every command that needs one.

A server that stops normally removes its server.json; one that is killed, or whose machine loses power, leaves it.
"""

from __future__ import annotations

import shlex

from trainmaster.app.home.folder import Home


def explain_absent(home: Home, chosen: str = "") -> str:
    """Says that no server is running, whether the last one crashed, and how to start one. `chosen`: the given home."""
    start = shlex.join(["trainmaster", "up", "--detach", *(("--home", chosen) if chosen else ())])
    if (died := home.find_died()) is None:
        return f"no server runs in {home.root}: start it with `{start}`"
    return (
        f"the server of {home.root} died (pid {died.pid}): `{start}` starts it again and takes its jobs over, which go "
        f"on meanwhile; its log is {home.server_log}"
    )
