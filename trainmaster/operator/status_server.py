"""The operator's status server: training code on a cluster reports its progress here, as to upstream's manager.

    POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/NS/trainjobs/NAME/status

Everything else is 404. The caller is authenticated with a TokenReview for the audience of that TrainJob, cached for a
minute; the Pod that the token is bound to must belong to the job, and is looked up in the operator's watch cache.
`api/training/reports.py` defines the format of a report and what is stored, as on one machine. Every replica serves,
whether or not it is the leader.
"""

from __future__ import annotations

import hashlib
import logging
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from trainmaster.api import status
from trainmaster.api.labels import JOB_NAME
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import list_items, read_fields, read_status
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import reports
from trainmaster.api.training.pace import PaceMeter
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.client.view import View
from trainmaster.edge.connection import Connection
from trainmaster.edge.limits import EdgeLimits
from trainmaster.edge.messages import IncomingRequest
from trainmaster.edge.refusals import EdgeRefusal
from trainmaster.edge.server import EdgeServer, open_listener
from trainmaster.jobs.models.pods import Pod
from trainmaster.kit.buckets import TokenBuckets
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

PER_SECOND, BURST = 1.0, 10
"""Rate limit per TrainJob, as on one machine."""
_TOKEN_REVIEWS = GVR("authentication.k8s.io", "v1", "tokenreviews")
_PATH = re.compile(r"/apis/trainer\.kubeflow\.org/v1alpha1/namespaces/([^/?]+)/trainjobs/([^/?]+)/status")
_REMEMBER_SECONDS, _REMEMBERED = 60.0, 4096
LIMITS = EdgeLimits(header_bytes=16 * 1024, body_bytes=reports.LARGEST, body_seconds=10.0, connections=2000)
"""Reports are small, and nothing else is accepted here."""
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class ReportSender:
    """The owner of a token."""

    pod: str = ""
    """Empty if the token is not bound to a Pod."""
    uid: str = ""


