"""How much one tenant that uses all it can get slows down another one.

    SECONDS=120 .venv/bin/python -m bench.greedy_tenant

A server as root, and in each round two new tenants. `calm` creates a ConfigMap every 50 ms and reads the answer, first
alone, then while `greedy` (1 CPU, 256Mi, 64 pids, 200 MB of disk) runs Pods that eat memory, fork, fill files and print
without end, and sends objects, jobs that are too large and connections, each as fast as it is let. A job of `calm` runs
all the time and must end well. Prints the p99 of all rounds and how `greedy` was answered. SECONDS is the time of greed
in all rounds; ONLY="forks hold_connections" (names of programs and of functions in GREED) tells what costs how much.
"""

from __future__ import annotations

import collections
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench._report import Report
from tests.attacks.site import Caller, Separate, add_tenant
from tests.support.clients import Raw
from tests.support.server import ServerProcess, start_server

ALLOWANCE = ("--cpu", "1", "--memory", "256Mi", "--pids", "64", "--storage", "200M")
ROUNDS = 3
MOST_SECONDS = 60.0
"""Until the greedy tenant has been refused."""
TRAINER = "trainer.kubeflow.org/v1alpha1"
PROGRAMS = {
    "memory": "held = []\nwhile True: held.append(bytearray(b'x' * (4 << 20)))",
    "forks": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "files": "import os\nn = 0\nwhile True:\n  n += 1\n  try: open(f'f{n}', 'wb').write(os.urandom(1 << 20))\n"
    "  except OSError: pass",
    "log": "while True: print('x' * 200)",
}


@dataclass
class Outcome:
    before: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    answers: collections.Counter[str] = field(default_factory=collections.Counter)
    """How the greedy tenant was answered: "create 201", "connect refused"."""
    wrong: list[str] = field(default_factory=list)
    """Responses that must never occur."""
    job: str = ""

    def add(self, other: Outcome) -> None:
        """Another round."""
        self.before += other.before
        self.during += other.during
        self.answers += other.answers
        self.wrong += other.wrong
        if other.job != "Complete":
            self.wrong.append(f"the job of the other tenant: {other.job}")


def find_p99(seconds: list[float]) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def run(server: ServerProcess, seconds: float, *, quiet_seconds: float) -> Outcome:
    """Two new tenants of that server; nothing of them is left running."""
    outcome = Outcome()
    tag = os.urandom(3).hex()
    calm, greedy = add_tenant(server, f"calm-{tag}"), add_tenant(server, f"greedy-{tag}", *ALLOWANCE)
    job = start_job(calm, quiet_seconds + seconds + 3)
    try:
        create_steadily(server, calm, quiet_seconds, outcome.before)
        who = Attacked(server.url, str(server.ca), greedy.namespace, greedy.token)
        line = [sys.executable, "-m", "bench.greedy_tenant", json.dumps(asdict(who)), str(seconds)]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
        try:
            create_steadily(server, calm, seconds, outcome.during)
        finally:
            said = json.loads(process.communicate(timeout=90)[0])
            outcome.answers, outcome.wrong = collections.Counter(said["answers"]), said["wrong"]
        outcome.job = wait_for_job(calm, job)
    finally:
        for caller in (calm, greedy):
            caller.kube.call("DELETE", f"{caller.path('pods')}?gracePeriodSeconds=0")
            caller.kube.call("DELETE", caller.path("trainjobs", group=TRAINER))
            caller.close()
    return outcome


@dataclass(frozen=True)
class Attacked:
    """What a process of its own needs to know."""

    url: str
    ca: str
    namespace: str
    token: str

    def open(self) -> Caller:
        context = ssl.create_default_context(cafile=self.ca)
        raw = Separate(self.url, context, self.token)
        return Caller(self.namespace, self.token, raw, raw)


def be_greedy(who: Attacked, seconds: float) -> None:
    """Runs in a process with low priority, because a real attacker would not use this machine's CPU time."""
    os.nice(15)
    outcome, stop = Outcome(), threading.Event()
    threads = [threading.Thread(target=work, args=(who, outcome, stop)) for work in GREED if is_asked(work.__name__)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    time.sleep(seconds)
    while not is_refused(outcome) and time.monotonic() < began + MOST_SECONDS:
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"answers": outcome.answers, "wrong": outcome.wrong}))


def is_refused(outcome: Outcome) -> bool:
    """Whether it took all that it may have. On a busy machine that takes a process of low priority a while."""
    wanted = [what for what, work in (("pod", start_pods), ("job", ask_for_jobs)) if is_asked(work.__name__)]
    return all(outcome.answers[f"{what} 403"] for what in wanted)


def is_asked(name: str) -> bool:
    only = os.environ.get("ONLY", "").split()
    return not only or name in only or (name == "start_pods" and not PROGRAMS.keys().isdisjoint(only))


def start_job(caller: Caller, seconds: float) -> str:
    body = {
        "apiVersion": TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": "steady"},
        "spec": {
            "runtimeRef": {"name": "plain", "kind": "ClusterTrainingRuntime"},
            "trainer": {"command": ["sleep", str(int(seconds))]},
        },
    }
    created: dict[str, Any] = caller.kube.create(caller.path("trainjobs", group=TRAINER), body)
    return str(created["metadata"]["name"])


