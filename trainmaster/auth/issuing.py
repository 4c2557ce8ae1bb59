"""Server keys that a process of its own makes: `python -m trainmaster.auth.issuing`.

The library for certificates takes 13 MB, which an operator would keep for months for what it does once a year. Names,
time and answer go through pipes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import orjson

from trainmaster.auth.pki import LEAF_DAYS, ServerKeys, issue_keys_at
from trainmaster.kit.clock import Clock


def issue_apart(names: Sequence[str], clock: Clock, days: int = LEAF_DAYS) -> ServerKeys:
    """As `issue_server_keys`. Takes a quarter of a second. Raises OSError if it fails."""
    asked = orjson.dumps({"names": list(names), "now": clock.now().isoformat(), "days": days})
    command = [sys.executable, "-P", "-m", "trainmaster.auth.issuing"]
    done = subprocess.run(command, input=asked, capture_output=True, check=False)
    if done.returncode:
        # The last line of a traceback.
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"cannot make a certificate: {reason}")
    return ServerKeys(**orjson.loads(done.stdout))


def main() -> None:
    asked = orjson.loads(sys.stdin.buffer.read())
    keys = issue_keys_at(asked["names"], datetime.fromisoformat(asked["now"]), asked["days"])
    sys.stdout.buffer.write(orjson.dumps(asdict(keys)))


if __name__ == "__main__":
    main()
