"""The jobs that the tests of the dashboard look at: small programs, on a real server."""

from __future__ import annotations

from tests.support.clients import JSON, Raw

NAMESPACE = "default"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
TALKER, DOOMED, WAITING, HOSTILE, DELETED, FINISHED = "talker", "doomed", "waiting", "hostile", "deleted", "finished"
FINISHED_JOBS = 24
GPUS = 4
"""Declared, so that there is something to lease on a machine without any."""

# Rank 1 fails in the first attempt, when both have printed something; then both print a numbered line every 0.2 s until
# they are stopped.
_TALK = """
import os, socket, sys, time, trainmaster
rank, attempt = os.environ["JOB_COMPLETION_INDEX"], os.environ["TRAINMASTER_ATTEMPT"]
print("rank", rank, "begins attempt", attempt, flush=True)
if attempt == "0" and rank == "0":
    door = socket.create_server(("", 29507))
    while True:
        door.accept()
if attempt == "0":
    for _ in range(100):
        try:
            socket.create_connection(("talker-node-0-0.talker", 29507), 5).close()
            break
        except OSError:
            time.sleep(0.1)
    sys.exit("lost connection to its peer")
print("\\x1b[32mepoch 1\\x1b[0m " + "\\r".join(f"{n * 10:3} % done" for n in range(11)), flush=True)
for step in range(100000):
    trainmaster.report(step=step % 1000, total=1000, loss=1 / (step + 1), accuracy=0.871)
    print("step", step, flush=True)
    time.sleep(0.2)
"""
_FAIL = """
def advance(step):
    raise RuntimeError("the gradients are not numbers")

print("step 1")
advance(1)
"""
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
_HOSTILE = f"""
import trainmaster
markup = {MARKUP!r}
metrics = {{markup: 1.5, "__proto__": 7, "constructor": 8, "huge": 1e308, "none": float("nan")}}
trainmaster.report(step=1, total=2, **metrics)
print(markup)
print("\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 nul \\x00 bell \\x07 \\u202ereversed\\u202c zero\\u200bwidth")
print("\\x1b[30;40mhidden\\x1b[0m")
import sys
sys.stdout.flush()
sys.stdout.buffer.write(b"broken \\xff\\xfe bytes\\n")
print("x" * 1_000_000)
print("the last line")
raise ValueError(markup + " \\x1b[2J \\u202e!")
"""


def submit(
    kube: Raw,
    name: str,
    code: str,
    *,
    nodes: int = 1,
    cpu: str = "10m",
    gpus: int = 0,
    runtime: str = "plain",
    suspend: bool = False,
) -> JSON:
    trainer: JSON = {"numNodes": nodes, "command": ["python", "-u", "-c", code]}
    devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    trainer["resourcesPerNode"] = {"requests": {"cpu": cpu, **devices}, "limits": devices}
    job: JSON = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "labels": {"team": "nlp"}},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer, "suspend": suspend},
    }
    made: JSON = kube.create(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs", job)
    return made


def submit_all(kube: Raw) -> None:
    make_runtime_without_restarts(kube)
    submit(kube, TALKER, _TALK, nodes=2)
    submit(kube, DOOMED, _FAIL, runtime="once")
    submit(kube, HOSTILE, _HOSTILE, runtime="once")
    submit(kube, WAITING, "print(1)", cpu="9000")
    submit(kube, DELETED, "print('the only line')")
    for number in range(FINISHED_JOBS):
        submit(kube, f"{FINISHED}-{number:02}", f"print({number})")


def make_runtime_without_restarts(kube: Raw) -> None:
    plain = kube.get(f"{RUNTIMES}/plain")
    template = plain["spec"]["template"]
    template["spec"]["failurePolicy"]["maxRestarts"] = 0
    labels = plain["metadata"]["labels"]
    once = {**plain, "metadata": {"name": "once", "labels": labels}}
    kube.create(RUNTIMES, once)
