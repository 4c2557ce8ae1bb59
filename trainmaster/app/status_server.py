"""The operator's status server: training code on a cluster reports its progress here, as to upstream's manager.

    POST /apis/trainer.kubeflow.org/v1alpha1/namespaces/NS/trainjobs/NAME/status

Everything else is 404. Who asks is found out with a TokenReview for the audience of that one TrainJob, remembered for a
minute; the Pod that the token is bound to must work for the job, and is looked up in the operator's watch cache. What a
report must look like and what is stored of it is decided in `api/training/reports.py`, as on one machine. Every replica
serves, the leader or not. A small HTTP/1.1 of its own: this mode brings no API server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from trainmaster.api import status
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import JOB_SETS, JOBS, PODS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.training import reports
from trainmaster.client.contract import Client, PatchType, WriteOptions
from trainmaster.client.view import View
from trainmaster.kit.buckets import Buckets
from trainmaster.kit.clock import Clock

log = logging.getLogger(__name__)

PER_SECOND, BURST = 1.0, 10
"""Reports of one TrainJob, as on one machine."""
_TOKEN_REVIEWS = GVR("authentication.k8s.io", "v1", "tokenreviews")
_PATH = re.compile(r"/apis/trainer\.kubeflow\.org/v1alpha1/namespaces/([^/?]+)/trainjobs/([^/?]+)/status")
_REMEMBER_SECONDS, _REMEMBERED = 60.0, 4096
_HEAD_LIMIT = 16 * 1024
_IDLE_SECONDS, _READ_SECONDS = 120.0, 10.0
_MOST_CONNECTIONS = 2000
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose token it is."""

    pod: str = ""
    """Empty: the token is bound to no Pod."""
    uid: str = ""


class StatusServer:
    def __init__(self, client: Client, view: View, clock: Clock) -> None:
        self._client = client
        self._view = view
        self._clock = clock
        self._buckets = Buckets(clock, per_second=PER_SECOND, burst=BURST)
        self._senders: dict[bytes, tuple[float, Sender]] = {}
        """By a hash of token and audience: until when, and who."""
        self._connections = 0

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
        sender = await self._find_sender(namespace, name, headers.get("authorization", ""))
        report = reports.parse(body)
        if report is None:
            return {}
        trainjob = self._view.find(TRAIN_JOBS, namespace, name)
        if trainjob is None:
            raise reports.refuse_name()
        # It has the name of its TrainJob.
        jobset = self._view.find(JOB_SETS, namespace, name)
        reporter = self._find_reporter(sender, namespace)
        if reporter is not None:
            reports.check_reporter(reporter, trainjob, jobset)
        if not self._buckets.take(trainjob["metadata"]["uid"]):
            raise status.too_many_requests(f"reports of one TrainJob are taken {BURST} at once and then one a second")
        wanted = reports.decide(report, trainjob, self._clock.now(), reports.find_beginning(jobset, reporter))
        if wanted is not None:
            patch = {"metadata": {"uid": trainjob["metadata"]["uid"]}, **reports.build_patch(wanted)}
            options = WriteOptions(field_manager=reports.MANAGER)
            try:
                await self._client.patch(
                    TRAIN_JOBS, name, PatchType.MERGE, patch, namespace, subresource="status", options=options
                )
            except NotFound:
                raise reports.refuse_name() from None
        return {"trainerStatus": report if wanted is None else wanted}

    def _find_reporter(self, sender: Sender, namespace: str) -> reports.Reporter | None:
        if not sender.pod:
            return None
        pod = self._view.find(PODS, namespace, sender.pod)
        if pod is None or pod["metadata"]["uid"] != sender.uid:
            # Of Pods only members of JobSets are followed; one that is so young will try again.
            raise reports.refuse_sender()
        job = reports.read_job_name(pod)
        return reports.read_reporter(pod, self._view.find(JOBS, namespace, job) if job else None)

    async def _find_sender(self, namespace: str, name: str, header: str) -> Sender:
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

    async def _review(self, namespace: str, audience: str, token: str) -> Sender:
        spec = {"token": token, "audiences": [audience]}
        review = {"apiVersion": _TOKEN_REVIEWS.api_version, "kind": "TokenReview", "spec": spec}
        found = (await self._client.create(_TOKEN_REVIEWS, review)).get("status") or {}
        user = found.get("user") or {}
        is_local = str(user.get("username", "")).startswith(f"system:serviceaccount:{namespace}:")
        if not found.get("authenticated") or audience not in (found.get("audiences") or ()) or not is_local:
            raise reports.refuse_sender()
        extra = user.get("extra") or {}
        return Sender(*(str((extra.get(key) or [""])[0]) for key in (_POD_NAME, _POD_UID)))

    # ---- HTTP ------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext, host: str, port: int) -> AsyncIterator[int]:
        """Yields the port. OSError when it cannot be had."""
        server = await asyncio.start_server(self._serve, host, port, ssl=tls, limit=_HEAD_LIMIT)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            while self._connections <= _MOST_CONNECTIONS and await self._exchange(reader, writer):
                pass
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or does not speak HTTP: nobody is left to tell
        finally:
            self._connections -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether another may follow."""
        async with asyncio.timeout(_IDLE_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, version = first.split(" ")
        headers = {key.strip().lower(): text.strip() for key, _, text in (line.partition(":") for line in lines) if key}
        length = int(headers.get("content-length") or 0)
        if "transfer-encoding" in headers or not 0 <= length <= reports.LARGEST:
            code = 411 if "transfer-encoding" in headers else 413
            error = StatusError(code, "RequestEntityTooLarge", "Payload too large")
            await _write(writer, code, error.to_object(), close=True)
            return False
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(_READ_SECONDS):
            body = await reader.readexactly(length)
        code, content = await self.answer(method, target.partition("?")[0], headers, body)
        close = version != "HTTP/1.1" or headers.get("connection", "").lower() == "close"
        await _write(writer, code, content, close=close)
        return not close


async def _write(writer: asyncio.StreamWriter, code: int, content: Object, *, close: bool) -> None:
    body = orjson.dumps(content)
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(["Retry-After: 1"] if code == 429 else []),
        *(["Connection: close"] if close else []),
    ]
    writer.write("\r\n".join((*lines, "", "")).encode() + body)
    async with asyncio.timeout(_READ_SECONDS):
        await writer.drain()
