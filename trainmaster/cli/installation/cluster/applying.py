"""`trainmaster operator install` and `upgrade`: what happens in which order.

Everything that can be known to go wrong is found first, with a rehearsal by the server. Then the inventory is written,
then the objects; what only the old version had goes after that. Webhook configurations are the last to come and the
first to go, so that nobody's jobs are refused because nothing answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainmaster.api.meta import Fields, Object
from trainmaster.api.resources import DEPLOYMENTS, NAMESPACES
from trainmaster.api.status import StatusError
from trainmaster.cli import exits
from trainmaster.cli.installation.cluster import checks
from trainmaster.cli.installation.cluster.inventory import InstallationInventory, find_inventory, store_inventory, unite
from trainmaster.cli.installation.cluster.objects import ANSWERED, WEBHOOKS, ObjectReference, mark, refer
from trainmaster.cli.installation.cluster.values import gather_values
from trainmaster.cli.installation.cluster.work import InstallationOptions, InstallationWork
from trainmaster.cli.installation.cluster.writes import (
    UNCHANGED,
    ApplyOptions,
    Live,
    apply_object,
    explain_refusal,
    read_live,
)
from trainmaster.operator.install import Values, ValuesError, build_objects, read_values
from trainmaster.version import __version__


@dataclass(frozen=True, slots=True)
class InstallationPlan:
    """From what there was to what is wanted."""

    before: InstallationInventory | None
    wanted: InstallationInventory
    objects: dict[ObjectReference, Object]
    live: Live

    @property
    def gone(self) -> list[ObjectReference]:
        """What only the old version has, in the order of deletion."""
        places = {one.place for one in self.objects}
        old = reversed(self.before.objects if self.before else ())
        return sorted((one for one in old if one.place not in places), key=lambda one: one.gvr not in ANSWERED)


async def install(work: InstallationWork) -> int:
    await checks.check_server(work.client)
    found = await find_inventory(work.client, work.namespace)
    if found is not None and found.is_complete:
        text = f"version {found.version} is installed in {work.namespace} already"
        raise exits.Failure(f"{text}: `trainmaster operator upgrade` changes it")
    # One that was interrupted is completed.
    return await _apply(work, found)


async def upgrade(work: InstallationWork) -> int:
    await checks.check_server(work.client)
    return await _apply(work, await work.get_inventory())


async def _apply(work: InstallationWork, before: InstallationInventory | None) -> int:
    given, values = _read_values(work.options, before)
    objects = {refer(obj): mark(obj, work.namespace) for obj in build_objects(values, work.namespace)}
    live = await read_live(work.client, list(objects))
    checks.check_owners(live, work.namespace)
    if obstacle := await checks.find_obstacle(work.client, values):
        if work.options.wait and not work.options.dry_run:
            raise exits.Failure(f"{obstacle} (with --no-wait it is installed nevertheless)")
        work.context.note(f"warning: {obstacle}")
    changes = await checks.rehearse(work.client, objects, live, force=work.options.force)
    plan = InstallationPlan(before, InstallationInventory(__version__, tuple(objects), given), objects, live)
    if work.options.dry_run:
        for change in changes:
            work.context.say(f"{change.reference.title} {change.verb} (dry run)")
        for one in plan.gone:
            work.context.say(f"{one.title} {'kept' if one.kept else 'deleted'} (dry run)")
        return exits.OK
    await _write(work, plan)
    if work.options.wait:
        await _await_rollout(work, list(objects))
    work.context.note(f"version {__version__} is installed in namespace {work.namespace}")
    return exits.OK


def _read_values(options: InstallationOptions, before: InstallationInventory | None) -> tuple[Object, Values]:
    base: Fields = {} if before is None or options.reset_values else before.values
    try:
        given = gather_values(base, options.files, options.assignments)
        return given, read_values(given)
    except ValuesError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


async def _write(work: InstallationWork, plan: InstallationPlan) -> None:
    options, same = ApplyOptions(force=work.options.force), 0
    # The inventory lies in the namespace.
    home = [one for one in plan.objects if one.gvr == NAMESPACES and one.name == work.namespace]
    for one in home:
        same += await _apply_one(work, plan, one, options)
    wanted, before = plan.wanted, plan.before
    if before is not None:
        united = unite(before.objects, wanted.objects)
        draft = replace(wanted, objects=united, resource_version=before.resource_version)
    else:
        draft = wanted
    stored = await store_inventory(work.client, draft, work.namespace)
    goes = [one for one in plan.gone if not one.kept]
    await work.delete([one for one in goes if one.gvr in ANSWERED])
    for one in plan.objects:
        if one not in home:
            same += await _apply_one(work, plan, one, options)
    await work.delete([one for one in goes if one.gvr not in ANSWERED])
    kept = tuple(one for one in plan.gone if one.kept)
    done = replace(wanted, objects=(*kept, *wanted.objects), is_complete=True)
    await store_inventory(work.client, replace(done, resource_version=stored.resource_version), work.namespace)
    if same:
        work.context.note(f"unchanged: {same} of {len(plan.objects)} objects")


async def _apply_one(
    work: InstallationWork, plan: InstallationPlan, one: ObjectReference, options: ApplyOptions
) -> bool:
    """Whether it was there already, as it should be."""
    try:
        change = await apply_object(work.client, one, plan.objects[one], plan.live, options)
    except StatusError as error:
        if error.code in (401, 429) or error.code >= 500:
            raise
        raise exits.Failure(f"{explain_refusal(one, error)}; the same command goes on from here") from None
    if change.verb != UNCHANGED:
        work.context.say(f"{one.title} {change.verb}")
    return change.verb == UNCHANGED


async def _await_rollout(work: InstallationWork, objects: Sequence[ObjectReference]) -> None:
    rollout = work.start_rollout()
    await rollout.await_available([one for one in objects if one.gvr == DEPLOYMENTS])
    if any(one.gvr in WEBHOOKS for one in objects):
        await rollout.await_webhooks()
