"""Show the current CPU, memory and GPU usage, per job and per rank.

CPU is in cores, followed by the percentage of the request (of the limit, if there is no request). The GPU column shows
the GPUs leased to the rank, with their utilization and used memory, read from the driver on this machine; on a cluster
only their number is known. `--watch` refreshes until Ctrl-C.

Exit codes: 0 success, 7 no such TrainJob, or it is not running.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from trainmaster.api.devices import list_shares
from trainmaster.api.pods.requests import GPU, count_requests
from trainmaster.api.resources import PODS
from trainmaster.api.status import StatusError
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import CommandContext, add_output
from trainmaster.cli.jobs import get_job
from trainmaster.cli.output import build_table, print_data
from trainmaster.cli.servers.connection import add_server, call, is_cluster
from trainmaster.cli.servers.flags import add_kind, read_job
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.kinds import TRAINING_KINDS, find_kind_and_place, get_kind_name, split_reference
from trainmaster.jobs.models.pods import Pod
from trainmaster.jobs.models.ranks import PodPlace
from trainmaster.jobs.models.training import TrainingJob
from trainmaster.jobs.usage import GpuUsage, PodMeasurement, measure_pods, read_share
from trainmaster.kit.clock import SystemClock
from trainmaster.node.devices.loads import list_gpu_usage, list_loads
from trainmaster.node.devices.reader import GpuReader

_HEADER = ("JOB", "RANK", "CPU", "MEMORY", "GPU", "POD")
_MEBI = 1 << 20
_CLEAR = "\x1b[H\x1b[J"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The usage of one running Pod of a job."""

    namespace: str
    job: str
    role: str
    """The name of the replicated job, such as `node` or `launcher`."""
    rank: int
    attempt: int
    pod: str
    cpu: float | None
    """In cores; None if not measured yet."""
    memory: int | None
    cpu_asked: float = 0.0
    memory_limit: int = 0
    gpus: tuple[GpuUsage, ...] = ()
    gpu_count: int = 0
    kind: str = "TrainJob"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        type=read_job,
        metavar="JOB",
        help="only these TrainJobs, or KIND/NAME (default: all running ones)",
    )
    add_kind(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="refresh until Ctrl-C")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="seconds between refreshes (default 2)"
    )
    add_server(parser, all_namespaces=True)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if not all(options.names):
        raise exits.Failure("the name of a TrainJob is empty: `trainmaster list` shows them", exits.USAGE)
    if not 0.2 <= options.interval <= 3600:
        raise exits.Failure("--interval must be between 0.2 and 3600 seconds", exits.USAGE)
    reader = None if is_cluster(options) else GpuReader()

    async def work(client: Client) -> int:
        for name in options.names if options.namespace else ():
            await get_job(client, options.namespace, name)
        shown = await look(client, options.namespace, options.names, reader)
        _show(options, context, shown)
        while options.watch:
            context.require_reader()
            await SystemClock().sleep(options.interval)
            shown = await look(client, options.namespace, options.names, reader)
            _show(options, context, shown)
        return _judge(options, context, shown)

    try:
        return call(context, options, work)
    finally:
        if reader is not None:
            reader.close()


async def look(client: Client, namespace: str, names: Sequence[str], reader: GpuReader | None) -> list[PodUsage]:
    """The usage of the jobs' Pods, sorted by job, attempt and rank."""
    found: list[tuple[Pod, str, tuple[type[TrainingJob], PodPlace], PodMeasurement | None]] = []
    wanted = [split_reference(name) for name in names]
    bare = ",".join(sorted({name for _, name in wanted}))
    for label in sorted({model.pod_label for model in TRAINING_KINDS.values()}):
        selector = ListOptions(label_selector=f"{label} in ({bare})" if names else label)
        pods = (await client.list(PODS, namespace, selector)).items
        running = [pod for pod in map(Pod, pods) if pod.is_running]
        measured = await _measure(client, namespace, selector) if running else {}
        for pod in running:
            placed = find_kind_and_place(pod.raw)
            if placed is not None and (not names or _is_wanted(placed[0], pod.labels[label], wanted)):
                found.append((pod, pod.labels[label], placed, measured.get((pod.namespace, pod.name))))
    has_gpus = reader is not None and any(list_shares(pod.raw) for pod, *_ in found)
    loads = list_loads(reader) if reader is not None and has_gpus else {}
    shown = [_build(pod, job, placed, use, list_gpu_usage(pod.raw, loads)) for pod, job, placed, use in found]
    return sorted(shown, key=lambda one: (one.namespace, one.job, one.kind, one.role, one.rank, one.pod))


def _is_wanted(model: type[TrainingJob], job: str, wanted: Sequence[tuple[type[TrainingJob] | None, str]]) -> bool:
    return any(kind in (None, model) and name == job for kind, name in wanted)


async def _measure(client: Client, namespace: str, selector: ListOptions) -> Mapping[tuple[str, str], PodMeasurement]:
    try:
        return await measure_pods(client, namespace, selector)
    except StatusError as error:
        if error.code not in (404, 503):
            raise
        text = "this server measures nothing: a cluster needs the metrics-server for it (`kubectl top pods` works then)"
        raise exits.Failure(text) from None


