"""Asks `/livez` all the while, in a process of its own: `python -m tests.attacks.fuzz.livez URL CA PID`.

Ends with its standard input, and then writes what it saw as JSON: a list of [latency, latency without the time in which
the server's loop was ready to run and had no processor].
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import sys
import time
import urllib.parse
from pathlib import Path

_PAUSE = 0.04


def read_waiting(pid: int) -> float:
    """Seconds that the server's loop was ready to run and had no processor."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def watch(url: str, ca: str, pid: int) -> list[tuple[float, float]]:
    context = ssl.create_default_context(cafile=ca)
    connection = http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, context=context, timeout=30)
    found: list[tuple[float, float]] = []
    while not select.select([sys.stdin], [], [], _PAUSE)[0]:
        try:
            waited = read_waiting(pid)
            began = time.monotonic()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            seconds = time.monotonic() - began
            found.append((seconds, max(0.0, seconds - (read_waiting(pid) - waited))))
        except (OSError, http.client.HTTPException):
            connection.close()
    connection.close()
    return found


if __name__ == "__main__":
    print(json.dumps(watch(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