def wait_for_job(caller: Caller, name: str) -> str:
    """The type of the condition that ended it."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = caller.kube.get(caller.path("trainjobs", name, group=TRAINER))
        for condition in found.get("status", {}).get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                return str(condition["type"])
        time.sleep(0.2)
    return "running"


def create_steadily(server: ServerProcess, caller: Caller, seconds: float, times: list[float]) -> None:
    """On a connection that stays: what is measured is the server."""
    kept = Raw(server.url, ssl.create_default_context(cafile=str(server.ca)), caller.token)
    end, number = time.monotonic() + seconds, len(times)
    start = number
    try:
        while (now := time.monotonic()) < end:
            number += 1
            name = f"c{start}-{id(times) % 10_000}-{number}"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            code, answer = kept.call("POST", caller.path("configmaps"), body)
            times.append(time.monotonic() - now)
            assert code == 201, answer
            kept.call("DELETE", caller.path("configmaps", name))
            time.sleep(max(0.0, 0.05 - (time.monotonic() - now)))
    finally:
        kept.close()


Work = Callable[[Attacked, Outcome, threading.Event], None]


def note(outcome: Outcome, what: str, code: int, answer: Any, allowed: tuple[int, ...]) -> None:
    outcome.answers[f"{what} {code}"] += 1
    if code not in allowed:
        outcome.wrong.append(f"{what}: {code} {str(answer)[:300]}")


def send(caller: Caller, outcome: Outcome, what: str, path: str, body: Any) -> None:
    try:
        code, answer = caller.kube.call("POST", path, body)
    except (OSError, ssl.SSLError) as error:
        outcome.answers[f"{what} {type(error).__name__}"] += 1
        return
    note(outcome, what, code, answer, (200, 201, 403, 409, 422, 429, 507))
    if code == 429:
        time.sleep(0.02)


def start_pods(who: Attacked, outcome: Outcome, stop: threading.Event) -> None:
    own, number = who.open(), 0
    limits = {"limits": {"cpu": "250m", "memory": "64Mi"}}
    while not stop.is_set():
        for name, code in PROGRAMS.items():
            if not is_asked(name):
                continue
            number += 1
            container = {"command": ["python3", "-c", code], "resources": limits}
            body = own.build_pod(f"{name}-{number}", "", container=container)
            send(own, outcome, "pod", own.path("pods"), body)
        stop.wait(0.5)


def store_objects(who: Attacked, outcome: Outcome, stop: threading.Event) -> None:
    own, number = who.open(), 0
    while not stop.is_set():
        number += 1
        data = {"x": "x" * (900_000 if number % 3 else 10)}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"o{threading.get_ident()}-{number}"},
            "data": data,
        }
        send(own, outcome, "object", own.path("configmaps"), body)


def ask_for_jobs(who: Attacked, outcome: Outcome, stop: threading.Event) -> None:
    own, number = who.open(), 0
    while not stop.is_set():
        number += 1
        trainer = {"command": ["sleep", "600"], "numNodes": 100_000 if number % 2 else 4}
        spec = {"runtimeRef": {"name": "plain", "kind": "ClusterTrainingRuntime"}, "trainer": trainer}
        body = {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": f"j{number}"}, "spec": spec}
        send(own, outcome, "job", own.path("trainjobs", group=TRAINER), body)


def list_all(who: Attacked, outcome: Outcome, stop: threading.Event) -> None:
    own = who.open()
    while not stop.is_set():
        try:
            code, _ = own.kube.call("GET", own.path("configmaps"))
        except (OSError, ssl.SSLError):
            continue
        note(outcome, "list", code, "", (200, 429))


def hold_connections(who: Attacked, outcome: Outcome, stop: threading.Event) -> None:
    host, port = who.url.removeprefix("https://").split(":")
    held: collections.deque[socket.socket] = collections.deque()
    while not stop.is_set():
        try:
            held.append(socket.create_connection((host, int(port)), timeout=2))
            held[-1].sendall(b"\x16\x03\x01")
            outcome.answers["connection"] += 1
        except OSError as error:
            outcome.answers[f"connection {type(error).__name__}"] += 1
            time.sleep(0.01)
        if len(held) > 600:
            held.popleft().close()
        time.sleep(0.001)
    for connection in held:
        connection.close()


GREED: tuple[Work, ...] = (start_pods, store_objects, store_objects, ask_for_jobs, list_all, hold_connections)


def main() -> int:
    if len(sys.argv) > 1:
        be_greedy(Attacked(**json.loads(sys.argv[1])), float(sys.argv[2]))
        return 0
    seconds = float(os.environ.get("SECONDS", "48")) / ROUNDS
    total = Outcome()
    with tempfile.TemporaryDirectory() as folder, start_server(Path(folder) / "home") as server:
        for _ in range(ROUNDS):
            total.add(run(server, seconds, quiet_seconds=seconds / 2))
            before, during = find_p99(total.before) * 1000, find_p99(total.during) * 1000
            print(f"  p99 so far: alone {before:.1f} ms of {len(total.before)}, ", end="")
            print(f"beside the greedy tenant {during:.1f} ms of {len(total.during)}", flush=True)
    print(json.dumps(dict(sorted(total.answers.items()))))
    for text in total.wrong[:10]:
        print(f"WRONG {text}")
    report = Report()
    anchor = f"{during:.1f} ms beside it, {before:.1f} ms alone"
    report.check("create p99 of a tenant beside a greedy one", during / before, at_most=3, unit="x", anchor=anchor)
    answered = f"{sum(total.answers.values()):,} answers"
    report.check("wrong answers and failed jobs beside a greedy tenant", len(total.wrong), at_most=0, anchor=answered)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
