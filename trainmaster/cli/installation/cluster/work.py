"""What the commands of an installation share: the client, what the flags say, the inventory, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.api.reading import read_labels
from trainmaster.api.resources import DEPLOYMENTS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.installation.cluster.inventory import InstallationInventory, find_inventory
from trainmaster.cli.installation.cluster.objects import HELM, MANAGED_BY, ObjectReference
from trainmaster.cli.installation.cluster.rollout import Rollout
from trainmaster.cli.installation.cluster.writes import delete_object, explain_refusal, is_about_rights
from trainmaster.client.contract import Client
from trainmaster.kit.clock import Clock, SystemClock
from trainmaster.operator.names import NAME


@dataclass(frozen=True, slots=True)
class InstallationOptions:
    """What the flags say."""

    namespace: str
    files: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    reset_values: bool = False
    """Forget the values that earlier commands gave."""
    seconds: float = 300.0
    wait: bool = True
    dry_run: bool = False
    force: bool = False
    """Take over fields that others have set."""
    delete_definitions: bool = False
    yes: bool = False


@dataclass(slots=True)
class InstallationWork:
    """One command."""

    client: Client
    context: CommandContext
    options: InstallationOptions
    clock: Clock = field(default_factory=SystemClock)

    @property
    def namespace(self) -> str:
        return self.options.namespace

    def start_rollout(self) -> Rollout:
        """From now on its time is counted."""
        return Rollout(self.client, self.clock, self.namespace, self.context.note, self.options.seconds)

    async def get_inventory(self) -> InstallationInventory:
        """Failure if there is none."""
        found = await find_inventory(self.client, self.namespace)
        if found is not None:
            return found
        text = f"namespace {self.namespace} has nothing that `trainmaster operator install` made"
        try:
            owner = await self.client.get(DEPLOYMENTS, NAME, self.namespace)
        except NotFound:
            raise exits.Failure(text, exits.NOT_FOUND) from None
        if read_labels(owner).get(MANAGED_BY) == HELM:
            raise exits.Failure(f"{text}; its Deployment belongs to a Helm release: use helm", exits.NOT_FOUND)
        advice = "`trainmaster operator install` takes over what is there"
        raise exits.Failure(f"{text}; {advice}", exits.NOT_FOUND)

    async def delete(self, objects: Sequence[ObjectReference]) -> None:
        for one in objects:
            propagation = "Foreground" if one.gvr == DEPLOYMENTS else ""
            try:
                outcome = await delete_object(self.client, one, self.namespace, propagation=propagation)
            except StatusError as error:
                if not is_about_rights(error):
                    raise
                raise exits.Failure(explain_refusal(one, error)) from None
            if outcome:
                self.context.say(f"{one.title} {outcome}")
