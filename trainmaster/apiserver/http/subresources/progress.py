"""POST trainjobs/NAME/status: training code reports its progress (Trainer's status server, on the same path).

A token for the audience of that TrainJob is sufficient: if it is bound to a Pod, as those from the node are, the Pod
must belong to the job; an unbound one may be of any ServiceAccount in its namespace. Others need permission to create
`trainjobs/status`. Complete objects in the body are handled like any other write. `api/training/reports.py` defines the
format of a report and what is stored.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import reports
from trainmaster.api.training.pace import CountSinceStop, PaceMeter
from trainmaster.apiserver.contract import Call, Registry
from trainmaster.apiserver.http.access import Access
from trainmaster.apiserver.http.messages import ApiRequest, Response
from trainmaster.client.contract import ActingIdentity, PatchType, WriteOptions
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock

PER_SECOND, BURST = 1.0, 10
"""Rate limit per TrainJob: clients send a report every five seconds, and the first and last one immediately."""
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_REMEMBERED = 4096
_NEEDED = (TRAIN_JOBS, JOB_SETS, JOBS, PODS)


class ProgressEndpoint:
    def __init__(
        self,
        registry: Registry,
        catalogue: Catalogue,
        access: Access,
        clock: Clock,
        count_since_stop: CountSinceStop | None = None,
    ) -> None:
        self._registry = registry
        self._kinds: dict[GVR, Kind | None] = {gvr: catalogue.find(gvr) for gvr in _NEEDED}
        self._access = access
        self._clock = clock
        self._paces = PaceMeter(clock) if count_since_stop is None else PaceMeter(clock, count_since_stop)
        self._buckets = TokenBuckets(clock, per_second=PER_SECOND, burst=BURST)
        self._reporters: dict[str, reports.ReportingPod] = {}
        """By Pod uid; entries do not change while the Pod exists, and a token ends with its Pod."""

    def concerns(self, request: ApiRequest) -> bool:
        route = request.route
        if request.method != "POST" or route.subresource != "status" or route.plural != TRAIN_JOBS.plural:
            return False
        return route.group == TRAIN_JOBS.group and None not in self._kinds.values() and b'"kind"' not in request.body

    def handle(self, request: ApiRequest, admit_caller: Callable[[ApiRequest], None]) -> Response:
        self._admit(request)
        admit_caller(request)
        report = reports.parse(request.body)
        if report is None:
            return Response(b"{}")
        route = request.route
        trainjob = self._find(TRAIN_JOBS, route.namespace, route.name)
        if trainjob is None:
            raise reports.refuse_name()
        reporter = self._find_reporter(request.identity, route.namespace)
        # It has the same name as its TrainJob.
        jobset = self._find(JOB_SETS, route.namespace, route.name)
        if reporter is not None:
            reports.check_reporter(reporter, trainjob, jobset)
        if not self._buckets.take(trainjob["metadata"]["uid"]):
            text = f"reports of one TrainJob are taken {BURST} at once and then {PER_SECOND:.0f} a second"
            raise status.too_many_requests(text)
        began = reports.find_beginning(jobset, reporter)
        wanted = reports.decide(report, trainjob, self._clock.now(), began)
        answer = orjson.dumps({"trainerStatus": report if wanted is None else wanted})
        if wanted is None:
            return Response(answer)
        pace = self._paces.measure(trainjob, wanted, reports.find_program_start(began, reporter))
        patch = reports.build_patch(wanted, pace)
        return Response(answer, revision=self._store(request, patch))

    def _store(self, request: ApiRequest, patch: Object) -> int:
        kind, route = self._kinds[TRAIN_JOBS], request.route
        assert kind is not None, "asked first"
        written = self._registry.patch(
            Call(request.identity, reports.MANAGER),
            kind,
            route.namespace,
            route.name,
            PatchType.MERGE,
            patch,
            WriteOptions(field_manager=reports.MANAGER),
            subresource="status",
        )
        return written.revision

    def _find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        kind = self._kinds[gvr]
        assert kind is not None, "asked first"
        try:
            found: Object = orjson.loads(self._registry.get(kind, namespace, name).value)
        except NotFound:
            return None
        return found

    def _find_reporter(self, identity: ActingIdentity, namespace: str) -> reports.ReportingPod | None:
        """None if the token is not bound to a Pod. A valid bound token names an existing Pod."""
        names, uids = identity.extra.get(_POD_NAME), identity.extra.get(_POD_UID)
        if not names or not uids:
            return None
        known = self._reporters.get(uids[0])
        if known is None:
            pod = self._find(PODS, namespace, names[0])
            if pod is None or pod["metadata"]["uid"] != uids[0]:
                raise reports.refuse_sender()
            if len(self._reporters) >= _REMEMBERED:
                self._reporters.clear()
            job = reports.read_job_name(pod)
            found = self._find(JOBS, namespace, job) if job else None
            known = self._reporters[uids[0]] = reports.read_reporter(pod, found)
        return known

    def _admit(self, request: ApiRequest) -> None:
        route = request.route
        scheme, *credentials = request.headers.get("authorization", "").split() or [""]
        if scheme.lower() == "bearer" and len(credentials) == 1:
            audience = reports.build_audience(route.namespace, route.name)
            found = self._access.authenticator.review(credentials[0], (audience,))
            if found is not None and found[0].user.startswith(f"system:serviceaccount:{route.namespace}:"):
                request.identity = found[0]
                return
        try:
            self._access.admit(request)
        except StatusError as error:
            if error.code not in (401, 403):
                raise
            raise reports.refuse_sender() from None
