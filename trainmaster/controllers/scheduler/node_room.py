"""Tracks what the node has left during one scheduling pass.

Resources that a waiting gang requests are set aside before the next gang is considered. So smaller gangs never delay a
large gang at the head of the queue, but they can start before it with resources that it does not need
(docs/scheduling.md). Resources that a Node does not list (a Node created by hand) are unlimited, except devices, of
which it then has none.
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
    """The Node's allocatable resources."""
    devices: list[Device]
    leases: Mapping[str, str]
    """Device id to the gang that has leased it."""
    taken: Amounts
    """Held by gangs admitted before or in this pass."""
    firm: Amounts
    """Held by gangs with running Pods; never more than the node has, so that each of them can finish."""
    used: Amounts
    """Used by Pods bound before or in this pass; never more than the node has, even if more is held."""
    kept: Amounts = field(default_factory=dict)
    """Set aside for waiting gangs ahead of the next one in the queue."""

    def limit(self, name: str) -> int:
        """How much of a resource can be given out now, leaving out unusable devices."""
        if name == GPU:
            return min(self.count(name), sum(1 for device in self.devices if self._is_usable(device)))
        return self.count(name)

    def count(self, name: str) -> int:
        """How much of a resource the node has if all devices are usable."""
        return self.has.get(name, 0 if "/" in name else UNLIMITED)

    def get_free(self, name: str) -> int:
        """The amount not taken; part of it may be set aside for other gangs."""
        return self.limit(name) - self.taken.get(name, 0)

    def get_rest(self, name: str) -> int:
        return self.get_free(name) - self.kept.get(name, 0)

    def list_lacking(self, growth: Mapping[str, int], waits: Mapping[str, int], begins: Mapping[str, int]) -> list[str]:
        """Resources of which there is not enough.

        `growth`: what the gang needs in addition to what it holds. `waits`: what its waiting Pods use. `begins`:
        everything that the gang will hold, if none of its Pods is running; otherwise empty.
        """
        short = {name for name, amount in growth.items() if amount > 0 and self.get_rest(name) < amount}
        short.update(name for name, amount in waits.items() if self.limit(name) - self.used.get(name, 0) < amount)
        short.update(name for name, amount in begins.items() if self.limit(name) - self.firm.get(name, 0) < amount)
        return sorted(short)

    def list_impossible(self, need: Mapping[str, int]) -> list[str]:
        """Resources of which the node has less than `need` in total."""
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
        """Why devices without a lease are not available. `discreet`: do not name the processes that use them."""
        found = []
        for device in self.devices:
            if device.id in self.leases:
                continue
            if device.unhealthy:
                found.append(f"GPU {device.index} is not used any more: {device.unhealthy}")
            elif device.held:
                found.append(f"GPU {device.index} {'is used outside this namespace' if discreet else device.held}")
        return found

    def _is_usable(self, device: Device) -> bool:
        return device.is_free or device.id in self.leases


def make_room(node: Object, ledger: SchedulingLedger) -> NodeRoom:
    offered = read_amounts(Node(node).allocatable)
    devices = list_devices(node) if offered.get(GPU) else []
    taken, firm, used = dict(ledger.held), dict(ledger.firm), dict(ledger.used)
    return NodeRoom(node["metadata"]["name"], offered, devices, ledger.leases, taken, firm, used)
