"""Reports training progress with one call. For training programs; standard library only.

    import trainmaster

    for step in range(1, 1001):
        loss = train()
        trainmaster.report(step=step, total=1000, loss=loss)

The call takes microseconds: a thread sends the newest state, at most every five seconds, and the last one when the
program ends. It never raises and never waits for the server. Outside of a TrainJob, and on every rank but 0, it does
nothing. It uses Kubeflow Trainer's progress protocol, so it works wherever that is served: percentage and time left are
computed from `step` and `total`, everything else is a metric. They are shown in `status.trainerStatus`, in `kubectl get
trainjob`, and as a series in the job's record.
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import http.client
import json
import logging
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
STACKS, STACKS_SIGNAL = "trainmaster-stacks", 59
"""As in `trainmaster.shim.evidence.dumps`: the file in memory, and the signal that is answered with stacks."""
SECONDS = 5.0
"""Between two reports, as Trainer asks of its clients."""
STEP, TOTAL = "current_step", "total_steps"
"""Metric names for step and total; Hugging Face's Trainer uses the same."""
_PATIENCE = 5.0
_LAST_PATIENCE = 3.0
"""How many seconds the last report may delay the end of a program."""
_MOST_METRICS, _LONGEST = 256, 64
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "JAX_PROCESS_ID", "DMLC_TASK_ID", "PET_NODE_RANK",
          "JOB_COMPLETION_INDEX")  # fmt: skip
"""Who says which process this is: the launcher, else the framework, else Kubernetes."""

log = logging.getLogger(__name__)

Payload = dict[str, Any]
Send = Callable[[Payload, float], bool]
"""(payload, timeout in seconds) -> whether the report is done; False means that it may be retried."""


def report(step: float | None = None, total: float | None = None, **metrics: Any) -> None:
    """Reports the training progress. Metrics are numbers, tensors of one element, or short strings; each is kept until
    it is reported again. Only rank 0 sends reports; other ranks may call it too. The metric `phase` says what the
    program does if that is not training (`phase="evaluation"`, then `phase="training"`); steps may stand still then."""
    try:
        reporter = _find_reporter()
        if reporter is not None:
            reporter.note(step, total, metrics)
    except Exception:  # progress reporting must never end the training
        log.debug("progress not noted", exc_info=True)


class ProgressReporter:
    """The newest state, and the thread that sends it."""

    def __init__(self, send: Send, *, clock: Callable[[], float] = time.monotonic, seconds: float = SECONDS) -> None:
        self._send = send
        self._clock = clock
        self._seconds = seconds
        self._changed = threading.Condition()
        self._state = ReportedState()
        self._is_unsent = False
        self._is_over = False
        self._thread: threading.Thread | None = None

    def note(self, step: float | None, total: float | None, metrics: Mapping[str, Any]) -> None:
        with self._changed:
            if self._is_over:
                return
            self._state.note(step, total, metrics, self._clock())
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="trainmaster.report", daemon=True)
                self._thread.start()
            if not self._is_unsent:
                self._is_unsent = True
                self._changed.notify()

    def finish(self) -> None:
        """Sends the last state if it was not sent yet."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            # A report in progress may be the last one; two at a time could arrive out of order.
            self._thread.join(_LAST_PATIENCE)
        if self._is_unsent and (self._thread is None or not self._thread.is_alive()):
            self._send_report(_LAST_PATIENCE)

    def _work(self) -> None:
        due = self._clock()
        while True:
            with self._changed:
                while not self._is_over and (not self._is_unsent or self._clock() < due):
                    self._changed.wait(max(0.0, due - self._clock()) if self._is_unsent else None)
                if self._is_over:
                    return
            due = self._clock() + self._seconds
            self._send_report(_PATIENCE)

    def _send_report(self, patience: float) -> None:
        with self._changed:
            state = self._state.copy()
            self._is_unsent = False
        try:
            is_done = self._send(state.build_payload(), patience)
        except Exception:  # as above; the next one may succeed
            log.debug("progress not sent", exc_info=True)
            is_done = False
        if not is_done:
            with self._changed:
                self._is_unsent = True


class ReportedState:
    """The values reported so far, and since when."""

    def __init__(self) -> None:
        self.step: float | None = None
        self.total: float | None = None
        self.metrics: dict[str, Any] = {}
        self.began: tuple[float, float] | None = None
        """(time, step) of the first report: anything before it is start-up."""
        self.noted = 0.0

    def copy(self) -> ReportedState:
        other = ReportedState()
        other.step, other.total, other.metrics = self.step, self.total, dict(self.metrics)
        other.began, other.noted = self.began, self.noted
        return other

    def note(self, step: float | None, total: float | None, metrics: Mapping[str, Any], now: float) -> None:
        if total is not None:
            self.total = float(total)
        if step is not None:
            step = float(step)
            if self.began is None or self.step is None or step < self.step:
                self.began = (now, step)
            self.step, self.noted = step, now
        for name, value in metrics.items():
            if value is None or (name not in self.metrics and len(self.metrics) >= _MOST_METRICS - 2):
                continue
            # Otherwise a tensor keeps its whole graph. Its value is read in the thread, where waiting for a device does
            # not delay the training.
            detach = getattr(value, "detach", None)
            self.metrics[name] = value if detach is None else detach()

    def build_payload(self) -> Payload:
        content: Payload = {"lastUpdatedTime": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")}
        if self.step is not None and self.total is not None and self.total > 0:
            content["progressPercentage"] = int(min(max(100.0 * self.step / self.total, 0.0), 100.0))
            left = self.find_seconds_left()
            if left is not None:
                content["estimatedRemainingSeconds"] = min(int(left), 2**31 - 1)
        own = {STEP: self.step, TOTAL: self.total}
        shown = [(name, format_value(value)) for name, value in (*self.metrics.items(), *own.items())]
        metrics = [{"name": name[:_LONGEST], "value": text} for name, text in shown if name and text]
        return {"trainerStatus": {**content, **({"metrics": metrics} if metrics else {})}}

    def find_seconds_left(self) -> float | None:
        """From the average speed since the first report."""
        assert self.step is not None and self.total is not None
        if self.step >= self.total:
            return 0.0
        if self.began is None or self.step <= self.began[1]:
            return None
        per_step = (self.noted - self.began[0]) / (self.step - self.began[1])
        return per_step * (self.total - self.step)


def format_value(value: Any) -> str:
    """As a short text; "" if it has none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_LONGEST]
    if isinstance(value, bool | int):
        return str(value)[:_LONGEST]
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.6g}"


