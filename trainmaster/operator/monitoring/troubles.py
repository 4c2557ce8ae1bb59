"""What keeps an operator from working: which of the cluster's answers means what, and what to do about it. Pure.

Each trouble is one sentence that names its cure. The same sentences are logged, recorded as events, shown by `/readyz`
(`telling`), and used by `trainmaster doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainmaster.api.meta import GVR
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import StatusError
from trainmaster.client.reflector import Reflector

PRINT = "trainmaster operator --print-manifests --without-deployment"
_MOST_NAMES = 6
_UNAVAILABLE = "ClusterUnavailable"
VARYING = (_UNAVAILABLE,)
"""Of these reasons the text changes with every attempt."""


@dataclass(frozen=True, slots=True)
class OperatorTrouble:
    reason: str
    """Of the event: JobSetMissing."""
    text: str


def explain_watches(watches: Iterable[Reflector]) -> list[OperatorTrouble]:
    """Why collections cannot be read, one trouble for each cause."""
    failing = [watch for watch in watches if watch.failing_since is not None]
    missing = list(dict.fromkeys(watch.scope.gvr for watch in failing if watch.refused == 404))
    forbidden = [watch for watch in failing if watch.refused == 403]
    others = [watch for watch in failing if watch.refused not in (403, 404)]
    found = list(explain_missing(missing))
    if forbidden:
        found.append(_explain_forbidden(forbidden))
    # Those of all collections have the same cause.
    return found + [explain_failure(watch.refused, watch.trouble) for watch in others[:1]]


def explain_missing(missing: Sequence[GVR]) -> Iterator[OperatorTrouble]:
    """Kinds that the cluster does not serve."""
    if JOB_SETS in missing:
        yield OperatorTrouble(
            "JobSetMissing",
            f"the cluster does not serve JobSets ({JOB_SETS.group}/{JOB_SETS.version}), which TrainJobs run as: "
            "install the manifests of a JobSet release; no restart is needed",
        )
    ours = [gvr for gvr in missing if gvr != JOB_SETS]
    if ours:
        names = join(f"{gvr.qualified} ({gvr.version})" for gvr in ours)
        yield OperatorTrouble(
            "DefinitionsMissing",
            f"the cluster does not serve {names}: apply the output of `{PRINT}`; no restart is needed",
        )


def _explain_forbidden(watches: Sequence[Reflector]) -> OperatorTrouble:
    names = join(dict.fromkeys(watch.scope.gvr.qualified for watch in watches))
    places = join(dict.fromkeys(watch.scope.namespace for watch in watches if watch.scope.namespace))
    where = f" in {places}" if places else ""
    return OperatorTrouble(
        "RightsMissing",
        f"this operator may not read {names}{where}: apply the output of `{PRINT}`, with the flags of this operator; "
        f"the server says: {watches[0].trouble}",
    )


def explain_failure(code: int, text: str) -> OperatorTrouble:
    """An answer of the server to any request; code 0: there was none."""
    if code == 401:
        return OperatorTrouble(
            "CredentialsRefused",
            f"the API server does not accept this operator's credentials ({text}): the token or certificate has "
            "expired, was revoked, or is of another cluster; renew it in the kubeconfig, or recreate the Pod",
        )
    if code == 403:
        return OperatorTrouble(
            "RightsMissing",
            f"this operator lacks a right: apply the output of `{PRINT}`, with the flags of this operator; the server "
            f"says: {text}",
        )
    return OperatorTrouble(_UNAVAILABLE, f"no answer from the cluster; this operator goes on asking: {text}")


def explain_refusal(error: StatusError, namespace: str) -> OperatorTrouble:
    """An answer about something in the operator's own namespace."""
    if error.code == 404:
        return OperatorTrouble(
            "NamespaceMissing",
            f"the operator's own namespace {namespace} does not exist: apply the output of `{PRINT}`, or name another "
            "one with --lease-namespace",
        )
    return explain_failure(error.code, error.message)


def join(names: Iterable[str]) -> str:
    """The first few of them."""
    found = list(names)
    more = len(found) - _MOST_NAMES
    return ", ".join(found[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
