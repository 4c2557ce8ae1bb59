"""Remove a home, or only the data of finished jobs. Shows its plan and asks first.

  trainmaster purge                the home with its jobs, history and keys; your settings, templates and volumes stay
  trainmaster purge --everything   also those
  trainmaster purge --finished     only finished TrainJobs with records, logs and outputs; the server keeps running

It refuses to run while a server or Pods are running, unless --stop stops them first. Without a terminal it needs
--yes. Other files in the directory are never touched.

Exit codes: 0 success, 1 refused or not finished, 3 (--finished) no server is running, 5 a server is running.
"""

from __future__ import annotations

import argparse

from trainmaster.app.home.folder import AlreadyRunning, Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home
from trainmaster.cli.installation.removal import RemovalPlan, make_plan, remove
from trainmaster.cli.output import print_table
from trainmaster.cli.terminal import confirm
from trainmaster.node.shims.pod_directory import list_live


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--finished", action="store_true", help="only data of finished jobs")
    group.add_argument("--everything", action="store_true", help="also your settings, templates and volumes")
    parser.add_argument("--stop", action="store_true", help="stop all jobs and the server first")
    parser.add_argument("--dry-run", action="store_true", help="only show the plan")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="timeout in seconds for --stop (default 60)"
    )


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.finished:
        if options.stop:
            raise exits.Failure("--finished needs the running server: leave --stop out", exits.USAGE)
        # Imported here because removing a home needs neither the client nor the archive.
        from trainmaster.cli import purge_finished

        code = purge_finished.run(options, context)
        return code
    home = context.home(options)
    plan = make_plan(home, everything=options.everything)
    _show(context, home, plan)
    if options.dry_run or plan.is_empty:
        return exits.OK
    running = home.find_running()
    _check_alive(options, home, running)
    if not confirm(context, f"remove this from {home.root}?", yes=options.yes):
        return exits.FAILED
    if running is not None:
        _stop(options, context, home, running)
    remove(home, plan)
    left = " and the folder itself" if not home.root.exists() else ""
    context.say(f"removed {sum(part.goes for part in plan.parts)} parts of {home.root}{left}")
    context.note("a context in your own kubeconfig is not touched: `trainmaster kubeconfig --remove` takes it out")
    return exits.OK


def _check_alive(options: argparse.Namespace, home: Home, running: ServerInfo | None) -> None:
    """Failure if a server or Pods run in the home and --stop was not given, or they cannot be stopped."""
    if running is not None:
        if options.stop:
            return
        text = f"a server runs in {home.root} (pid {running.pid})"
        raise exits.Failure(f"{text}: `trainmaster purge --stop` stops its jobs and it first", exits.ALREADY_RUNNING)
    alive = list_live(home.pods)
    if alive:
        text = f"no server runs, and {len(alive)} Pods of {home.root} live on"
        raise exits.Failure(f"{text}: `trainmaster up --detach`, then `trainmaster purge --stop` stops them")


def _show(context: CommandContext, home: Home, plan: RemovalPlan) -> None:
    rows = [
        (part.name, "removed" if part.goes else "kept", _render(part.bytes), part.text)
        for part in plan.parts
        if part.text or not part.goes
    ]
    rows += [(name, "kept", "", "not ours") for name in plan.foreign]
    if plan.is_empty:
        context.say(f"there is nothing to remove in {home.root}")
    if rows:
        print_table(context, ("NAME", "PLAN", "SIZE", "WHAT"), rows)


def _stop(options: argparse.Namespace, context: CommandContext, home: Home, running: ServerInfo) -> None:
    if not running.kubeconfig:
        raise AlreadyRunning(running)
    from trainmaster.cli.servers.detached import stop_server
    from trainmaster.cli.stopping import stop_jobs

    stop_jobs(running, options.timeout, context)
    stop_server(home, running, options.timeout)
    context.say("stopped all jobs and the server")


def _render(size: int) -> str:
    for unit, limit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"
