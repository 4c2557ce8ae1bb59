"""Jobs for chaos: each kind ends in a known way, whatever happens to the control plane meanwhile.

Every attempt of every container appends one line to the ledger, a directory of the machine: its id, which is
`<pod uid>/<container>/<n>`. Two equal lines are a program that was run twice; a line too few is one that was lost. All
processes of an attempt hold a lock on its file of the ledger, one file per Pod or rank. An attempt that begins while
anything of an earlier one still runs, also in another Pod of the same rank, writes OVERLAP.
Some of the Pods start warm, in an environment whose torch is a stand-in that is imported in no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.api.conditions import find_condition, list_conditions
from trainmaster.api.labels import WARM
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS, TRAIN_JOBS
from trainmaster.client.contract import Client

SEEN = "/chaos"
RUNTIME = "chaos"
COLD_IMAGE, WARM_IMAGE = "python:3.11", "chaos/torch:1"
GRANDCHILD = "sleep 98765"
OVERLAP = "overlap"
_NOTE = f'exec 9>>{SEEN}/$NAME; flock -n 9 || echo {OVERLAP} >&9; echo "$TRAINMASTER_CONTAINER_ID" >&9'
_COUNT = f"$(wc -l < {SEEN}/$NAME)"
_DAEMON = "(setsid sleep 400 >/dev/null 2>&1 &)"
_WARM_PROGRAM = f"""
import fcntl, os, subprocess, sys, time
ledger = open("{SEEN}/" + os.environ["NAME"], "a")
try:
    fcntl.flock(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    ledger.write("{OVERLAP}\\n")
ledger.write(os.environ["TRAINMASTER_CONTAINER_ID"] + "\\n")
ledger.flush()
subprocess.Popen(["sleep", "400"], start_new_session=True, pass_fds=[ledger.fileno()])
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


@dataclass(frozen=True)
class Job:
    """`judge` raises AssertionError for an object that did not end as it must."""

    name: str
    gvr: GVR
    body: Object
    judge: Callable[[Object], None]
    ledgers: dict[str, tuple[int, int]]
    """File name to how many attempts there must be, at least and at most."""
    victim: str = ""
    """What is to be killed: rank, shim, grandchild (once the program runs), or early shim (at any time)."""

    async def read(self, client: Client) -> Object:
        return await client.get(self.gvr, self.name, "default")

    async def read_is_over(self, client: Client) -> bool:
        return is_over(await self.read(client))


def build_volume(ledger: Path) -> Object:
    return {"name": "ledger", "hostPath": {"path": str(ledger)}}


def build_runtime(ledger: Path, mark: str) -> Object:
    container = {
        "name": "node",
        "image": COLD_IMAGE,
        "env": [{"name": "CHAOS_MARK", "value": mark}],
        "volumeMounts": [{"name": "ledger", "mountPath": SEEN}],
    }
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [build_volume(ledger)]}
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job = {"metadata": step, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    template = {"failurePolicy": {"maxRestarts": 1}, "replicatedJobs": [{"name": "node", "template": job}]}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": template}},
    }


def build_job(number: int, ledger: Path, mark: str) -> Job:
    # Warm ones in between: each finds the zygote that the one before has asked for, unless it was killed.
    kinds = (
        *(_end_with_code, _start_warm, _restart_in_place, _train, _start_warm, _lose_a_rank_once, _fail_always),
        *(_lose_a_shim_early, _be_a_victim, _start_warm, _lose_a_shim_of_a_gang),
    )
    return kinds[number % len(kinds)](number, ledger, mark)


def _end_with_code(number: int, ledger: Path, mark: str) -> Job:
    code = number * 7 % 256
    name = f"code-{number}"
    script = f"{_NOTE}; {_DAEMON}; sleep 0.{number % 10}; exit {code}"
    return _build_pod(name, script, ledger, mark, judge=lambda pod: _check_end(pod, code, 0))


def _restart_in_place(number: int, ledger: Path, mark: str) -> Job:
    name = f"again-{number}"
    script = f"{_NOTE}; {_DAEMON}; sleep 0.{number % 10}; [ {_COUNT} -ge 2 ] || exit 3"
    return _build_pod(
        name, script, ledger, mark, judge=lambda pod: _check_end(pod, 0, 1), attempts=(2, 2), restartPolicy="OnFailure"
    )


