"""The fields of a Pod that this node does not carry out. A Pod that asks for one fails, naming the field.

Everything else is honoured, approximated (an event says so where it matters) or without meaning on one machine.
"""

from __future__ import annotations

from trainmaster.api import code
from trainmaster.api.declaring.supported import POD, list_unsupported
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod


def list_refused(pod: Pod) -> list[str]:
    """Paths of what the Pod asks for and does not get here."""
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
