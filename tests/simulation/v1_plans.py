"""Jobs of `kubeflow.org/v1` in a simulated world: which worlds have them, their specs, and what users do with them.

Drawn with a separate random sequence, so that worlds without v1 jobs do not change. In worlds with v1 jobs, these
replace most of the TrainJobs, so that such worlds do not take longer.
"""

from __future__ import annotations

import random

from tests.simulation.retention_plans import draw_wishes
from tests.simulation.users import NAMESPACE, UserAction
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.frameworks import MPI, PYTORCH, TENSORFLOW, WORKER, V1Framework

FRAMEWORKS = (PYTORCH, TENSORFLOW, MPI)
_WORLDS, _OF = (3, 6), 7
"""Seeds with these remainders have v1 jobs."""
_TTLS: tuple[int | None, ...] = (None, None, 0, 1, 4, 12, 30)
_SIZES: tuple[dict[str, str], ...] = ({}, {}, {"cpu": "1"}, {"cpu": "2"}, {"nvidia.com/gpu": "1"})
_SHAPES: dict[V1Framework, tuple[dict[str, int], ...]] = {
    PYTORCH: ({"Master": 1, "Worker": 2}, {"Master": 1, "Worker": 1}, {"Master": 1}, {"Worker": 2}),
    TENSORFLOW: ({"Chief": 1, "PS": 1, "Worker": 1}, {"Worker": 2}, {"PS": 1, "Worker": 1}),
    MPI: ({"Launcher": 1, "Worker": 2}, {"Launcher": 1, "Worker": 1}),
}
SQUATS = ("squat Pod", "squat Service", "squat ConfigMap")
"""Creates a foreign object with a name that the job will need; with the prefix "un", deletes it."""
_MEDDLING = (
    "suspend",
    "suspend",
    "resume",
    "resume",
    "scale",
    "scale",
    "delete",
    "delete in the foreground",
    "delete, leaving its Pods",
    "replace",
    "edit",
    "storm",
    "delete a Pod",
    "delete a Pod by force",
    "delete a Service",
    "change the clean-up",
    "change the TTL",
    "submit another kind",
    "submit",
)
V1_STEADY = ("submit", "edit", "storm", "change the TTL", "change the clean-up", "delete a Service")
"""Actions that must not change the outcome of a job."""


def has_v1_jobs(seed: int) -> bool:
    return seed % _OF in _WORLDS


def add_v1_deeds(seed: int, span: float, deeds: list[UserAction]) -> list[UserAction]:
    """In worlds with v1 jobs, exchanges most TrainJobs for them."""
    if not has_v1_jobs(seed):
        return deeds
    random_ = random.Random(f"v1/{seed}")
    kept = ("job-0",) if random_.random() < 0.6 else ()
    mixed = [deed for deed in deeds if not deed.job.startswith("job-") or deed.job in kept]
    for number in range(random_.choice((1, 2, 2))):
        framework = random_.choice(FRAMEWORKS)
        name = f"v1-{number}"
        begin = random_.random() * span / 2
        if random_.random() < 0.1:
            what = random_.choice(SQUATS)
            mixed.append(UserAction(begin * random_.random(), what, name, framework=framework))
            if random_.random() < 0.7:
                later = begin + random_.random() * span / 2
                mixed.append(UserAction(later, f"un{what}", name, framework=framework))
        mixed.append(UserAction(begin, "submit", name, framework=framework))
        for what, chance in (("delete, leaving its Pods", 0.1), ("scale", 0.6 if framework is MPI else 0.1)):
            if random_.random() < chance:
                mixed.append(UserAction(begin + 0.5 + random_.random() * 3.0, what, name, framework=framework))
        for _ in range(random_.choice((0, 0, 1, 2, 3))):
            time = begin + random_.random() * span / 2
            mixed.append(UserAction(time, random_.choice(_MEDDLING), name, framework=framework))
    return sorted(mixed, key=lambda deed: deed.time)


def build_v1_job(seed: int, random_: random.Random, framework: V1Framework, name: str) -> Object:
    shape = random_.choice(_SHAPES[framework])
    restart = random_.choice(("Never", "ExitCode", "ExitCode", "ExitCode", "OnFailure"))
    container: Object = {"name": framework.container, "image": "i", "command": ["x"]}
    limits = random_.choice(_SIZES) if seed % 2 else {}
    if limits:
        container["resources"] = {"limits": limits, "requests": limits}
    replicas = {
        kind: {"replicas": count, "restartPolicy": restart, "template": {"spec": {"containers": [container]}}}
        for kind, count in shape.items()
    }
    spec: Object = {framework.replicas_field: replicas, "runPolicy": _draw_policy(seed, random_)}
    least = _draw_least(seed, name)
    if limits and least:
        spec["runPolicy"]["schedulingPolicy"] = {"minAvailable": least}
    if framework is PYTORCH and set(shape) == {WORKER} and random_.random() < 0.7:
        spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3}
    if framework is TENSORFLOW and random_.random() < 0.3:
        spec["successPolicy"] = "AllWorkers"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def _draw_policy(seed: int, random_: random.Random) -> Object:
    policy: Object = {"backoffLimit": random_.choice((0, 1, 2, 3, 4))}
    clean = draw_clean_up(random_)
    if clean is not None:
        policy["cleanPodPolicy"] = clean
    if random_.random() < 0.25:
        policy["activeDeadlineSeconds"] = random_.choice((2, 15, 40))
    if random_.random() < 0.15:
        policy["suspend"] = True
    ttl = random_.choice(_TTLS) if draw_wishes(seed).retention else None
    if ttl is not None:
        policy["ttlSecondsAfterFinished"] = ttl
    return policy


def _draw_least(seed: int, name: str) -> int:
    """`minAvailable`, with a separate random sequence, so that the rest does not change."""
    return random.Random(f"least/{seed}/{name}").choice((0, 0, 1, 2, 5))


def draw_clean_up(random_: random.Random) -> str | None:
    return random_.choice((None, "None", "Running", "Running", "All", "All"))


def draw_v1_ttl(random_: random.Random) -> Object:
    return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": random_.choice(_TTLS)}}}
