"""Serve the REST API as a separate process, for a Kubernetes cluster or the server of a home, in the foreground.

`trainmaster up` already serves it; this is for clusters, and for homes where it should run as a separate process.
Requests use the caller's own token. Its own account needs permission to create TokenReviews, and access to ConfigMaps
and TrainJobs to clean up after crashes. TLS is always on: with an own CA, or with --tls-cert and --tls-key. Settings of
the groups `rest`, `dashboard` and `limits` come from the environment (such as TRAINMASTER_REST_MAX_NODES); flags
override them.
"""

from __future__ import annotations

import argparse
import ssl
from importlib import resources
from pathlib import Path

from trainmaster.api.tenancy import SYSTEM_NAMESPACE
from trainmaster.app.home.folder import HomeError, default_root
from trainmaster.app.settings import Effective, Rest, SettingsError, load
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.client.kubeconfig import ClusterConfig, ConfigError, choose_config, load_kubeconfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="default: as kubectl; in a Pod, its service account"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument("--home", default="", metavar="DIR", help="use the server of this home instead of a cluster")
    parser.add_argument("--address", default=None, help="IP address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=None, help="port to listen on (default 0: a free one, which is reused)"
    )
    parser.add_argument("--name", action="append", default=[], help="additional name for the certificate; repeatable")
    parser.add_argument(
        "--tls-cert", default="", metavar="FILE", help="certificate chain (default: issued by an own CA)"
    )
    parser.add_argument("--tls-key", default="", metavar="FILE", help="private key of the certificate")
    parser.add_argument(
        "--state",
        default="",
        metavar="DIR",
        help="directory for certificates and port (default: in the data directory)",
    )
    parser.add_argument(
        "--templates", default="", metavar="DIR", help="directory with templates that override the shipped ones"
    )
    parser.add_argument(
        "--write-templates", default="", metavar="DIR", help="write the shipped templates to this directory, and exit"
    )
    parser.add_argument("--history", default="", metavar="DIR", help="an operator's --history, for deleted jobs")
    parser.add_argument("--max-nodes", type=int, default=None, help=f"of one job (default {Rest().max_nodes})")
    parser.add_argument("--no-check-code", action="store_true", help="accept code that this Python cannot parse")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-form", default="text", choices=("text", "json"))


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.write_templates:
        return _write_templates(Path(options.write_templates), context)
    _check(options)
    effective = _read_settings(options, context)
    wanted = effective.settings
    config = _get_server(options, context)
    # Imported here because the web framework would slow down every other command.
    from trainmaster.operator import rest

    state = Path(options.state) if options.state else default_root(context.environ) / "rest"
    settings = rest.Options(
        state=state.expanduser().absolute(),
        rest=wanted.rest,
        dashboard=wanted.dashboard,
        logins_namespace=_choose_namespace(options, config),
        limits=wanted.limits,
        names=tuple(options.name),
        certificate=options.tls_cert,
        key=options.tls_key,
        templates=Path(options.templates) if options.templates else None,
        history=Path(options.history) if options.history else None,
        sources=effective.sources,
        home=context.home(options) if options.home else None,
    )

    def ready(url: str, ca: str) -> None:
        context.say(f"REST for {config.server} at {url}")
        if ca:
            context.say(f"ca: {ca}")

    try:
        rest.run(config, settings, ready, log_level=options.log_level, log_form=options.log_form)
    except (HomeError, OSError, ssl.SSLError) as error:
        raise exits.Failure(str(error)) from None
    return exits.OK


def _choose_namespace(options: argparse.Namespace, config: ClusterConfig) -> str:
    """For the Secret of logins: that of the home's own REST API, that of the Pod, or that of deploy/rest."""
    from trainmaster.operator.rest import DEFAULT_NAMESPACE

    if options.home:
        return SYSTEM_NAMESPACE
    return config.namespace if config.token_file else DEFAULT_NAMESPACE


def _write_templates(directory: Path, context: CommandContext) -> int:
    """Writes the templates that are missing. Existing files belong to the administrator and are kept."""
    shipped = Path(str(resources.files("trainmaster").joinpath("manifests")))
    for file in sorted(shipped.glob("*/*.yaml")):
        target = directory / file.parent.name / file.name
        if target.exists():
            context.note(f"{target} is there already and stays as it is")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        context.say(str(target))
    return exits.OK


def _check(options: argparse.Namespace) -> None:
    if bool(options.tls_cert) != bool(options.tls_key):
        raise exits.Failure("--tls-cert and --tls-key belong together: give both or none", exits.USAGE)
    if options.home and (options.kubeconfig or options.context):
        raise exits.Failure("--home is a server already: give it, or --kubeconfig and --context", exits.USAGE)
    if options.templates and not Path(options.templates).is_dir():
        raise exits.Failure(f"--templates {options.templates} is no folder", exits.USAGE)


def _read_settings(options: argparse.Namespace, context: CommandContext) -> Effective:
    """The settings from the environment, overridden by the flags."""
    given = {
        "rest.address": ("--address", options.address),
        "rest.port": ("--port", options.port),
        "rest.max_nodes": ("--max-nodes", options.max_nodes),
        "rest.check_code": ("--no-check-code", False if options.no_check_code else None),
    }
    flags = {key: (flag, value) for key, (flag, value) in given.items() if value is not None}
    try:
        return load(None, context.environ, flags)
    except SettingsError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


def _get_server(options: argparse.Namespace, context: CommandContext) -> ClusterConfig:
    home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
    try:
        if options.home:
            info = context.home(options).find_running()
            if info is None or not info.kubeconfig:
                text = (
                    f"no server runs in {options.home}: start it with `trainmaster up --detach --home {options.home}`"
                )
                raise exits.Failure(text, exits.NOT_RUNNING)
            return load_kubeconfig([Path(info.kubeconfig)])
        return choose_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