def _be_a_victim(number: int, ledger: Path, mark: str) -> Job:
    victim = ("rank", "shim", "grandchild")[number // 11 % 3]
    name = f"victim-{victim}-{number}"
    script = f"{GRANDCHILD} & {_NOTE}; wait $!; exit 5"
    wants = {
        "rank": lambda pod: _check_end(pod, 137, 0, "Error"),
        "shim": lambda pod: _check_end(pod, 137, 0, "ContainerStatusUnknown"),
        "grandchild": lambda pod: _check_end(pod, 5, 0, "Error"),
    }
    return _build_pod(name, script, ledger, mark, judge=wants[victim], victim=victim)


def _start_warm(number: int, ledger: Path, mark: str) -> Job:
    code = number * 5 % 256
    # Long enough to keep the warm zygote, which ends with its last Pod if there is no server.
    command = ["python", "-c", _WARM_PROGRAM, str(number % 10 / 2), str(code)]
    return _build_pod(
        f"warm-{number}", command, ledger, mark, judge=lambda pod: _check_end(pod, code, 0), image=WARM_IMAGE
    )


def _lose_a_shim_early(number: int, ledger: Path, mark: str) -> Job:
    """Whether the shim dies before or after the program was begun, the program does not run twice."""
    cold = ["/bin/sh", "-c", f"{_NOTE}; {_DAEMON}; sleep 1.5; exit 6"]
    warm = ["python", "-c", _WARM_PROGRAM, "1.5", "6"]
    image = WARM_IMAGE if number % 2 else COLD_IMAGE

    def judge(pod: Object) -> None:
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) in ((6, "Error"), (137, "ContainerStatusUnknown")), (name, ended)

    name = f"early-{number}"
    command = warm if image == WARM_IMAGE else cold
    return _build_pod(name, command, ledger, mark, judge=judge, image=image, attempts=(0, 1), victim="early shim")


def _build_pod(
    name: str,
    command: str | list[str],
    ledger: Path,
    mark: str,
    *,
    judge: Callable[[Object], None],
    image: str = COLD_IMAGE,
    attempts: tuple[int, int] = (1, 1),
    victim: str = "",
    **spec: Any,
) -> Job:
    """`command`: a script of the shell, or words."""
    container = {
        "name": "main",
        "image": image,
        "command": ["/bin/sh", "-c", command] if isinstance(command, str) else command,
        "env": [{"name": "NAME", "value": name}, {"name": "CHAOS_MARK", "value": mark}],
        "volumeMounts": [{"name": "ledger", "mountPath": SEEN}],
    }
    full = {"restartPolicy": "Never", "containers": [container], "volumes": [build_volume(ledger)], **spec}
    meta = {"name": name, "namespace": "default", "annotations": {WARM: str(image == WARM_IMAGE).lower()}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": full}
    return Job(name, PODS, body, judge, {name: attempts}, victim)


def _check_end(pod: Object, code: int, restarts: int, reason: str = "") -> None:
    status = pod["status"]["containerStatuses"][0]
    ended = status["state"]["terminated"]
    assert (ended["exitCode"], status["restartCount"]) == (code, restarts), (pod["metadata"]["name"], status)
    assert not reason or ended["reason"] == reason, (pod["metadata"]["name"], status)


def _train(number: int, ledger: Path, mark: str) -> Job:
    return _build_trainjob(f"train-{number}", f"sleep 0.{number % 10}; exit 0", "Complete", {"0": (1, 1), "1": (1, 1)})


def _lose_a_rank_once(number: int, ledger: Path, mark: str) -> Job:
    """Rank 1 fails in the first generation. Rank 0 may not have begun by then."""
    script = f'sleep 0.{number % 10}; [ "$JOB_COMPLETION_INDEX" = 0 ] || [ {_COUNT} -ge 2 ] || exit 7'
    return _build_trainjob(f"lose-{number}", script, "Complete", {"0": (1, 2), "1": (2, 2)})


def _fail_always(number: int, ledger: Path, mark: str) -> Job:
    script = '[ "$JOB_COMPLETION_INDEX" = 0 ] && sleep 400; exit 9'
    return _build_trainjob(f"fail-{number}", script, "Failed", {"0": (0, 2), "1": (2, 2)})


def _lose_a_shim_of_a_gang(number: int, ledger: Path, mark: str) -> Job:
    return _build_trainjob(
        f"gang-{number}", "sleep 1.5; exit 0", "Complete", {"0": (1, 2), "1": (1, 2)}, victim="early shim"
    )


def _build_trainjob(name: str, script: str, want: str, attempts: dict[str, tuple[int, int]], victim: str = "") -> Job:
    def judge(trainjob: Object) -> None:
        found = find_condition(list_conditions(trainjob), want)
        assert found is not None and found["status"] == "True", (name, want, trainjob["status"])

    first = f"NAME={name}-$JOB_COMPLETION_INDEX; {_NOTE}; {_DAEMON}; {script}"
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runtimeRef": {"name": RUNTIME}, "trainer": {"numNodes": 2, "command": ["/bin/sh", "-c", first]}},
    }
    return Job(name, TRAIN_JOBS, body, judge, {f"{name}-{rank}": count for rank, count in attempts.items()}, victim)


def is_over(obj: Object) -> bool:
    if obj.get("kind") == "Pod":
        return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    found = [find_condition(list_conditions(obj), kind) for kind in ("Complete", "Failed")]
    return any(entry is not None and entry["status"] == "True" for entry in found)
