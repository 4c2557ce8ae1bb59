"""Show whether a server is running for this home, its address, and whether it is ready.

Exit codes: 0 ready, 3 no server is running, 4 it is running but not ready.
"""

from __future__ import annotations

import argparse
import http.client
import ssl
import urllib.parse
from dataclasses import asdict

from trainmaster.app.home.folder import Home, ServerInfo
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext, add_home, add_output
from trainmaster.cli.output import print_data
from trainmaster.cli.servers.absent import explain_absent
from trainmaster.store.damages import list_damages

_ANSWER_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    add_output(parser)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    home = context.home(options)
    info = home.find_running()
    if info is None:
        return _report_absent(options, context, home)
    problem = find_problem(info, home)
    data: dict[str, object] = {"running": True, "ready": not problem, **asdict(info)}
    if problem:
        data["problem"] = problem
    damages = list_damages(home.store)
    if damages:
        data["damages"] = [asdict(damage) for damage in damages]
    if options.output == "table":
        context.say(f"{'ready' if not problem else 'not ready: ' + problem}")
        for name in ("pid", "version", "home", "server", "kubeconfig", "started"):
            context.say(f"{name + ':':<12}{data[name]}")
        if info.rest:
            context.say(f"{'rest:':<12}{info.rest['url']}")
        if info.dashboard:
            context.say(f"{'dashboard:':<12}{info.dashboard['url']} (`trainmaster dashboard` opens it)")
        for damage in damages:
            context.say(f"{'damage:':<12}{damage.found}: {damage.describe()}")
    else:
        print_data(context, data, options.output)
    return exits.NOT_READY if problem else exits.OK


def _report_absent(options: argparse.Namespace, context: CommandContext, home: Home) -> int:
    if options.output == "table":
        context.say(explain_absent(home, options.home or ""))
    else:
        died = home.find_died()
        data = {"running": False, "ready": False, "home": str(home.root), **({"died": died.pid} if died else {})}
        print_data(context, data, options.output)
    return exits.NOT_RUNNING


def find_problem(info: ServerInfo, home: Home) -> str:
    """Why the server is not ready; "" if it is."""
    if not info.server:
        return "it is still starting"
    address = urllib.parse.urlsplit(info.server)
    try:
        context = ssl.create_default_context(cafile=str(home.pki / "ca.crt"))
        connection = http.client.HTTPSConnection(address.netloc, timeout=_ANSWER_SECONDS, context=context)
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            text = response.read().decode(errors="replace").strip()
            return "" if response.status == 200 else text or f"it answers {response.status}"
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"it does not answer at {info.server}: {error}"
