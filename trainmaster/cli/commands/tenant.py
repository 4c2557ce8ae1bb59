"""Manage users who share this installation: each has a namespace, a quota and a token, and cannot see those of others.

  trainmaster tenant add ann                     a namespace, and a token that is shown once
  trainmaster tenant add ann --jobs 20 --gpu 2   with a quota
  trainmaster tenant list                        all tenants, with their usage
  trainmaster tenant get ann                     one tenant, with its usage of every limit
  trainmaster tenant set ann --memory 64Gi       change a limit; `none` removes it
  trainmaster tenant invite --uses 5 --cpu 4     a code with which users sign up themselves (rest.sign_up)
  trainmaster tenant rotate ann                  a new token; earlier ones are revoked
  trainmaster tenant disable ann                 revoke all access; jobs continue
  trainmaster tenant delete ann --yes            with everything in the namespace

The token works with the REST API and with kubectl. The commands also work on a cluster (--kubeconfig).

Exit codes: 0 success, 1 refused, 2 invalid command line, 7 no such tenant or invitation.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TypeVar

from trainmaster.api.formats import quantity
from trainmaster.api.resources import NODES
from trainmaster.api.tenancy import Allowance, Tenant
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data, print_table
from trainmaster.cli.servers.connection import add_cluster, call, is_cluster
from trainmaster.cli.spans import parse_span
from trainmaster.client.contract import Client
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.ids import SystemIds
from trainmaster.tenancy import invitations
from trainmaster.tenancy.errors import TenantError
from trainmaster.tenancy.invitations import Invitation, Invitations
from trainmaster.tenancy.tenants import DEFAULT_LIFE, Issued, TenantRegister, check_walls

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = _add(commands, "add", "make a tenant and show its token", token=True)
    add_allowance(add)
    add.add_argument(
        "--without-walls", action="store_true", help="allow tenants although this machine cannot isolate their Pods"
    )
    _add(commands, "list", "all tenants", named=False)
    _add(commands, "get", "one tenant, with its use against every limit")
    change = _add(commands, "set", "change what a tenant may have; `none` lifts a limit")
    add_allowance(change, changing=True)
    invite = _add(commands, "invite", "make a code with which people become tenants by themselves", named=False)
    add_allowance(invite)
    invite.add_argument(
        "--uses", type=int, default=1, metavar="N", help="how many tenants can use the code (default 1)"
    )
    invite.add_argument("--lasts", default="", metavar="SPAN", help="how long the code is valid: 12h (default 7d)")
    _add(commands, "invitations", "those that are not used up", named=False)
    withdraw = _add(commands, "withdraw", "make an invitation void", named=False)
    withdraw.add_argument("id", metavar="ID", help="id as shown by `tenant invitations`")
    _add(commands, "rotate", "a new token; the old ones are void", token=True)
    _add(commands, "enable", "let a disabled tenant in again, with a new token", token=True)
    _add(commands, "disable", "take away tokens and rights; jobs go on")
    delete = _add(commands, "delete", "remove a tenant with everything in its namespace")
    delete.add_argument("--yes", action="store_true", help="delete; without it, only show what would be deleted")


def add_allowance(parser: argparse.ArgumentParser, *, changing: bool = False) -> None:
    """`changing`: the tenant exists and may already have limits."""
    usual = Allowance()
    for flag, metavar, text in (
        ("--jobs", "N", f"TrainJobs, and jobs of each v1 kind, at a time (default {usual.jobs})"),
        ("--cpu", "AMOUNT", "CPUs at a time, all its Pods together"),
        ("--memory", "AMOUNT", "memory at a time: 64Gi"),
        ("--gpu", "N", "GPUs at a time"),
        ("--pods", "N", f"Pods at a time (default {usual.pods})"),
        ("--pids", "N", f"processes and threads of all its Pods together (default {usual.pids})"),
        ("--objects", "N", f"objects of each kind; events twice as many (default {usual.objects})"),
        ("--object-bytes", "AMOUNT", f"all its objects together (default {usual.object_bytes})"),
        ("--storage", "AMOUNT", "on disk, all it keeps together: 200Gi"),
    ):
        shown = text.partition(" (default")[0] if changing else text
        kind = str if changing or metavar != "N" else int
        parser.add_argument(flag, type=kind, default=None, metavar=metavar, help=shown)


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
        parser.add_argument("name", metavar="NAME", help="name of the tenant and of its namespace")
    if token:
        parser.add_argument(
            "--lasts", default="", metavar="SPAN", help="how long the token is valid: 12h, 30d (default 90d)"
        )
    add_home(parser)
    add_cluster(parser)
    add_output(parser)
    return parser


def run(options: argparse.Namespace, context: CommandContext) -> int:
    actions: dict[str, Callable[[argparse.Namespace, CommandContext], int]] = {
        "add": _run_add,
        "list": _run_list,
        "get": _run_get,
        "set": _run_set,
        "invite": _run_invite,
        "invitations": _run_invitations,
        "withdraw": _run_withdraw,
        "rotate": _run_renewal,
        "enable": _run_renewal,
        "disable": _run_disable,
        "delete": _run_delete,
    }
    return actions[options.action](options, context)


def _do(context: CommandContext, options: argparse.Namespace, work: Callable[[TenantRegister], Awaitable[T]]) -> T:
    return _call(context, options, lambda client: work(TenantRegister(client, SystemClock())))


def _run_renewal(options: argparse.Namespace, context: CommandContext) -> int:
    life = _read_life(options)

    async def renew(tenants: TenantRegister) -> Issued:
        if options.action == "enable":
            return await tenants.enable(options.name, life=life)
        return await tenants.rotate(options.name, life=life)

    return _show_issued(options, context, _do(context, options, renew))


def _run_add(options: argparse.Namespace, context: CommandContext) -> int:
    allowance, life = _read_allowance(options), _read_life(options)

    async def add(client: Client) -> Issued:
        walled = not options.without_walls and not is_cluster(options)
        if walled:
            problem = check_walls((await client.list(NODES)).items)
            if problem:
                raise TenantError(problem)
        return await TenantRegister(client, SystemClock()).add(options.name, allowance, walled=walled, life=life)

    return _show_issued(options, context, _call(context, options, add))


_LEAST = {"jobs": 1, "gpu": 0, "pods": 1, "pids": 8, "objects": 10}


def _read_allowance(options: argparse.Namespace) -> Allowance:
    return Allowance(**_read_amounts(options))


def _read_amounts(options: argparse.Namespace) -> dict[str, Any]:
    """The given fields of an `Allowance`, validated. None removes the limit."""
    given: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("cpu", "memory", "object_bytes", "storage", *_LEAST)
        if getattr(options, name) is not None
    }
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if value == "none":
            given[name] = None
            continue
        if name in _LEAST:
            try:
                given[name] = value = int(value)
            except ValueError:
                raise exits.Failure(f"{flag} needs a whole number or none, not {value!r}", exits.USAGE) from None
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
    return given


def _read_life(options: argparse.Namespace) -> timedelta:
    if not options.lasts:
        return DEFAULT_LIFE
    try:
        return timedelta(seconds=parse_span(options.lasts))
    except ValueError as error:
        raise exits.Failure(f"--lasts: {error}", exits.USAGE) from None


def _show_issued(options: argparse.Namespace, context: CommandContext, issued: Issued) -> int:
    if options.output != "table":
        print_data(context, asdict(issued), options.output)
        return exits.OK
    context.say(issued.token)
    context.note(
        f"tenant {issued.tenant}, namespace {issued.namespace}; the token above is good until {issued.expires}"
    )
    context.note("it is not stored and cannot be shown again; `trainmaster tenant rotate` makes another one")
    return exits.OK


def _run_list(options: argparse.Namespace, context: CommandContext) -> int:
    found = _do(context, options, lambda tenants: tenants.list_all())
    if options.output != "table":
        print_data(context, [{**asdict(tenant), "state": tenant.state} for tenant in found], options.output)
    elif found:
        print_table(context, (*_COLUMNS, *(name.upper() for name in _SHOWN.values())), [_row(one) for one in found])
    else:
        context.note("there are no tenants; `trainmaster tenant add NAME` makes one")
    return exits.OK


_COLUMNS = ("NAME", "STATE", "TOKEN UNTIL", "UNIX USER", "CREATED")
_SHOWN = {
    "jobs": "jobs",
    "cpu": "cpu",
    "memory": "memory",
    "gpus": "gpus",
    "pods": "pods",
    "pids": "pids",
    "object_bytes": "object bytes",
    "storage": "storage",
}
"""Limits that have a column; `tenant get` shows all."""


def _row(tenant: Tenant) -> tuple[str, ...]:
    user = "none" if tenant.unix_user is None else str(tenant.unix_user)
    budgets = {budget.name: f"{budget.used}/{budget.allowed}" for budget in tenant.budgets}
    first = (tenant.name, tenant.state, max(tenant.tokens, default="none"), user, tenant.created)
    return (*first, *(budgets.get(name, "-") for name in _SHOWN))


def _run_get(options: argparse.Namespace, context: CommandContext) -> int:
    return _show_tenant(options, context, _do(context, options, lambda tenants: tenants.get(options.name)))


def _run_set(options: argparse.Namespace, context: CommandContext) -> int:
    changes = _read_amounts(options)
    if not changes:
        raise exits.Failure("nothing to change: name a limit, such as --memory 64Gi", exits.USAGE)
    return _show_tenant(options, context, _do(context, options, lambda tenants: tenants.change(options.name, changes)))


def _show_tenant(options: argparse.Namespace, context: CommandContext, tenant: Tenant) -> int:
    if options.output != "table":
        print_data(context, {**asdict(tenant), "state": tenant.state}, options.output)
        return exits.OK
    context.say(f"{tenant.name}: {tenant.state}, created {tenant.created}")
    rows = [(budget.name.replace("_", " "), budget.used, budget.allowed) for budget in tenant.budgets]
    print_table(context, ("LIMIT", "USED", "ALLOWED"), rows)
    return exits.OK


def _run_invite(options: argparse.Namespace, context: CommandContext) -> int:
    allowance, code = _read_allowance(options), SystemIds().token()
    life = _read_life(options) if options.lasts else invitations.DEFAULT_LIFE

    async def invite(client: Client) -> Invitation:
        return await Invitations(client, SystemClock()).invite(code, allowance, uses=options.uses, life=life)

    made = _call(context, options, invite)
    if options.output != "table":
        print_data(context, {"code": code, **asdict(made)}, options.output)
        return exits.OK
    context.say(code)
    context.note(f"good for {made.uses} sign-up{'s' if made.uses > 1 else ''} until {made.expires}; shown this once")
    return exits.OK


def _run_invitations(options: argparse.Namespace, context: CommandContext) -> int:
    found = _call(context, options, lambda client: Invitations(client, SystemClock()).list_all())
    if options.output != "table":
        print_data(context, [asdict(one) for one in found], options.output)
    elif found:
        print_table(context, ("ID", "USES LEFT", "UNTIL"), [(one.id, str(one.uses), one.expires) for one in found])
    else:
        context.note("nobody is invited; `trainmaster tenant invite` makes a code")
    return exits.OK


def _run_withdraw(options: argparse.Namespace, context: CommandContext) -> int:
    _call(context, options, lambda client: Invitations(client, SystemClock()).withdraw(options.id))
    context.note(f"invitation {options.id} is void")
    return exits.OK


def _call(context: CommandContext, options: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    try:
        return call(context, options, work)
    except TenantError as error:
        raise exits.Failure(str(error), exits.NOT_FOUND if error.kind == "missing" else exits.FAILED) from None


def _run_disable(options: argparse.Namespace, context: CommandContext) -> int:
    tenant = _do(context, options, lambda tenants: tenants.disable(options.name))
    if options.output != "table":
        print_data(context, {**asdict(tenant), "state": tenant.state}, options.output)
    else:
        context.note(f"tenant {options.name} may do nothing any more; its jobs go on")
        context.note(f"`trainmaster tenant enable {options.name}` lets it in again")
    return exits.OK


def _run_delete(options: argparse.Namespace, context: CommandContext) -> int:
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
