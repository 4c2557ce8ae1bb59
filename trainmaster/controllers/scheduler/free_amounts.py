"""What the node has left in the course of one look at the queue.

Nobody ever takes what one ahead of him waits for: whatever a gang that does not fit asks for is set aside before the
next one is looked at. So a large gang at the head is never overtaken by small ones that would keep it from starting,
and small ones still pass it with what it does not need (docs/scheduling.md). Resources that a Node does not mention are
not limited (a Node made by hand), except devices, of which it then has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.api.devices import Device, list_devices
from trainmaster.api.meta import Object
from trainmaster.api.pods.requests import GPU, Amounts, add_into, read_amounts
from trainmaster.controllers.scheduler.ledger import SchedulingLedger
from trainmaster.jobs.models.nodes import Node

UNLIMITED = 2**63


@dataclass(slots=True)
class NodeRoom:
    node: str
    has: Amounts
    """What the Node offers in all."""
    devices: list[Device]
    leases: Mapping[str, str]
    """Device id to who has it."""
    taken: Amounts
    """By gangs that are admitted, and by those that this look admits."""
    firm: Amounts
    """The same of gangs of which something runs: never more than there is, so that each can go on to its end."""
    used: Amounts
    """By Pods that have a node, or get one in this look: never more than there is, whatever was promised to whom."""
    kept: Amounts = field(default_factory=dict)
    """For gangs that wait ahead of whoever is looked at next."""

    def limit(self, name: str) -> int:
        """What may be given out of a resource now."""
        if name == GPU:
            return min(self.count(name), sum(1 for device in self.devices if self._is_usable(device)))
        return self.count(name)

    def count(self, name: str) -> int:
        """What there is of a resource once all is well."""
        return self.has.get(name, 0 if "/" in name else UNLIMITED)

    def get_free(self, name: str) -> int:
        """Not taken; some of it may be kept for others."""
        return self.limit(name) - self.taken.get(name, 0)

    def get_rest(self, name: str) -> int:
        return self.get_free(name) - self.kept.get(name, 0)

    def list_lacking(self, growth: Mapping[str, int], waits: Mapping[str, int], begins: Mapping[str, int]) -> list[str]:
        """Resources of which there is not enough for who wants to hold so much more, with Pods that take `waits`.

        `begins`: all that a gang will hold of which nothing runs yet, or nothing any more."""
        short = {name for name, amount in growth.items() if amount > 0 and self.get_rest(name) < amount}
        short.update(name for name, amount in waits.items() if self.limit(name) - self.used.get(name, 0) < amount)
        short.update(name for name, amount in begins.items() if self.limit(name) - self.firm.get(name, 0) < amount)
        return sorted(short)

    def list_impossible(self, need: Mapping[str, int]) -> list[str]:
        """Resources of which the node does not have so much at all."""
        return sorted(name for name, amount in need.items() if amount > self.count(name))

    def take(self, growth: Mapping[str, int], waits: Mapping[str, int], begins: Mapping[str, int]) -> None:
        add_into(self.taken, growth)
        add_into(self.firm, begins or growth)
        add_into(self.used, waits)

    def keep(self, growth: Mapping[str, int]) -> None:
        add_into(self.kept, {name: amount for name, amount in growth.items() if amount > 0})

    def list_free_devices(self) -> list[Device]:
        return [device for device in self.devices if device.is_free and device.id not in self.leases]

    def list_troubles(self, *, discreet: bool = False) -> list[str]:
        """Why devices that nobody leases are not to be had. `discreet`: without naming the machine's processes."""
        found = []
        for device in self.devices:
            if device.id in self.leases:
                continue
            if device.unhealthy:
                found.append(f"GPU {device.index} is not used any more: {device.unhealthy}")
            elif device.held:
                holder = "something" if discreet else device.held
                found.append(f"GPU {device.index} is used by {holder}, which belongs to no job")
        return found

    def _is_usable(self, device: Device) -> bool:
        return device.is_free or device.id in self.leases


def make_room(node: Object, ledger: SchedulingLedger) -> NodeRoom:
    offered = read_amounts(Node(node).allocatable)
    devices = list_devices(node) if offered.get(GPU) else []
    taken, firm, used = dict(ledger.held), dict(ledger.firm), dict(ledger.used)
    return NodeRoom(node["metadata"]["name"], offered, devices, ledger.leases, taken, firm, used)
