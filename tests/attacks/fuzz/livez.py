"""Asks `/livez` all the while, in a process of its own: `python -m tests.attacks.fuzz.livez URL CA PID`.

Ends with its standard input, and then writes what it saw as JSON: a list of [latency, latency without the time in which
the server's loop was ready to run and had no processor, what came in place of 200 or ""]. No answer within `_PATIENCE`
is a latency too.
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

from tests.attacks.fuzz.outcome import Livez

_PAUSE = 0.04
_PATIENCE = 30.0
_WARM = 2
"""The first open the connection and count for nothing."""

Seen = tuple[float, float, str]


def read_waiting(pid: int) -> float:
    """Seconds that the server's loop was ready to run and had no processor; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def ask(connection: http.client.HTTPSConnection) -> str:
    """Why the answer was not 200; "" if it was."""
    for is_last in (False, True):
        is_kept = connection.sock is not None
        try:
            connection.request("GET", "/livez")
            response = connection.getresponse()
            response.read()
            return "" if response.status == 200 else str(response.status)
        except TimeoutError:
            connection.close()
            return "silence"
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if is_last or not is_kept:
                return type(error).__name__
            # A connection that was kept may have been closed meanwhile.
    raise AssertionError("not reached")


def watch(url: str, ca: str, pid: int) -> list[Seen]:
    context = ssl.create_default_context(cafile=ca)
    connection = http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, context=context, timeout=_PATIENCE)
    found: list[Seen] = []
    while not select.select([sys.stdin], [], [], _PAUSE)[0]:
        waited, began = read_waiting(pid), time.monotonic()
        failure = ask(connection)
        seconds = time.monotonic() - began
        found.append((seconds, max(0.0, seconds - max(0.0, read_waiting(pid) - waited)), failure))
    connection.close()
    return found


def judge(seen: list[Seen]) -> Livez:
    seen = seen[_WARM:]
    if not seen:
        return Livez()
    latencies = sorted(one[0] for one in seen)
    return Livez(
        asked=len(seen),
        failed=[failure for _, _, failure in seen if failure],
        worst=latencies[-1],
        stall=max(one[1] for one in seen),
        p99=latencies[int(len(latencies) * 0.99)],
    )


if __name__ == "__main__":
    print(json.dumps(watch(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
