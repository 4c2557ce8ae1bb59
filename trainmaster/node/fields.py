"""What this node does not support: Pod fields, and at the plain level some v1 jobs. Such a Pod fails with the reason.

All other fields are honoured, approximated (reported in an event where it matters) or without meaning on one machine.
"""

from __future__ import annotations

from trainmaster.api import code
from trainmaster.api.declaring.supported import POD, list_unsupported
from trainmaster.api.meta import Fields
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.v1jobs.frameworks import MPI, OPERATOR_NAME, TENSORFLOW
from trainmaster.api.workloads import read_v1_gang
from trainmaster.jobs.models.pods import Pod
from trainmaster.shim.protocol import PLAIN

_USES_PLAIN = "this server uses plain (see `trainmaster doctor`)"


def find_refusal(pod: Pod, level: str) -> str:
    """Why the Pod cannot run here, as a sentence; "" if it can."""
    unsupported = list_refused(pod)
    if unsupported:
        return f"this node does not carry out {', '.join(unsupported)}"
    return _find_sandbox_need(pod) if level == PLAIN else ""


def _find_sandbox_need(pod: Pod) -> str:
    """Some v1 jobs cannot work without mounts, or on a shared network; their Pods would wait for one another."""
    operator = pod.labels.get(OPERATOR_NAME) if read_v1_gang(pod.raw) else None
    if operator == MPI.controller:
        return (
            f"an MPIJob needs the isolation level full or user, because kubexec.sh uses absolute paths; {_USES_PLAIN}"
        )
    if operator == TENSORFLOW.controller and any(_reads_cluster(container) for container in pod.containers):
        why = "because all its Pods listen on the same port"
        return f"a TFJob of several Pods needs the isolation level full or user, {why}; {_USES_PLAIN}"
    return ""


def _reads_cluster(container: Fields) -> bool:
    return any(entry.get("name") == "TF_CONFIG" for entry in list_items(container, "env"))


def list_refused(pod: Pod) -> list[str]:
    """Paths of fields in the Pod that are not supported."""
    found = list_unsupported(pod.spec, POD, "spec")
    for index, volume in enumerate(pod.volumes):
        driver = read_fields(volume, "csi").get("driver")
        if driver not in (None, code.DRIVER):
            found.append(f"spec.volumes[{index}].csi of driver {driver} (there is only {code.DRIVER} here)")
    for index, container in enumerate(pod.containers):
        if container.get("restartPolicy"):
            found.append(f"spec.containers[{index}].restartPolicy")
    for index, container in enumerate(pod.init_containers):
        if container.get("restartPolicy") not in (None, "", "Always"):
            found.append(f"spec.initContainers[{index}].restartPolicy")
    return found
