"""Run the TrainJob controller on a Kubernetes cluster, instead of Kubeflow Trainer's manager, in the foreground.

With --v1-jobs it also runs kinds of training-operator. With --companion, Kubeflow Trainer and training-operator still
run the jobs, and the operator only does retention (TTL, history limits, records).

The cluster needs the JobSet manager and the kinds that --print-manifests prints. Several operators can run; one is the
leader, the others wait. Ctrl-C or SIGTERM stops the operator; jobs on the cluster continue.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.client.kubeconfig import ConfigError, choose_config

if TYPE_CHECKING:
    from trainmaster.api.meta import Object
    from trainmaster.jobs.models.v1jobs import V1Job
    from trainmaster.operator.webhooks.serving import WebhookSettings

T = TypeVar("T")
_SYSTEM_NAMESPACE = "trainmaster-system"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="default: as kubectl; in a Pod, its service account"
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    parser.add_argument(
        "--namespace", default="", metavar="NAMES", help="only process these namespaces: a,b (default: all)"
    )
    parser.add_argument(
        "--lease-namespace",
        default=_SYSTEM_NAMESPACE,
        metavar="NAME",
        help="namespace of the leader's Lease (default: %(default)s)",
    )
    parser.add_argument("--no-lease", action="store_true", help="no leader election; only one operator may run then")
    parser.add_argument("--no-runtimes", action="store_true", help="do not install the shipped runtimes")
    parser.add_argument(
        "--companion",
        action="store_true",
        help="run alongside Kubeflow Trainer and training-operator: only TTL, history limits and records",
    )
    parser.add_argument(
        "--history",
        default="",
        metavar="DIR",
        help="directory for records of jobs; a job is deleted only after its record is stored",
    )
    parser.add_argument(
        "--progress-url",
        default="",
        metavar="URL",
        help="URL for progress reports of Pods (default: the Service of this operator if it runs in a Pod, else off)",
    )
    parser.add_argument(
        "--progress-port",
        type=_parse_port,
        default=10443,
        metavar="N",
        help="port for progress reports (default: %(default)s)",
    )
    parser.add_argument("--no-progress", action="store_true", help="do not give Pods an address to report progress to")
    _add_webhook_arguments(parser)
    parser.add_argument(
        "--v1-jobs",
        default="",
        metavar="KINDS",
        help="also run these kinds of kubeflow.org/v1, in place of training-operator: all, or pytorchjob,tfjob,...",
    )
    parser.add_argument(
        "--gang-scheduler-name",
        default="",
        metavar="NAME",
        help="create a PodGroup for each job of --v1-jobs: volcano, or the name of a scheduler with the coscheduling "
        "plugin",
    )
    parser.add_argument(
        "--metrics-port",
        type=_parse_port,
        default=0,
        metavar="N",
        help="port for GET /metrics over plain HTTP (default: none)",
    )
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-form", default="text", choices=("text", "json"))
    parser.add_argument(
        "--print-manifests", action="store_true", help="print the manifests for kubectl apply -f -, and exit"
    )


def _add_webhook_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--webhook-url",
        default="",
        metavar="URL",
        help="URL at which API servers reach the admission webhooks (default: the Service of this operator if it runs "
        "in a Pod, else off)",
    )
    parser.add_argument(
        "--webhook-port",
        type=_parse_port,
        default=9443,
        metavar="N",
        help="port for the webhooks (default: %(default)s)",
    )
    parser.add_argument(
        "--webhooks",
        action="store_true",
        help="with --print-manifests: also the webhook configurations, for an operator behind its Service, or at "
        "--webhook-url",
    )
    parser.add_argument("--no-webhook", action="store_true", help="do not serve admission webhooks")
    parser.add_argument(
        "--webhook-cert-dir",
        default="",
        metavar="DIR",
        help="directory with tls.crt and tls.key of the webhooks, kept current by cert-manager, for example (default: "
        "a certificate of our own in a Secret)",
    )
    parser.add_argument(
        "--webhook-client-ca",
        default="",
        metavar="FILE",
        help="only accept reviews from holders of a certificate of this CA (default: from whoever reaches the port)",
    )


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it must be a number up to 65535")
    return int(text)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.gang_scheduler_name and not options.v1_jobs:
        raise exits.Failure("--gang-scheduler-name is for the kinds that --v1-jobs names: name some", exits.USAGE)
    if options.print_manifests:
        context.say(json.dumps(_build_manifests(options), indent=1))
        return exits.OK
    if options.webhooks:
        raise exits.Failure("--webhooks is about what is printed: use it with --print-manifests", exits.USAGE)
    home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
    try:
        config = choose_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
    # Imported here, as in `up`, because the controllers would slow down every other command.
    from trainmaster.api.status import StatusError
    from trainmaster.engine import lease
    from trainmaster.operator import mode as operator

    settings = operator.OperatorSettings(
        namespaces=_read_namespaces(options),
        lease_namespace="" if options.no_lease else options.lease_namespace,
        runtimes=not options.no_runtimes,
        companion=options.companion,
        history=Path(options.history) if options.history else None,
        metrics_port=options.metrics_port,
        progress=_decide_progress(options, context, operator.ProgressSettings),
        webhooks=_decide_webhooks(options, context),
        v1_jobs=_read_v1_jobs(options),
        gang_scheduler=options.gang_scheduler_name,
    )
    context.note(f"operating on {config.server}")
    try:
        operator.run(config, settings, log_level=options.log_level, log_form=options.log_form)
    except OSError as error:
        raise exits.Failure(str(error)) from None
    except StatusError as error:
        raise exits.Failure(f"the cluster refused what the operator needs at its start: {error}") from None
    except lease.LeaseLost as error:
        raise exits.Failure(f"{error}; start it again to wait for the lease") from None
    return exits.OK


def _read_namespaces(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in options.namespace.split(",") if name.strip()))


def _build_manifests(options: argparse.Namespace) -> Object:
    from trainmaster.operator.manifests import build_manifests
    from trainmaster.operator.rights import Duties
    from trainmaster.operator.webhooks.configurations import WebhookPlan

    v1_jobs, namespaces = _read_v1_jobs(options), _read_namespaces(options)
    own = options.lease_namespace
    duties = Duties(options.companion, v1_jobs, namespaces, history=bool(options.history), own_namespace=own)
    if not options.webhooks:
        return build_manifests(duties)
    if options.companion or options.no_webhook:
        raise exits.Failure("--webhooks: a companion, and an operator with --no-webhook, serves none", exits.USAGE)
    _check_url("--webhook-url", options.webhook_url)
    plan = WebhookPlan(
        duties.user,
        namespace=own,
        url=options.webhook_url.rstrip("/"),
        namespaces=namespaces,
        v1_jobs=v1_jobs,
    )
    return build_manifests(duties, plan)


def _read_v1_jobs(options: argparse.Namespace) -> tuple[type[V1Job], ...]:
    from trainmaster.jobs.models.v1jobs import MODELS

    known = {model.framework.singular: model for model in MODELS}
    words = [word.strip().lower() for word in options.v1_jobs.split(",") if word.strip()]
    if words and options.companion:
        raise exits.Failure("--v1-jobs runs jobs, which a companion does not: leave out one of the two", exits.USAGE)
    if words == ["all"]:
        return MODELS
    unknown = [word for word in words if word not in known]
    if unknown:
        raise exits.Failure(f"--v1-jobs {unknown[0]}: it must be all, or some of {', '.join(known)}", exits.USAGE)
    return tuple(known[word] for word in words)


def _decide_progress(options: argparse.Namespace, context: CommandContext, make: Callable[..., T]) -> T | None:
    """Progress reports are on if Pods can reach this process: known if it runs in a Pod, otherwise set by a flag."""
    url, namespace = options.progress_url, options.lease_namespace
    if options.no_progress or options.companion:
        return None
    _check_url("--progress-url", url)
    if not url and _is_in_pod(options, context):
        from trainmaster.operator import manifests

        url = manifests.build_progress_url(namespace, options.progress_port)
    return make(url.rstrip("/"), namespace, port=options.progress_port) if url else None


def _decide_webhooks(options: argparse.Namespace, context: CommandContext) -> WebhookSettings | None:
    """Webhooks are on if API servers can reach this process, which is known as for progress reports."""
    from trainmaster.operator.rights import NAME
    from trainmaster.operator.webhooks.serving import WebhookSettings

    url, namespace = options.webhook_url, options.lease_namespace
    if options.no_webhook or options.companion:
        return None
    _check_url("--webhook-url", url)
    if not url and not _is_in_pod(options, context):
        return None
    service = f"{NAME}.{namespace}.svc"
    return WebhookSettings(
        namespace,
        (str(urlsplit(url).hostname),) if url else (service, f"{service}.cluster.local"),
        port=options.webhook_port,
        directory=Path(options.webhook_cert_dir) if options.webhook_cert_dir else None,
        client_ca=Path(options.webhook_client_ca) if options.webhook_client_ca else None,
    )


def _check_url(flag: str, url: str) -> None:
    if url and not (url.startswith("https://") and urlsplit(url).hostname):
        raise exits.Failure(f"{flag} {url}: it must be https://NAME:PORT", exits.USAGE)


def _is_in_pod(options: argparse.Namespace, context: CommandContext) -> bool:
    return bool(context.environ.get("KUBERNETES_SERVICE_HOST")) and not options.kubeconfig