class StatusConnection:
    """A connection to the status server that stays open between reports."""

    def __init__(self, url: str, ca_cert: str, token: str) -> None:
        self._where = urlsplit(url)
        self._ca_cert = ca_cert
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def __call__(self, payload: Payload, patience: float) -> bool:
        # Read for each report, because it is renewed within the hour.
        with open(self._token) as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}", "Content-Type": "application/json"}
        body = json.dumps(payload).encode()
        was_open = self._connection is not None
        try:
            code = self._post(body, headers, patience)
        except (OSError, http.client.HTTPException):
            self._close()
            if not was_open:
                raise
            # The server may have closed an idle connection.
            code = self._post(body, headers, patience)
        if code != 200:
            log.debug("progress refused with %s", code)
        return code < 500 and code != 429

    def _post(self, body: bytes, headers: Mapping[str, str], patience: float) -> int:
        connection = self._connection = self._connection or self._connect()
        connection.timeout = patience
        if connection.sock is not None:
            connection.sock.settimeout(patience)
        path = self._where.path + (f"?{self._where.query}" if self._where.query else "")
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._where.hostname or "", self._where.port
        if self._where.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_PATIENCE)
        context = ssl.create_default_context(cafile=self._ca_cert or None)
        return http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def build_reporter(environ: Mapping[str, str]) -> ProgressReporter | None:
    """None if there is no server to report to, or this process is not rank 0."""
    url, token = environ.get(URL), environ.get(TOKEN)
    if not url or not token or read_rank(environ) != 0:
        return None
    return ProgressReporter(StatusConnection(url, environ.get(CA_CERT, ""), token))


def read_rank(environ: Mapping[str, str]) -> int:
    for name in _RANKS:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return 0


_found: list[ProgressReporter | None] = []
_finding = threading.Lock()


def _find_reporter() -> ProgressReporter | None:
    if not _found:
        with _finding:
            if not _found:
                _found.append(build_reporter(os.environ))
                if os.environ.get(URL):
                    offer_stacks()
    return _found[0]


_offered: list[int] = []


def offer_stacks() -> None:
    """Lets the node ask this process where its threads are, even if it hangs, by a signal that Python's faulthandler
    answers (docs/evidence.md). A program that handles the signal itself is left alone."""
    try:
        if signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
            return
        file = os.memfd_create(STACKS, os.MFD_CLOEXEC)
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
    except (AttributeError, OSError, RuntimeError, ValueError):
        log.debug("stacks not offered", exc_info=True)
        return
    for earlier in _offered:  # of the process that this one was forked from
        os.close(earlier)
    _offered[:] = [file]


def _finish() -> None:
    for reporter in _found:
        if reporter is not None:
            reporter.finish()


def _forget() -> None:
    """A forked child has no thread or connection of its own, and may have another rank."""
    global _finding
    _finding = threading.Lock()
    _found.clear()


atexit.register(_finish)
os.register_at_fork(after_in_child=_forget)
