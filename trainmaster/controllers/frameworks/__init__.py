"""What each training framework adds to its Pods, one module each, as pure functions.

`FRAMEWORKS` is keyed by the name in the runtime's `mlPolicy`, `GANGS` by the name in its `podGroupPolicy`. To add a
framework, write a module with a `Framework` value and add a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.training.steps import read_framework
from trainmaster.controllers.frameworks import coscheduling, flux, jax, mpi, plain, torch, volcano, xgboost
from trainmaster.controllers.frameworks.contract import Framework, FrameworkContext, Injection, Training

FRAMEWORKS: Mapping[str, Framework] = {
    framework.name: framework
    for framework in (torch.FRAMEWORK, mpi.FRAMEWORK, jax.FRAMEWORK, xgboost.FRAMEWORK, flux.FRAMEWORK)
}

Gang: TypeAlias = Callable[[Training, Fields, Object], Injection]
"""(the job with its final Pod counts, the policy's fields, the JobSet)"""
GANGS: Mapping[str, Gang] = {"coscheduling": coscheduling.inject, "volcano": volcano.inject}


def select_framework(runtime: Fields) -> Framework:
    """The framework that the runtime's policy names; plain if it names none."""
    name, _ = read_framework(runtime)
    return FRAMEWORKS.get(name, plain.FRAMEWORK)


def inject_gangs(training: Training, runtime: Fields, jobset: Object, context: FrameworkContext) -> list[Injection]:
    """One result per policy. In embedded mode it has only labels and annotations of Pods, and a remark."""
    policies = read_fields(runtime, "spec", "podGroupPolicy")
    answers = []
    for name, gang in GANGS.items():
        if not isinstance(policies.get(name), Mapping):
            continue
        answer = gang(training, policies[name], jobset)
        if not context.on_cluster:
            remark = f"podGroupPolicy.{name} of the runtime: no PodGroup is made here; every job starts as a gang"
            answer = Injection(pod_labels=answer.pod_labels, pod_annotations=answer.pod_annotations, remark=remark)
        answers.append(answer)
    return answers
