"""Open the dashboard in the browser: print a one-time link, and open it if this machine has a display.

The link is valid once, for two minutes, and logs the browser in as you. On a machine that you reached over SSH, the
`ssh -L` command that makes the dashboard reachable from your own machine is printed too. No server is started:
`trainmaster up --detach` does that.

  trainmaster dashboard                                  the server of your home
  trainmaster dashboard --read-only                      a login that can change nothing
  trainmaster dashboard --server https://train.example.org --kubeconfig ann.yaml
                                                         another server, with the token of that kubeconfig
"""

from __future__ import annotations

import argparse
import getpass
import html
import os
import shlex
import urllib.parse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from trainmaster.cli import exits
from trainmaster.cli.context import DATA_FORMS, CommandContext, add_home, add_output
from trainmaster.cli.output import print_data
from trainmaster.cli.servers.absent import explain_absent
from trainmaster.cli.servers.login_links import LoginLink, fetch_link
from trainmaster.client.kubeconfig import ClusterConfig, ConfigError, choose_config, load_kubeconfig

_PAGE = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Trainmaster</title>
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_home(parser)
    parser.add_argument("--server", default="", metavar="URL", help="https address of another REST API")
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="with your token for --server")
    parser.add_argument("--context", default="", metavar="NAME", help="context in that kubeconfig")
    parser.add_argument(
        "--ca", default="", metavar="FILE", help="CA of --server (default: also that of the kubeconfig)"
    )
    parser.add_argument("--read-only", action="store_true", help="the login can change nothing")
    parser.add_argument("--no-open", action="store_true", help="only print the link")
    add_output(parser, DATA_FORMS)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if (options.kubeconfig or options.context or options.ca) and not options.server:
        raise exits.Failure("--kubeconfig, --context and --ca belong to --server: name its address", exits.USAGE)
    if options.home and options.server:
        raise exits.Failure("--home and --server are two servers: give one", exits.USAGE)
    link = _ask_server(options, context) if options.server else _ask_home(options, context)
    if options.output != "table":
        print_data(context, asdict(link), options.output)
        return exits.OK
    context.say(link.url)
    context.note("valid once, for two minutes")
    if not options.server and (tunnel := build_tunnel(link.url, context.environ, getpass.getuser())):
        context.note(f"from your own machine, first: {tunnel}")
    elif not options.no_open and open_browser(link.url, context.environ):
        context.note("opening it in your browser")
    return exits.OK


def _ask_home(options: argparse.Namespace, context: CommandContext) -> LoginLink:
    home = context.home(options)
    info = home.find_running()
    if info is None or not info.kubeconfig:
        raise exits.Failure(explain_absent(home, options.home or ""), exits.NOT_RUNNING)
    if not info.dashboard:
        text = "this server has no dashboard: rest.enabled is off, or it is of an older version"
        raise exits.Failure(f"{text}; `trainmaster config` shows the settings, `trainmaster down` and `up` restart it")
    token = _read_token(_load([Path(info.kubeconfig)]), info.kubeconfig)
    ca = Path(info.rest["ca"]).read_text()
    return fetch_link(info.rest["url"], token, ca, info.dashboard["url"], read_only=options.read_only)


def _ask_server(options: argparse.Namespace, context: CommandContext) -> LoginLink:
    home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
    try:
        config = choose_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
    ca = config.ca_pem
    if options.ca:
        try:
            ca = Path(options.ca).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise exits.Failure(f"--ca {options.ca} cannot be read: {error}", exits.USAGE) from None
    server = options.server.rstrip("/")
    token = _read_token(config, options.kubeconfig or "the kubeconfig")
    return fetch_link(server, token, ca, f"{server}/ui/", read_only=options.read_only)


def _load(paths: list[Path]) -> ClusterConfig:
    try:
        return load_kubeconfig(paths)
    except ConfigError as error:
        raise exits.Failure(str(error)) from None


def _read_token(config: ClusterConfig, name: str) -> str:
    try:
        token = config.read_token()
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
    if not token:
        raise exits.Failure(f"{name} has no token, and the REST API knows callers by their tokens only")
    return token


def build_tunnel(url: str, environ: Mapping[str, str], user: str) -> str:
    """The command that makes a server on loopback reachable for whoever came over SSH; "" for others."""
    parts = environ.get("SSH_CONNECTION", "").split()
    address = urllib.parse.urlsplit(url)
    if len(parts) != 4 or address.hostname not in ("127.0.0.1", "::1", "localhost"):
        return ""
    host, port = parts[2], parts[3]
    forward = f"{address.port}:{address.netloc}"
    return shlex.join(["ssh", "-N", "-L", forward, *(("-p", port) if port != "22" else ()), f"{user}@{host}"])


def open_browser(url: str, environ: Mapping[str, str]) -> bool:
    """Whether a browser was started. The link is handed over in a private file: arguments of processes can be seen by
    everybody on the machine, and the link would be theirs if they were faster."""
    folder = environ.get("XDG_RUNTIME_DIR", "")
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")) or not folder:
        return False
    import webbrowser

    path = Path(folder, "trainmaster-dashboard.html")
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(_PAGE.format(url=html.escape(url)))
        return webbrowser.open(path.as_uri())
    except (OSError, webbrowser.Error):
        return False
