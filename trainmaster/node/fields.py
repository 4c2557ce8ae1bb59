"""The fields of a Pod that this node carries out. A Pod that asks for anything else fails, naming the field.

Built from the fidelity tables, so that there is one truth: what they call refused is refused here, everything else is
honoured, approximated (an event says so where it matters) or without meaning on one machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.api import code
from trainmaster.api.declaring import fidelity_tables
from trainmaster.api.declaring.kinds import Fidelity
from trainmaster.api.declaring.supported import Table, list_unsupported
from trainmaster.api.reading import read_fields
from trainmaster.jobs.models.pods import Pod


def _build(rules: fidelity_tables.Table) -> Table:
    return {name: _read(rule) for name, rule in rules.items() if name}


def _read(rule: object) -> bool | Table:
    if isinstance(rule, Mapping):
        return _build(rule)
    return (rule[0] if isinstance(rule, tuple) else rule) is not Fidelity.REFUSED


CONTAINER: Table = _build(fidelity_tables.CONTAINER)
POD: Table = _build(fidelity_tables.POD_SPEC)


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