class StatusServer:
    def __init__(self, client: Client, view: View, clock: Clock) -> None:
        self._client = client
        self._view = view
        self._clock = clock
        self._paces = PaceMeter(clock)
        self._buckets = TokenBuckets(clock, per_second=PER_SECOND, burst=BURST)
        self._senders: dict[bytes, tuple[float, ReportSender]] = {}
        """By a hash of token and audience: until when it is valid, and the sender."""

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Object]:
        """The status code and the JSON of the answer."""
        match = _PATH.fullmatch(path)
        if method != "POST" or match is None:
            return 404, StatusError(404, "NotFound", "Not found").to_object()
        try:
            return 200, await self._take(match[1], match[2], headers, body)
        except StatusError as error:
            return error.code, error.to_object()

    async def _take(self, namespace: str, name: str, headers: Mapping[str, str], body: bytes) -> Object:
        sender = await self._get_sender(namespace, name, headers.get("authorization", ""))
        report = reports.parse(body)
        if report is None:
            return {}
        trainjob = self._view.find(TRAIN_JOBS, namespace, name)
        if trainjob is None:
            raise reports.refuse_name()
        # It has the same name as its TrainJob.
        jobset = self._view.find(JOB_SETS, namespace, name)
        reporter = self._find_reporter(sender, namespace)
        if reporter is not None:
            reports.check_reporter(reporter, trainjob, jobset)
        if not self._buckets.take(trainjob["metadata"]["uid"]):
            raise status.too_many_requests(f"reports of one TrainJob are taken {BURST} at once and then one a second")
        began = reports.find_beginning(jobset, reporter)
        wanted = reports.decide(report, trainjob, self._clock.now(), began)
        if wanted is not None:
            pace = self._paces.measure(trainjob, wanted, reports.find_program_start(began, reporter))
            patch = {"metadata": {"uid": trainjob["metadata"]["uid"]}, **reports.build_patch(wanted, pace)}
            options = WriteOptions(field_manager=reports.MANAGER)
            try:
                await self._client.patch(
                    TRAIN_JOBS, name, PatchType.MERGE, patch, namespace, subresource="status", options=options
                )
            except NotFound:
                raise reports.refuse_name() from None
        return {"trainerStatus": report if wanted is None else wanted}

    def _find_reporter(self, sender: ReportSender, namespace: str) -> reports.ReportingPod | None:
        if not sender.pod:
            return None
        pod = self._view.find(PODS, namespace, sender.pod)
        if pod is None or pod["metadata"]["uid"] != sender.uid:
            # Only members of JobSets are followed; a new Pod that is not in the cache yet will retry.
            raise reports.refuse_sender()
        successor = self._find_successor(pod, namespace)
        if successor:
            raise StatusError(
                409, "Conflict", f"Pod {sender.pod} is being stopped, and Pod {successor} has its rank now"
            )
        job = reports.read_job_name(pod)
        return reports.read_reporter(pod, self._view.find(JOBS, namespace, job) if job else None)

    def _find_successor(self, pod: Object, namespace: str) -> str:
        """The name of the Pod that has taken the place of one that is being deleted; "" if there is none."""
        job = reports.read_job_name(pod)
        if not job or not Pod(pod).is_deleting:
            return ""
        others = map(Pod, self._view.list(PODS, namespace, {JOB_NAME: job}))
        return next((one.name for one in others if one.is_active and one.index == Pod(pod).index), "")

    async def _get_sender(self, namespace: str, name: str, header: str) -> ReportSender:
        scheme, *credentials = header.split() or [""]
        if scheme.lower() != "bearer" or len(credentials) != 1:
            raise reports.refuse_sender()
        audience = reports.build_audience(namespace, name)
        key = hashlib.sha256(f"{audience}\0{credentials[0]}".encode()).digest()
        now = self._clock.monotonic()
        until, known = self._senders.get(key, (0.0, None))
        if known is not None and now < until:
            return known
        sender = await self._review(namespace, audience, credentials[0])
        if len(self._senders) >= _REMEMBERED:
            self._senders.clear()
        self._senders[key] = (now + _REMEMBER_SECONDS, sender)
        return sender

    async def _review(self, namespace: str, audience: str, token: str) -> ReportSender:
        spec = {"token": token, "audiences": [audience]}
        review = {"apiVersion": _TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": spec}
        found = read_status(await self._client.create(_TOKEN_REVIEWS, review))
        user = read_fields(found, "user")
        is_local = str(user.get("username", "")).startswith(f"system:serviceaccount:{namespace}:")
        if not found.get("authenticated") or audience not in list_items(found, "audiences") or not is_local:
            raise reports.refuse_sender()
        extra = read_fields(user, "extra")
        return ReportSender(*(str((extra.get(key) or [""])[0]) for key in (_POD_NAME, _POD_UID)))

    def listening(self, tls: ssl.SSLContext | None, host: str, port: int) -> StatusPort:
        """Serves while it is entered. Raises OSError if the port is not available."""
        return StatusPort(self, tls, host, port, self._clock)


class StatusPort(EdgeServer[IncomingRequest]):
    """HTTP/1.1 around the server, with the limits of every port."""

    make_request = IncomingRequest

    def __init__(self, server: StatusServer, tls: ssl.SSLContext | None, host: str, port: int, clock: Clock) -> None:
        super().__init__(LIMITS, clock, tls=tls, name="status")
        self._server = server
        self._where = (host, port)

    def open_socket(self) -> socket.socket:
        try:
            return open_listener(*self._where)
        except OSError as error:
            port, why = self._where[1], error.strerror
            text = f"cannot take progress reports on port {port}: {why}; choose another --progress-port"
            raise OSError(text) from None

    def serve(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        connection.task = self._scope.spawn_guarded(self._answer(request, connection), name="status.request")

    async def _answer(self, request: IncomingRequest, connection: Connection[IncomingRequest]) -> None:
        path = request.target.partition("?")[0]
        try:
            code, content = await self._server.answer(request.method, path, request.headers, request.body)
        except OSError:
            code, content = 503, StatusError(503, "ServiceUnavailable", "the cluster does not answer").to_object()
        connection.task = None
        if code == 200:
            try:
                # Connections are counted per TrainJob.
                self.gatekeeper.recognise(connection.visitor, path, is_privileged=False)
            except EdgeRefusal:
                request.keep_alive = False
        connection.answer(encode_answer(code, content, request.keep_alive), request.keep_alive)

    def refuse(self, refusal: EdgeRefusal, connection: Connection[IncomingRequest]) -> None:
        content = StatusError(refusal.code, refusal.reason, refusal.message).to_object()
        connection.answer(encode_answer(refusal.code, content, False), keep_alive=False, linger=True)


def encode_answer(code: int, content: Object, keep_alive: bool) -> bytes:
    body = orjson.dumps(content)
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(["Retry-After: 1"] if code == 429 else []),
        *([] if keep_alive else ["Connection: close"]),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body
