"""The threads of the fuzzer: the first that dies stops the others, and nobody mistakes that for a run that was clean."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping


def run_crew(jobs: Mapping[str, Callable[[], None]], stop: threading.Event, patience: float) -> list[str]:
    """Runs each job in a thread of that name until all have returned. What went wrong with the threads, if anything.

    `stop` is set when one of them dies, and after `patience` seconds; whoever does not hear it counts as hanging.
    """
    lost: list[str] = []

    def guard(name: str, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:  # noqa: BLE001 - whatever it is, it is told
            lost.append(f"thread {name} died: {traceback.format_exc()}")
            stop.set()

    threads = [threading.Thread(target=guard, args=item, name=item[0], daemon=True) for item in jobs.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    stop.set()
    return lost + [f"thread {thread.name} hangs" for thread in threads if thread.is_alive()]
