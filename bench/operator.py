"""What our operator costs on a real control plane, compared with Kubeflow Trainer's manager, in one run.

Each side has a control plane of its own, one after the other, on the same machine and with the same parts: etcd,
kube-apiserver, controller manager, scheduler, JobSet, fake nodes. Pods end as soon as they run. Both sides do the same:

- idle memory, and again with 1,000 and with 10,000 suspended TrainJobs
- what 700 ConfigMaps of 200 KB that belong to somebody else cost at a start, in memory and in bytes read
- requests for TrainJobs one after the other and 20 at once, from the API server's audit log
- CPU time of whole lives, from the create with its webhook to the deletion
- reviews at 50 per second, sent to the webhook as API servers do, and creates at 50 per second
- a start with 10,000 TrainJobs: until a new one has its JobSet, and what is written that nobody asked for

Ours alone: how long nobody leads after SIGTERM and after SIGKILL, and how late 1,000 TTLs of one minute are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import ssl
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import aiohttp

from bench import _plant
from bench._load import NAMESPACE, Load, percentile
from bench._managers import Operator, Trainer
from bench._operator_site import (
    CLIENTS,
    Site,
    await_jobset,
    fill,
    make_suspended,
    measure_lives,
    running_site,
    spread,
    submit_suspended,
)
from bench._report import Report
from bench._takeover import measure_takeover
from bench.retention import KUBE_KINDS, TRAIN_JOB, Expiring, collect, draw_ttls, make_finished
from tests.kube.cluster import KubeCluster
from tests.seam.proxy import Proxy
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, JOB_SETS, TRAIN_JOBS
from trainmaster.api.status import StatusError
from trainmaster.client.http import HttpClient
from trainmaster.operator.names import NAME

FOREIGN, FOREIGN_BYTES = 700, 200_000
PER_SECOND, REVIEWS = 50, 1000
ROUNDS = 3
"""Of lives and of reviews, on both sides; the best one counts, because whatever else the machine does only adds."""
ONE_BY_ONE, AT_ONCE = 10, 20
FEW, MANY = 1_000, 10_000
TTLS, TTL_SECONDS, TTL_AHEAD = 1_000, 60, 60
"""How many, over how many seconds they are due, and after how many the first."""
JOB_SET = next(kind for _, kind, _ in KUBE_KINDS if kind.gvr == JOB_SETS)


@dataclass
class Figures:
    """Of one side."""

    memory: dict[int, float] = field(default_factory=dict)
    """MB, by the number of TrainJobs."""
    foreign_memory: float = 0.0
    """MB more."""
    foreign_read: float = 0.0
    """MB more."""
    requests: dict[int, float] = field(default_factory=dict)
    """Per TrainJob, by how many at once."""
    cpu_ms: float = 0.0
    review_p99: float = 0.0
    create_p99: float = 0.0
    started_after: float = 0.0
    """Seconds."""
    writes_at_start: int = 0
    late: float = 0.0
    """Lateness p99 of TTLs in seconds."""


# ---- what both sides do ------------------------------------------------------------


async def measure_foreign(site: Site, figures: Figures) -> None:
    """Starts it twice: without and with the ConfigMaps of somebody else."""
    port = site.cluster.ports["kube-apiserver"]
    seen: list[tuple[float, float]] = []
    filler = "x" * FOREIGN_BYTES

    def make(number: int) -> Object:
        meta = {"name": f"foreign-{number}", "namespace": "foreign"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"content": filler}}

    site.cluster.kubectl("create", "namespace", "foreign")
    for is_full in (False, True):
        if is_full:
            make_one = partial(site.client.create, CONFIG_MAPS)
            await spread((partial(make_one, make(number), "foreign") for number in range(FOREIGN)), 4)
        async with Proxy(port).running() as proxy:
            await asyncio.to_thread(site.start, f"https://127.0.0.1:{proxy.port}")
            await site.rest()
            seen.append((site.read_memory(), proxy.received / 1e6))
            site.stop()
    (alone, read_alone), (full, read_full) = seen
    figures.foreign_memory, figures.foreign_read = full - alone, read_full - read_alone
    site.cluster.kubectl("delete", "namespace", "foreign", "--wait=false")
    site.say(f"{FOREIGN} foreign ConfigMaps: {full - alone:.1f} MB more, {read_full - read_alone:.2f} MB read")


async def measure_requests(site: Site, figures: Figures) -> None:
    load = Load(site.client)
    requests = site.watch_requests()
    for jobs, clients in ((ONE_BY_ONE, 1), (AT_ONCE, AT_ONCE)):
        requests.count()
        await load.drive(f"asked-{clients}", jobs, clients)
        await site.rest()
        found = requests.count()
        figures.requests[clients] = found.total() / jobs
        site.say(f"{found.total() / jobs:.2f} requests per TrainJob, {clients} at once: {dict(sorted(found.items()))}")


async def at_rate(count: int, work: Callable[[int], Awaitable[None]]) -> list[float]:
    """Milliseconds of each, begun at PER_SECOND whether or not the one before is over."""
    taken: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        await work(number)
        taken.append((time.perf_counter() - began) * 1000)

    begun, tasks = time.perf_counter(), []
    for number in range(count):
        await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number)))
    await asyncio.gather(*tasks)
    return taken


async def measure_webhook(site: Site, figures: Figures) -> None:
    """Reviews of new TrainJobs, to the address in the configuration."""
    url = find_webhook(site.cluster)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:

        async def review(number: int) -> None:
            async with session.post(url, json=make_review(number)) as answer:
                found = await answer.json(content_type=None)
            assert found["response"]["allowed"], found

        await at_rate(PER_SECOND, review)
        rounds = [await at_rate(REVIEWS, review) for _ in range(ROUNDS)]
    taken = min(rounds, key=lambda times: percentile(times, 0.99))
    figures.review_p99 = percentile(taken, 0.99)
    site.say(f"review p50 {statistics.median(taken):.1f}, p99 {figures.review_p99:.1f} ms at {PER_SECOND}/s")

    async def create(number: int) -> None:
        await submit_suspended(site.client, f"rate-{number}")

    taken = await at_rate(FEW // 2, create)
    figures.create_p99 = percentile(taken, 0.99)
    site.say(f"create p50 {statistics.median(taken):.1f}, p99 {figures.create_p99:.1f} ms at {PER_SECOND}/s")


def find_webhook(cluster: KubeCluster) -> str:
    listed = json.loads(cluster.kubectl("get", "validatingwebhookconfigurations", "-o", "json"))["items"]
    hooks = (hook for one in listed for hook in one["webhooks"] if not hook.get("namespaceSelector"))
    plurals = {rule["resources"][0]: hook["clientConfig"]["url"] for hook in hooks for rule in hook["rules"]}
    return str(plurals[TRAIN_JOBS.plural])


def make_review(number: int) -> Object:
    name = f"reviewed-{number}"
    request = {
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "kind": {"group": TRAIN_JOBS.group, "version": TRAIN_JOBS.version, "kind": "TrainJob"},
        "resource": {"group": TRAIN_JOBS.group, "version": TRAIN_JOBS.version, "resource": TRAIN_JOBS.plural},
        "name": name,
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": complete(make_suspended(name)),
        "oldObject": None,
        "dryRun": False,
        "options": {},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def complete(trainjob: Object) -> Object:
    """As the API server does with a new object, before it asks."""
    group = {"apiGroup": TRAIN_JOBS.group, "kind": "ClusterTrainingRuntime"}
    trainjob["spec"]["runtimeRef"] |= group
    trainjob["spec"].setdefault("managedBy", "trainer.kubeflow.org/trainjob-controller")
    return trainjob


async def measure_restart(site: Site, figures: Figures, standing: int) -> None:
    """A start is over when a TrainJob that could only then be created has its JobSet."""
    site.end()
    requests = site.watch_requests()
    name = "after-the-start"
    began = time.perf_counter()
    start = asyncio.create_task(asyncio.to_thread(site.start))
    await create_until_accepted(site.client, name)
    await await_jobset(site.client, name)
    figures.started_after = time.perf_counter() - began
    await start
    # All passes of the beginning are over then.
    await site.rest()
    found = requests.count_writes(beside=name)
    figures.writes_at_start = found.total()
    took = figures.started_after
    site.say(f"working {took:.2f} s after its start with {standing:,} TrainJobs; writes: {dict(found) or 'none'}")


async def create_until_accepted(client: HttpClient, name: str) -> None:
    """Until webhooks answer, the API server refuses it."""
    while True:
        try:
            await submit_suspended(client, name)
            return
        except StatusError as error:
            if error.code < 500:
                raise
            await asyncio.sleep(0.02)


async def measure_ttls(site: Site, kind: Expiring, prefix: str) -> float:
    """Lateness p99 in seconds of jobs that fall due spread over a minute."""
    ttls = draw_ttls(TTLS, TTL_AHEAD, TTL_SECONDS)
    gone = asyncio.create_task(collect(site.client, kind, prefix, TTLS))
    ended = datetime.now(UTC)

    async def make(number: int) -> None:
        await make_finished(site.client, kind, f"{prefix}-{number}", [ttls[number]], ended)

    await spread(partial(make, number) for number in range(TTLS))
    taken = (datetime.now(UTC) - ended).total_seconds()
    assert taken < TTL_AHEAD, f"the first was due after {TTL_AHEAD} s, and the last was made after {taken:.0f} s"
    late = percentile(await gone, 0.99) / 1000
    site.say(f"{TTLS:,} {kind.gvr.plural} with TTLs due within a minute: p99 {late:.2f} s late")
    return late


# ---- the run -------------------------------------------------------------------------


async def measure_both(site: Site, kind: Expiring, options: argparse.Namespace) -> Figures:
    """What both sides do. `kind`: what has a TTL there."""
    figures = Figures()
    await measure_foreign(site, figures)
    await asyncio.to_thread(site.start)
    await site.rest()
    figures.memory[0] = site.read_memory()
    site.say(f"{figures.memory[0]:.1f} MB idle")
    await Load(site.client).drive("warm", CLIENTS, CLIENTS)
    await measure_requests(site, figures)
    figures.cpu_ms = min([(await measure_lives(site, f"life-{number}"))[0] for number in range(ROUNDS)])
    await measure_webhook(site, figures)
    figures.late = await measure_ttls(site, kind, "due")
    for standing in (options.few, options.many):
        await fill(site, standing)
        figures.memory[standing] = site.read_memory()
    await measure_restart(site, figures, options.many)
    return figures


async def measure_theirs(options: argparse.Namespace) -> Figures:
    async with running_site(Trainer()) as site:
        return await measure_both(site, JOB_SET, options)


async def measure_ours(options: argparse.Namespace) -> tuple[Figures, dict[signal.Signals, float]]:
    """And for how many seconds nobody leads."""
    async with running_site(Operator()) as site:
        figures, taken = await measure_both(site, TRAIN_JOB, options), {}
        site.stop()
        hooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        site.cluster.kubectl("delete", hooks, NAME)
        for number in (signal.SIGTERM, signal.SIGKILL):
            taken[number] = await measure_takeover(site.cluster, site.client, number)
            site.say(f"the other one works {taken[number]:.2f} s after {number.name}")
        return figures, taken


def report_figures(ours: Figures, theirs: Figures, report: Report) -> None:
    check, other = report.check, Trainer.name
    for clients, promise in ((1, 3.0), (AT_ONCE, 3.5)):
        what = (
            f"requests per TrainJob, {clients} at once" if clients > 1 else "requests per TrainJob, one after the other"
        )
        check(what, ours.requests[clients], at_most=promise, anchor=f"{other} {theirs.requests[clients]:.2f}")
    anchor = f"{other} {theirs.cpu_ms:.1f} ms"
    check(
        "CPU of the operator per TrainJob, from create to deletion", ours.cpu_ms, at_most=5, unit=" ms", anchor=anchor
    )
    anchor = f"{other} {theirs.review_p99:.1f} ms; creates p99 {ours.create_p99:.1f} and {theirs.create_p99:.1f} ms"
    check(f"admission review p99 at {PER_SECOND}/s", ours.review_p99, at_most=15, unit=" ms", anchor=anchor)
    ratio = ours.review_p99 / theirs.review_p99
    check("admission review p99, compared with Trainer's", ratio, at_most=1, unit="x", anchor=anchor)
    for standing, promise in zip(sorted(ours.memory), (45, 60, 200), strict=True):
        what = f"memory of the operator with {standing:,} TrainJobs"
        anchor = f"{other} {theirs.memory[standing]:.0f} MB"
        check(what, ours.memory[standing], at_most=promise, unit=" MB", anchor=anchor)
        ratio = ours.memory[standing] / theirs.memory[standing]
        check(f"{what}, compared with Trainer's", ratio, at_most=1.5, unit="x", anchor=anchor)
    what = f"{FOREIGN} ConfigMaps of {FOREIGN_BYTES // 1000} KB of somebody else"
    anchor = f"{other} {theirs.foreign_memory:.0f} MB, {theirs.foreign_read:.0f} MB read"
    check(f"{what}: memory", ours.foreign_memory, at_most=5, unit=" MB", anchor=anchor)
    check(f"{what}: read", ours.foreign_read, at_most=1, unit=" MB", anchor=anchor)
    standing = max(ours.memory)
    anchor = f"{other} {theirs.started_after:.1f} s, {theirs.writes_at_start} writes"
    check(
        f"start of the operator with {standing:,} TrainJobs", ours.started_after, at_most=10, unit=" s", anchor=anchor
    )
    check("writes of its first passes", ours.writes_at_start, at_most=0, anchor=anchor)
    what = f"{TTLS:,} TTLs within a minute on a cluster, lateness p99"
    check(what, ours.late, at_most=1, unit=" s", anchor=f"JobSets' own {theirs.late:.1f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=FEW, help="TrainJobs that stay (default: %(default)s)")
    parser.add_argument("--many", type=int, default=MANY, help="TrainJobs that stay (default: %(default)s)")
    options = parser.parse_args()
    theirs = _plant.run(measure_theirs(options))
    ours, taken = _plant.run(measure_ours(options))
    report = Report()
    report_figures(ours, theirs, report)
    for number, promise in ((signal.SIGTERM, 3), (signal.SIGKILL, 20)):
        what = f"{number.name} of the leading operator until another one works"
        report.check(what, taken[number], at_most=promise, unit=" s", anchor="Lease of 15 s")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
