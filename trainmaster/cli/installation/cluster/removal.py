"""`trainmaster operator uninstall`: removes what the inventory names. Jobs go on, and whatever they need stays: their
definitions, records, namespaces, and the operator's own Secrets, with which a later installation goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainmaster.api.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, DEPLOYMENTS, TRAIN_JOBS
from trainmaster.api.status import NotFound
from trainmaster.cli import exits, terminal
from trainmaster.cli.installation.cluster.inventory import NAME, store_inventory
from trainmaster.cli.installation.cluster.objects import ANSWERED, ObjectReference
from trainmaster.cli.installation.cluster.work import InstallationWork


async def uninstall(work: InstallationWork) -> int:
    found = await work.get_inventory()
    kept = [one for one in found.objects if one.kept]
    goes = sorted((one for one in reversed(found.objects) if not one.kept), key=_rank)
    if work.options.delete_definitions:
        definitions = [one for one in kept if one.gvr == CUSTOM_RESOURCE_DEFINITIONS]
        kept = [one for one in kept if one not in definitions]
        goes += definitions
    if work.options.dry_run:
        for one in goes:
            work.context.say(f"{one.title} deleted (dry run)")
        for one in kept:
            work.context.say(f"{one.title} kept (dry run)")
        return exits.OK
    if work.options.delete_definitions and not await _is_agreed(work):
        return exits.FAILED
    # What is interrupted now can be installed again, or removed.
    await store_inventory(work.client, replace(found, is_complete=False), work.namespace)
    first = [one for one in goes if _rank(one) < _REST]
    await work.delete(first)
    rollout = work.start_rollout()
    if work.options.wait:
        # They end with their rights, so that the leader gives its Lease back.
        await rollout.await_gone([one for one in first if one.gvr == DEPLOYMENTS])
    await work.delete([one for one in goes if _rank(one) == _REST])
    if work.options.wait:
        await rollout.await_gone([one for one in goes if one.gvr == CUSTOM_RESOURCE_DEFINITIONS])
    await work.client.delete(CONFIG_MAPS, NAME, work.namespace)
    _tell_kept(work, kept)
    return exits.OK


_REST = 2


def _rank(one: ObjectReference) -> int:
    return 0 if one.gvr in ANSWERED else 1 if one.gvr == DEPLOYMENTS else _REST


async def _is_agreed(work: InstallationWork) -> bool:
    try:
        jobs = len((await work.client.list(TRAIN_JOBS)).items)
    except NotFound:
        jobs = 0
    question = f"This deletes the definitions and all objects of these kinds, among them {jobs} TrainJobs."
    return terminal.confirm(work.context, question, yes=work.options.yes)


def _tell_kept(work: InstallationWork, kept: Sequence[ObjectReference]) -> None:
    definitions = sum(one.gvr == CUSTOM_RESOURCE_DEFINITIONS for one in kept)
    others = [one.title for one in kept if one.gvr != CUSTOM_RESOURCE_DEFINITIONS]
    if definitions:
        work.context.note(
            f"{definitions} definitions stay with all jobs, which go on; until an operator is installed again, nobody "
            "updates their status or deletes them (--delete-crds removes both)"
        )
    if others:
        work.context.note(f"{', '.join(others)} and the operator's Secrets stay too; delete them if nobody needs them")
