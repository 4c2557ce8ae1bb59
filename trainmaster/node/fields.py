"""Fields of Pods that this node does not support. Such a Pod fails with the reason.

All other fields are honoured, approximated (reported in an event where it matters) or without meaning on one machine.
"""

from __future__ import annotations

from trainmaster.api import code
from trainmaster.api.declaring.supported import POD, list_unsupported
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod


def find_refusal(pod: Pod) -> str:
    """Why the Pod cannot run here, as a sentence; "" if it can."""
    unsupported = list_refused(pod)
    return f"this node does not carry out {', '.join(unsupported)}" if unsupported else ""


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