def _build(
    pod: Pod,
    job: str,
    placed: tuple[type[TrainingJob], PodPlace],
    use: PodMeasurement | None,
    gpus: tuple[GpuUsage, ...],
) -> PodUsage:
    (model, place), share = placed, read_share(pod)
    return PodUsage(
        namespace=pod.namespace,
        job=job,
        role=place.job,
        rank=place.index,
        attempt=place.attempt,
        pod=pod.name,
        cpu=None if use is None else use.cpu,
        memory=None if use is None else use.memory,
        cpu_asked=share.cpu,
        memory_limit=share.memory,
        gpus=gpus,
        gpu_count=len(gpus) or count_requests(pod.spec).get(GPU, 0),
        kind=get_kind_name(model),
    )


def _show(options: argparse.Namespace, context: CommandContext, shown: Sequence[PodUsage]) -> None:
    if options.output != "table":
        print_data(context, [asdict(one) for one in shown], options.output)
        return
    lines = build_table(context, *build_rows(shown, with_namespace=not options.namespace)) if shown else []
    if options.watch and terminal.is_terminal(context.out):
        context.out.write(_CLEAR)
        lines = lines or ["nothing runs"]
    elif options.watch:
        lines.append("")
    for line in lines:
        context.say(line)


def build_rows(shown: Sequence[PodUsage], *, with_namespace: bool = False) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Header and rows: one row per rank, and a total for jobs with several ranks."""
    rows: list[Sequence[str]] = []
    jobs: dict[tuple[str, str, str], list[PodUsage]] = {}
    for one in shown:
        jobs.setdefault((one.namespace, one.kind, one.job), []).append(one)
    with_kind = any(one.kind != "TrainJob" for one in shown)
    for (namespace, kind, name), ranks in jobs.items():
        head = (*((namespace,) if with_namespace else ()), *((kind,) if with_kind else ()))
        if len(ranks) > 1:
            rows.append((*head, name, "all", *_sum(ranks), f"{len(ranks)} Pods"))
        many = len({one.role for one in ranks}) > 1
        for one in ranks:
            rank = f"{one.role} {one.rank}" if many else str(one.rank)
            rows.append((*head, name, rank, *_describe(one), one.pod))
    return (*(("NAMESPACE",) if with_namespace else ()), *(("KIND",) if with_kind else ()), *_HEADER), rows


def _describe(one: PodUsage) -> Iterator[str]:
    yield _render_cpu(one.cpu, one.cpu_asked)
    yield _render_memory(one.memory, one.memory_limit)
    yield _render_gpus(one.gpus, one.gpu_count)


def _sum(ranks: Sequence[PodUsage]) -> Iterator[str]:
    known = [one for one in ranks if one.cpu is not None and one.memory is not None]
    yield _render_cpu(sum(one.cpu or 0 for one in known), sum(one.cpu_asked for one in ranks)) if known else _NONE
    limits = [one.memory_limit for one in ranks]
    yield _render_memory(sum(one.memory or 0 for one in known), sum(limits) if all(limits) else 0) if known else _NONE
    yield _render_gpus(tuple(gpu for one in ranks for gpu in one.gpus), sum(one.gpu_count for one in ranks))


def _render_cpu(cores: float | None, asked: float) -> str:
    if cores is None:
        return _NONE
    return f"{cores:.2f}" + (f" ({100 * cores / asked:.0f}%)" if asked else "")


def _render_memory(size: int | None, limit: int) -> str:
    if size is None:
        return _NONE
    text = f"{size / _MEBI:.0f}Mi" if size < 10240 * _MEBI else f"{size / _MEBI / 1024:.1f}Gi"
    return text + (f" ({100 * size / limit:.0f}%)" if limit else "")


def _render_gpus(gpus: Sequence[GpuUsage], count: int) -> str:
    if not count:
        return _NONE
    busy = [gpu.percent for gpu in gpus if gpu.percent is not None]
    memory = [gpu.memory_mib for gpu in gpus if gpu.memory_mib is not None]
    text = f"{count}"
    if busy:
        text += f" at {sum(busy) / len(busy):.0f}%"
    if memory:
        text += f", {sum(memory)}Mi"
    return text


def _is_shown(reference: str, shown: Sequence[PodUsage]) -> bool:
    model, name = split_reference(reference)
    return any(one.job == name and (model is None or one.kind == get_kind_name(model)) for one in shown)


def _judge(options: argparse.Namespace, context: CommandContext, shown: Sequence[PodUsage]) -> int:
    missing = [reference for reference in options.names if not _is_shown(reference, shown)]
    for name in missing:
        where = f" -n {options.namespace}" if options.namespace else ""
        context.note(f"trainmaster: nothing of {name} runs: `trainmaster explain {name}{where}` says why")
    if not shown and not options.names and options.output == "table":
        context.note("no TrainJob runs; `trainmaster explain` says why those that wait do")
    return exits.NOT_FOUND if missing else exits.OK
