"""Values that contradict one another, each with a sentence that begins with the key to change.

The chart refuses the same with the same words (templates/checks.yaml).
"""

from __future__ import annotations

from trainmaster.api.lifecycle import policy
from trainmaster.operator.templating.nodes import (
    ALL_OF,
    All,
    Either,
    Equals,
    Exceeds,
    Given,
    Has,
    Not,
    Refusal,
    Value,
)

POLICY = Either(
    Value("jobRetentionPolicy"),
    Given("ttlSecondsAfterFinished"),
    Value("ttlEnforced"),
    Given("successfulJobsHistoryLimit"),
    Given("failedJobsHistoryLimit"),
)
_PERSISTENCE = "history.persistence"
_KEPT = All(Value("history.enabled"), Value(f"{_PERSISTENCE}.enabled"))
_BOTH_BUDGETS = All(Given("podDisruptionBudget.minAvailable"), Given("podDisruptionBudget.maxUnavailable"))
_NO_BUDGET = Not(Either(Given("podDisruptionBudget.minAvailable"), Given("podDisruptionBudget.maxUnavailable")))

REFUSALS = (
    Refusal(
        All(Value("instance"), Not(Value("watchNamespaces"))),
        "instance: other installations run the jobs of other namespaces; name its own in watchNamespaces",
    ),
    Refusal(
        All(Value("companion"), Value("v1Jobs")),
        "v1Jobs: runs jobs, which a companion does not; leave out v1Jobs or companion",
    ),
    Refusal(
        All(Value("gangSchedulerName"), Not(Value("v1Jobs"))),
        "gangSchedulerName: is for the kinds in v1Jobs, and that is empty; name some there",
    ),
    Refusal(
        All(Has("v1Jobs", ALL_OF), Exceeds("v1Jobs", 1)),
        "v1Jobs: all stands for every kind; leave out the others",
    ),
    Refusal(
        All(Equals("jobRetentionPolicy", policy.RETAIN), Given("ttlSecondsAfterFinished")),
        "ttlSecondsAfterFinished: means nothing with jobRetentionPolicy retain, which keeps jobs; leave out one",
    ),
    Refusal(
        All(
            Value("ttlEnforced"),
            Not(Given("ttlSecondsAfterFinished")),
            Not(Equals("jobRetentionPolicy", policy.DELETE)),
        ),
        "ttlEnforced: needs something to enforce; set ttlSecondsAfterFinished, or jobRetentionPolicy "
        "delete_on_completion",
    ),
    Refusal(
        All(POLICY, Value("watchNamespaces"), Not(Has("watchNamespaces", policy.NAMESPACE))),
        "watchNamespaces: an operator that is limited to namespaces does not read the retention policy in "
        "kubeflow-system; leave out jobRetentionPolicy, ttlSecondsAfterFinished, ttlEnforced and the history limits",
    ),
    Refusal(
        All(_KEPT, Exceeds("manager.replicas", 1), Not(Has(f"{_PERSISTENCE}.accessModes", "ReadWriteMany"))),
        "manager.replicas: several replicas cannot share the claim of history.persistence, which only one node mounts; "
        "set manager.replicas to 1, or accessModes to [ReadWriteMany] with a storage class that has it",
    ),
    Refusal(
        All(Value(f"{_PERSISTENCE}.existingClaim"), Not(Value(f"{_PERSISTENCE}.enabled"))),
        "history.persistence.existingClaim: is not used while history.persistence.enabled is false; leave out one",
    ),
    Refusal(
        All(Value(f"{_PERSISTENCE}.existingClaim"), Value(f"{_PERSISTENCE}.storageClassName")),
        "history.persistence.storageClassName: an existing claim has its own; leave it out, or existingClaim",
    ),
    Refusal(
        All(Value("podDisruptionBudget.enabled"), Either(_BOTH_BUDGETS, _NO_BUDGET)),
        "podDisruptionBudget: takes one of minAvailable and maxUnavailable; set the other one to null",
    ),
    Refusal(
        All(
            Value("podDisruptionBudget.enabled"),
            Given("podDisruptionBudget.minAvailable"),
            Not(Exceeds("manager.replicas", Value("podDisruptionBudget.minAvailable"))),
        ),
        "podDisruptionBudget.minAvailable: must be less than manager.replicas, or nodes could never be drained",
    ),
    Refusal(
        All(Value("webhook.certManager.enabled"), Either(Not(Value("webhook.enabled")), Value("companion"))),
        "webhook.certManager.enabled: there are no webhooks, because of webhook.enabled or companion; leave it out",
    ),
    Refusal(
        All(Value("serviceMonitor.enabled"), Value("networkPolicy.enabled"), Not(Value("networkPolicy.metricsFrom"))),
        "networkPolicy.metricsFrom: is empty, so Prometheus could not read what serviceMonitor tells it to; name its "
        "namespace",
    ),
)
