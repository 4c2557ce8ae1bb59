"""`trainmaster.TrainerClient`: the Kubeflow SDK's client with two more arguments.

It also fixes three problems. The server's message for a refused job is part of the error's text; the SDK leaves it in
the error's cause. The code of a function arrives unchanged; in the SDK the job's shell expands variables and commands
in it. A log is followed from before the job starts and through its restarts; the SDK ends with the Pod, and immediately
if there is none.

Loaded on first use of `trainmaster.TrainerClient`: the SDK takes a second to import and is an optional dependency.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from typing import Any

try:
    from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig
    from kubeflow.trainer import TrainerClient as _SdkClient
    from kubeflow.trainer.constants.constants import DEFAULT_TRAINING_RUNTIME
    from kubernetes import watch
    from kubernetes.client import ApiException
except ImportError as error:
    raise ImportError(
        "trainmaster.connect and trainmaster.TrainerClient need the Kubeflow SDK: pip install 'trainmaster[sdk]'"
    ) from error

from trainmaster.sdk.options import ActiveDeadlineSeconds, TTLSecondsAfterFinished

_POLL_SECONDS = 0.5
"""The SDK has no watches; one poll is four small requests."""

__all__ = ["KubernetesBackendConfig", "TrainerClient", "read_message"]


class TrainerClient(_SdkClient):  # type: ignore[misc]  # the SDK is not installed where types are checked
    def train(
        self,
        runtime: Any = None,
        initializer: Any = None,
        trainer: Any = None,
        options: list[Any] | None = None,
        *,
        active_deadline_seconds: int | None = None,
        ttl_seconds_after_finished: int | None = None,
    ) -> str:
        """Like the SDK's `train`; returns the name of the TrainJob.

        active_deadline_seconds: the job fails, and its Pods are stopped, if it is active for longer.

        ttl_seconds_after_finished: the job is deleted with everything it owns this long after its end; its record and
        logs stay in the history.
        """
        chosen = list(options or ())
        if active_deadline_seconds is not None:
            chosen.append(ActiveDeadlineSeconds(active_deadline_seconds))
        if ttl_seconds_after_finished is not None:
            chosen.append(TTLSecondsAfterFinished(ttl_seconds_after_finished))
        try:
            if isinstance(trainer, CustomTrainer):
                runtime = _quote_code(self._get_runtime(runtime))
            name: str = super().train(runtime=runtime, initializer=initializer, trainer=trainer, options=chosen)
        except RuntimeError as error:
            message = read_message(error.__cause__)
            if not message:
                raise
            raise RuntimeError(f"{error}: {message}") from error.__cause__
        return name

    def get_job_logs(self, name: str, step: str = "node-0", follow: bool | None = False) -> Iterator[str]:
        """Like the SDK's. With `follow`: waits for the job to start, and continues until it has ended or is deleted."""
        if not follow:
            yield from super().get_job_logs(name=name, follow=False, step=step)
            return
        read: set[str] = set()
        while True:
            try:
                job = self.get_job(name)
            except RuntimeError as error:
                if read and getattr(error.__cause__, "status", 0) == 404:
                    return
                raise
            pods = [one.pod_name for one in job.steps if one.name == step and one.status != "Pending"]
            if fresh := set(pods) - read:
                read |= fresh
                yield from self._follow(fresh.pop(), re.sub(r"-\d+$", "", step))
            elif job.status in ("Complete", "Failed"):
                return
            else:
                time.sleep(_POLL_SECONDS)

    def _follow(self, pod: str, container: str) -> Iterator[str]:
        backend = self.backend
        arguments = {"name": pod, "namespace": backend.namespace, "container": container, "follow": True}
        try:
            yield from watch.Watch().stream(backend.core_api.read_namespaced_pod_log, **arguments)
        except ApiException as error:
            # Deleted since it was listed, e.g. by a restart.
            if error.status != 404:
                raise RuntimeError(f"Failed to read logs for the pod {backend.namespace}/{pod}") from error

    def _get_runtime(self, runtime: Any) -> Any:
        if runtime is None or isinstance(runtime, str):
            return self.get_runtime(runtime or DEFAULT_TRAINING_RUNTIME)
        return copy.deepcopy(runtime)


def _quote_code(runtime: Any) -> Any:
    """The function is passed as a here-document of the job's shell; quoting its delimiter prevents expansion."""
    runtime.trainer.set_command(tuple(part.replace("<< EOM", "<< 'EOM'", 1) for part in runtime.trainer.command))
    return runtime


def read_message(error: object) -> str:
    """The message of the Status in an error of the Kubernetes client, if there is one."""
    try:
        return str(json.loads(getattr(error, "body", None) or "{}").get("message", ""))
    except (ValueError, AttributeError):
        return ""
