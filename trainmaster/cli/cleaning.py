"""Lists the jobs and orphans to delete, and deletes them. Used by cleanup and purge."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS
from trainmaster.api.status import Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, ListOptions, PatchType
from trainmaster.jobs import code_maps
from trainmaster.jobs.janitor import (
    CLEAR,
    FinishedJobFilter,
    Removal,
    plan_finished,
    plan_left_code,
    plan_orphans,
    plan_stuck,
)
from trainmaster.jobs.lookups import list_training_jobs
from trainmaster.kit.clock import SystemClock


async def make_plan(client: Client, options: argparse.Namespace, wanted: FinishedJobFilter) -> list[Removal]:
    now = SystemClock().now()
    if options.orphans:
        jobs = await list_training_jobs(client, options.namespace)
        listed = {gvr: (await client.list(gvr, options.namespace)).items for gvr in (JOB_SETS, JOBS, PODS)}
        wanted_maps = ListOptions(label_selector=code_maps.SELECTOR)
        try:
            left = (await client.list(CONFIG_MAPS, options.namespace, wanted_maps)).items
        except StatusError as error:
            if error.code != 403:
                raise
            left = []  # who may not list ConfigMaps cannot send code either
        return [*plan_orphans(jobs, listed), *plan_left_code(jobs, left, now)]
    selected = await list_training_jobs(client, options.namespace, options.selector)

    def build() -> Iterator[Removal]:
        yield from plan_finished(selected, wanted, now)
        if options.clear_finalizers:
            yield from plan_stuck(selected, now)

    return list(build())


async def carry_out(client: Client, plan: list[Removal]) -> list[str]:
    """Deletes each object by uid, so that a newer object of the same name is kept. Returns the errors."""
    problems = []
    for item in plan:
        try:
            if item.action == CLEAR:
                patch = {"metadata": {"uid": item.uid, "finalizers": None}}
                await client.patch(item.gvr, item.name, PatchType.MERGE, patch, item.namespace)
            options = DeleteOptions(propagation="Background", uid=item.uid)
            await client.delete(item.gvr, item.name, item.namespace, options)
        except NotFound:
            continue
        except Conflict as error:
            problems.append(f"{item.gvr.plural} {item.namespace}/{item.name}: {error.message}")
    return problems
