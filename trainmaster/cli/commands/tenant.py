"""People who share this installation: each gets a namespace, a quota and a token, and sees nobody else's.

  trainmaster tenant add ann                     a namespace, and a token that is shown once
  trainmaster tenant add ann --jobs 20 --gpu 2   with a quota
  trainmaster tenant list
  trainmaster tenant rotate ann                  a new token; the old ones are void at once
  trainmaster tenant disable ann                 may do nothing any more; jobs go on
  trainmaster tenant delete ann --yes            with all that is in the namespace

The token works with the REST API and with kubectl. On a cluster (--kubeconfig) a tenant is the same objects.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import TypeVar

from trainmaster.api import quantity
from trainmaster.api.resources import NODES
from trainmaster.api.tenancy import Allowance, Tenant
from trainmaster.cli import exits
from trainmaster.cli.context import Context, add_home, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.server import add_cluster, call, is_cluster
from trainmaster.cli.spans import parse_span
from trainmaster.client.contract import Client
from trainmaster.kit.clock import SystemClock
from trainmaster.tenancy.tenants import DEFAULT_LIFE, Issued, TenantError, Tenants, check_walls

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = _add(commands, "add", "make a tenant and show its token", token=True)
    add_allowance(add)
    add.add_argument(
        "--without-walls", action="store_true", help="also where Pods of tenants cannot be kept apart on this machine"
    )
    _add(commands, "list", "all tenants", named=False)
    _add(commands, "rotate", "a new token; the old ones are void", token=True)
    _add(commands, "enable", "let a disabled tenant in again, with a new token", token=True)
    _add(commands, "disable", "take away tokens and rights; jobs go on")
    delete = _add(commands, "delete", "remove a tenant with everything in its namespace")
    delete.add_argument("--yes", action="store_true", help="without it, only says what would go")


def add_allowance(parser: argparse.ArgumentParser) -> None:
    usual = Allowance()
    for flag, metavar, text in (
        ("--jobs", "N", f"TrainJobs at a time (default {usual.jobs})"),
        ("--cpu", "AMOUNT", "CPUs at a time, all its Pods together"),
        ("--memory", "AMOUNT", "memory at a time: 64Gi"),
        ("--gpu", "N", "GPUs at a time"),
        ("--pods", "N", f"Pods at a time (default {usual.pods})"),
        ("--pids", "N", f"processes and threads of all its Pods together (default {usual.pids})"),
        ("--objects", "N", f"objects of each kind; events twice as many (default {usual.objects})"),
        ("--object-bytes", "AMOUNT", f"all its objects together (default {usual.object_bytes})"),
        ("--storage", "AMOUNT", "on disk, all it keeps together: 200Gi"),
    ):
        parser.add_argument(flag, type=int if metavar == "N" else str, default=None, metavar=metavar, help=text)


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    *,
    named: bool = True,
    token: bool = False,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    if named:
        parser.add_argument("name", metavar="NAME", help="the tenant, which is also its namespace")
    if token:
        parser.add_argument("--lasts", default="", metavar="SPAN", help="life of the token: 12h, 30d (default 90d)")
    add_home(parser)
    add_cluster(parser)
    add_output(parser)
    return parser


def run(options: argparse.Namespace, context: Context) -> int:
    actions: dict[str, Callable[[argparse.Namespace, Context], int]] = {
        "add": _run_add,
        "list": _run_list,
        "rotate": _run_renewal,
        "enable": _run_renewal,
        "disable": _run_disable,
        "delete": _run_delete,
    }
    return actions[options.action](options, context)


def _do(context: Context, options: argparse.Namespace, work: Callable[[Tenants], Awaitable[T]]) -> T:
    try:
        return call(context, options, lambda client: work(Tenants(client, SystemClock())))
    except TenantError as error:
        raise exits.Failure(str(error)) from None


def _run_renewal(options: argparse.Namespace, context: Context) -> int:
    life = _read_life(options)

    async def renew(tenants: Tenants) -> Issued:
        if options.action == "enable":
            return await tenants.enable(options.name, life=life)
        return await tenants.rotate(options.name, life=life)

    return _show_issued(options, context, _do(context, options, renew))


def _run_add(options: argparse.Namespace, context: Context) -> int:
    allowance, life = _read_allowance(options), _read_life(options)

    async def add(client: Client) -> Issued:
        walled = not options.without_walls and not is_cluster(options)
        if walled:
            problem = check_walls((await client.list(NODES)).items)
            if problem:
                raise TenantError(problem)
        return await Tenants(client, SystemClock()).add(options.name, allowance, walled=walled, life=life)

    try:
        issued = call(context, options, add)
    except TenantError as error:
        raise exits.Failure(str(error)) from None
    return _show_issued(options, context, issued)


_LEAST = {"jobs": 1, "gpu": 0, "pods": 1, "pids": 8, "objects": 10}


def _read_allowance(options: argparse.Namespace) -> Allowance:
    given = {
        name: getattr(options, name)
        for name in ("cpu", "memory", "object_bytes", "storage", *_LEAST)
        if getattr(options, name) is not None
    }
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, int):
            if value < _LEAST[name]:
                raise exits.Failure(f"{flag} needs at least {_LEAST[name]}", exits.USAGE)
            continue
        try:
            if quantity.parse(value) <= 0:
                raise ValueError("must be more than 0")
        except ValueError as error:
            raise exits.Failure(f"{flag}: {value!r}: {error}", exits.USAGE) from None
    if "gpu" in given:
        given["gpus"] = given.pop("gpu")
    return Allowance(**given)


def _read_life(options: argparse.Namespace) -> timedelta:
    if not options.lasts:
        return DEFAULT_LIFE
    try:
        return timedelta(seconds=parse_span(options.lasts))
    except ValueError as error:
        raise exits.Failure(f"--lasts: {error}", exits.USAGE) from None


def _show_issued(options: argparse.Namespace, context: Context, issued: Issued) -> int:
    if options.output != "table":
        print_data(context, asdict(issued), options.output)
        return exits.OK
    context.say(issued.token)
    context.note(
        f"tenant {issued.tenant}, namespace {issued.namespace}; the token above is good until {issued.expires}"
    )
    context.note("it is not stored and cannot be shown again; `trainmaster tenant rotate` makes another one")
    return exits.OK


def _run_list(options: argparse.Namespace, context: Context) -> int:
    found = _do(context, options, lambda tenants: tenants.list_all())
    if options.output != "table":
        print_data(context, [{**asdict(tenant), "state": tenant.state} for tenant in found], options.output)
    elif found:
        print_table(context, ("NAME", "STATE", "TOKEN UNTIL", "UNIX USER", "CREATED"), [_row(one) for one in found])
    else:
        context.note("there are no tenants; `trainmaster tenant add NAME` makes one")
    return exits.OK


def _row(tenant: Tenant) -> tuple[str, ...]:
    user = "none" if tenant.unix_user is None else str(tenant.unix_user)
    return tenant.name, tenant.state, max(tenant.tokens, default="none"), user, tenant.created


def _run_disable(options: argparse.Namespace, context: Context) -> int:
    tenant = _do(context, options, lambda tenants: tenants.disable(options.name))
    if options.output != "table":
        print_data(context, {**asdict(tenant), "state": tenant.state}, options.output)
    else:
        context.note(f"tenant {options.name} may do nothing any more; its jobs go on")
        context.note(f"`trainmaster tenant enable {options.name}` lets it in again")
    return exits.OK


def _run_delete(options: argparse.Namespace, context: Context) -> int:
    if not options.yes:
        _do(context, options, lambda tenants: tenants.get(options.name))
        context.note(f"would delete namespace {options.name} with all jobs, volumes and settings; add --yes to do it")
        return exits.FAILED
    tenant = _do(context, options, lambda tenants: tenants.delete(options.name))
    if options.output != "table":
        print_data(context, {**asdict(tenant), "state": tenant.state}, options.output)
        return exits.OK
    context.note(f"tenant {options.name} is deleted; records of its jobs stay in the history")
    return exits.OK
