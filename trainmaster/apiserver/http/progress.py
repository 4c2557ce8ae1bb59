"""POST trainjobs/NAME/status: training code reports its progress (Trainer's status server, on the same path).

A token for the audience of that one TrainJob is enough, of any ServiceAccount in its namespace; others need the right
to create `trainjobs/status`. Each report replaces the one before it. Whole objects in the body go the ordinary way.
Errors have Trainer's texts: its clients never show them, people who try with curl do.
"""

from __future__ import annotations

from typing import Any

import orjson

from trainmaster.api.kinds import Catalogue, Kind
from trainmaster.api.meta import Object
from trainmaster.api.resources import TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.apiserver.contract import Call, Registry
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.messages import Request, Response
from trainmaster.client.contract import PatchType, WriteOptions
from trainmaster.kit.clock import parse_time

MANAGER = "trainer-status"
LARGEST = 65536
_FIELDS = ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")


def build_audience(namespace: str, name: str) -> str:
    """What a token must be for."""
    return f"trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status"


class Progress:
    def __init__(self, registry: Registry, catalogue: Catalogue, access: Access) -> None:
        self._registry = registry
        self._kind: Kind | None = catalogue.find(TRAIN_JOBS)
        self._access = access

    def concerns(self, request: Request) -> bool:
        route = request.route
        if request.method != "POST" or route.subresource != "status" or route.plural != "trainjobs":
            return False
        return route.group == TRAIN_JOBS.group and self._kind is not None and b'"kind"' not in request.body

    def handle(self, request: Request) -> Response:
        self._admit(request)
        if len(request.body) > LARGEST:
            raise StatusError(413, "RequestEntityTooLarge", "Payload too large")
        report = _parse(request.body)
        if report is None:
            return Response(b"{}")
        route = request.route
        # A merge patch keeps what it does not name, and a report replaces the one before.
        patch = {"status": {"trainerStatus": {key: report.get(key) for key in _FIELDS}}}
        assert self._kind is not None, "asked first"
        try:
            written = self._registry.patch(
                Call(request.identity, MANAGER),
                self._kind,
                route.namespace,
                route.name,
                PatchType.MERGE,
                patch,
                WriteOptions(field_manager=MANAGER),
                subresource="status",
            )
        except NotFound:
            raise StatusError(404, "NotFound", "Train job not found") from None
        return Response(orjson.dumps({"trainerStatus": report}), revision=written.revision)

    def _admit(self, request: Request) -> None:
        route = request.route
        scheme, *credentials = request.headers.get("authorization", "").split() or [""]
        if scheme.lower() == "bearer" and len(credentials) == 1:
            found = self._access.authenticator.review(credentials[0], (build_audience(route.namespace, route.name),))
            if found is not None and found[0].user.startswith(f"system:serviceaccount:{route.namespace}:"):
                request.identity = found[0]
                return
        try:
            self._access.admit(request)
        except StatusError as error:
            if error.code not in (401, 403):
                raise
            raise StatusError(403, "Forbidden", "Forbidden") from None


def _parse(body: bytes) -> Object | None:
    """The report, without fields that are not Trainer's; None when there is none."""
    try:
        payload = orjson.loads(body)
        report = payload.get("trainerStatus")
        if report is None:
            return None
        return {key: value for key in _FIELDS if (value := _check(key, report.get(key))) is not None}
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        raise StatusError(422, "Invalid", "Invalid payload") from None


def _check(key: str, value: Any) -> Any:
    """The value when it is of the right type; whether it is in range says the schema."""
    if value is None:
        return None
    if key == "metrics":
        return [_check_metric(metric) for metric in value]
    if key == "lastUpdatedTime":
        parse_time(value)
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(key)
    return value


def _check_metric(metric: Any) -> Object:
    pair = {key: metric.get(key, "") for key in ("name", "value")}
    if not all(isinstance(value, str) for value in pair.values()):
        raise TypeError("metrics")
    return pair
