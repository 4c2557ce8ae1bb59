"""List the nodes with the properties that manifests select by: instance type, architecture, OS, GPUs and capacity type.

  trainmaster nodes
  trainmaster nodes -o wide       also CPUs, memory, the GPU's product, zone, version and age

Works with the local server (this machine is its node) and with any cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import read_fields
from trainmaster.api.resources import NODES
from trainmaster.cli import exits, terminal
from trainmaster.cli.context import OBJECT_FORMS, CommandContext, add_home, add_output
from trainmaster.cli.jobs import list_near, show_age
from trainmaster.cli.output import print_objects, print_table
from trainmaster.cli.servers.connection import add_cluster, call
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.models.nodes import Node
from trainmaster.kit.clock import SystemClock

_INSTANCE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_CAPACITY = ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType", "cloud.google.com/gke-provisioning",
             "kubernetes.azure.com/scalesetpriority")  # fmt: skip
"""How the machine is paid for, as each of the large clouds labels it."""
_SPOT = "cloud.google.com/gke-spot"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE", help="only these nodes")
    parser.add_argument("-l", "--selector", default="", metavar="LABELS", help="only nodes with these labels")
    add_home(parser)
    add_cluster(parser)
    add_output(parser, OBJECT_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    async def work(client: Client) -> list[Object]:
        return (await client.list(NODES, "", ListOptions(options.selector))).items

    nodes = call(context, options, work)
    known = [node["metadata"]["name"] for node in nodes]
    for name in options.names:
        if name not in known:
            near = list_near(name, known)
            hint = f"; did you mean {' or '.join(near)}?" if near else ": `trainmaster nodes` lists them"
            raise exits.Failure(f'there is no node "{name}"{hint}', exits.NOT_FOUND)
    if options.names:
        nodes = [node for node in nodes if node["metadata"]["name"] in options.names]
    if options.output not in ("table", "wide"):
        print_objects(context, [(NODES, node) for node in nodes], options.output, single=len(options.names) == 1)
    elif not nodes:
        context.note("there are no nodes")
    else:
        _show(context, nodes, wide=options.output == "wide")
    return exits.OK


def _show(context: CommandContext, nodes: list[Object], *, wide: bool) -> None:
    header = ["NAME", "STATUS", "INSTANCE TYPE", "ARCH", "OS", "GPUS", "CAPACITY TYPE"]
    if wide:
        header += ["CPUS", "MEMORY", "GPU", "ZONE", "VERSION", "AGE"]
    now = SystemClock().now()
    print_table(context, header, [build_row(node, now, wide=wide) for node in nodes], styles={"STATUS": _style})
    for raw in nodes:
        if (drain := Node(raw).drain) is not None:
            context.note(f"node {raw['metadata']['name']} is {drain.describe()}: `trainmaster undrain` ends that")


def _style(word: str) -> str:
    return terminal.GOOD if word == "Ready" else terminal.BAD if word.startswith("NotReady") else terminal.WAIT


def build_row(raw: Fields, now: datetime, *, wide: bool = False) -> list[str]:
    node = Node(raw)
    labels, info = node.labels, read_fields(node.status, "nodeInfo")
    amounts = node.allocatable or node.capacity
    row = [
        node.name,
        describe_status(node),
        _first(labels, _INSTANCE),
        labels.get("kubernetes.io/arch") or info.get("architecture") or "-",
        labels.get("kubernetes.io/os") or info.get("operatingSystem") or "-",
        str(count_gpus(amounts)),
        find_capacity(labels),
    ]
    if wide:
        row += [
            str(amounts.get("cpu", "-")),
            show_memory(str(amounts.get("memory", ""))),
            labels.get("nvidia.com/gpu.product", "-"),
            _first(labels, _ZONE),
            info.get("kubeletVersion") or "-",
            show_age(node.created_at, now),
        ]
    return row


def describe_status(node: Node) -> str:
    word = "Ready" if node.is_true("Ready") else "NotReady"
    if node.drain is not None:
        return f"{word},Drained"
    return f"{word},SchedulingDisabled" if node.is_cordoned else word


def count_gpus(amounts: Mapping[str, str]) -> int:
    """Of all makers: nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915 and whole MIG slices."""
    found = 0
    for name, amount in amounts.items():
        maker, _, device = name.rpartition("/")
        if (
            maker
            and (device == "gpu" or device.startswith("mig-") or maker.startswith("gpu."))
            and str(amount).isdigit()
        ):
            found += int(amount)
    return found


def find_capacity(labels: Mapping[str, str]) -> str:
    if labels.get(_SPOT) == "true":
        return "spot"
    return _first(labels, _CAPACITY).lower().replace("_", "-")


def show_memory(text: str) -> str:
    """In GiB, as Kubernetes writes amounts: 65536Mi, 16Gi, 1234567Ki, or bytes."""
    units = {"Ki": 1 / 1024**2, "Mi": 1 / 1024, "Gi": 1.0, "Ti": 1024.0, "": 1 / 1024**3}
    number, unit = (text[:-2], text[-2:]) if text[-2:] in units else (text, "")
    return f"{float(number) * units[unit]:.1f}Gi" if number.isdigit() else text or "-"


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "-")
