"""Run the TrainJob controller on a Kubernetes cluster, instead of Kubeflow Trainer's manager, in the foreground.

With --v1-jobs it also runs kinds of training-operator. With --companion, Kubeflow Trainer and training-operator still
run the jobs, and the operator only does retention (TTL, history limits, records).

The cluster needs the JobSet manager, and what --print-manifests --without-deployment prints. Several operators can run;
one is the leader, the others wait. Ctrl-C or SIGTERM stops the operator; jobs on the cluster continue.

--print-manifests prints a whole installation, with an operator in Pods (docs/operator.md#install).

`trainmaster operator install` installs it in Pods instead, `upgrade` and `uninstall` change and remove that.

Flags override settings of the group [operator] (docs/settings.md), which has more of them; --config names the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.app.settings import Effective, SettingsError, load
from trainmaster.cli import exits
from trainmaster.cli.context import CommandContext
from trainmaster.cli.installation.cluster.flags import add_actions, run_action
from trainmaster.client.kubeconfig import ConfigError, choose_config

if TYPE_CHECKING:
    from trainmaster.api.meta import Object
    from trainmaster.operator.choices import OperatorChoices

# Flag -> (setting, placeholder, help). Flags of lists take `a,b`.
_TEXTS = {
    "--namespace": ("operator.namespaces", "NAMES", "only process these namespaces: a,b (default: all)"),
    "--lease-namespace": (
        "operator.lease_namespace",
        "NAME",
        "the operator's own namespace, with the leader's Lease (default: trainmaster-system)",
    ),
    "--instance": (
        "operator.instance",
        "NAME",
        "one of several installations on the cluster, each for other namespaces (--namespace)",
    ),
    "--history": (
        "operator.history",
        "DIR",
        "directory for records of jobs; a job is deleted only after its record is stored",
    ),
    "--progress-url": (
        "operator.progress_url",
        "URL",
        "URL for progress reports of Pods (default: the Service of this operator if it runs in a Pod, else off)",
    ),
    "--webhook-url": (
        "operator.webhook_url",
        "URL",
        "URL at which API servers reach the admission webhooks (default: the Service of this operator if it runs in a "
        "Pod, else off)",
    ),
    "--webhook-cert-dir": (
        "operator.webhook_cert_dir",
        "DIR",
        "directory with tls.crt and tls.key of the webhooks, kept current by cert-manager, for example (default: a "
        "certificate of our own in a Secret)",
    ),
    "--webhook-client-ca": (
        "operator.webhook_client_ca",
        "FILE",
        "only accept reviews from holders of a certificate of this CA (default: from whoever reaches the port)",
    ),
    "--v1-jobs": (
        "operator.v1_jobs",
        "KINDS",
        "also run these kinds of kubeflow.org/v1, in place of training-operator: all, or pytorchjob,tfjob,...",
    ),
    "--gang-scheduler-name": (
        "operator.gang_scheduler_name",
        "NAME",
        "create a PodGroup for each job of --v1-jobs: volcano, or the name of a scheduler with the coscheduling plugin",
    ),
    "--log-level": ("log.level", "LEVEL", "debug, info, warning or error (default: info)"),
    "--log-form": ("log.form", "FORM", "text or json (default: text)"),
}
_LISTS = ("operator.namespaces", "operator.v1_jobs")
_PORTS = {
    "--progress-port": ("operator.progress_port", "port for progress reports (default: 10443)"),
    "--webhook-port": ("operator.webhook_port", "port for the webhooks (default: 9443)"),
    "--health-port": ("operator.health_port", "port for /healthz and /readyz (default: 8081 in a Pod, else none)"),
    "--metrics-port": (
        "operator.metrics_port",
        "port for /metrics, over HTTPS, with a token of the cluster (default: 8443 in a Pod, else none)",
    ),
    "--records-port": (
        "operator.records_port",
        "port at which API servers read records of jobs, if there is a --history (default: 8444 in a Pod, else none)",
    ),
}
# Flag -> (setting, what it sets it to, help).
_SWITCHES = {
    "--no-lease": ("operator.leader_election", False, "no leader election; only one operator may run then"),
    "--no-runtimes": ("operator.runtimes", False, "do not install the shipped runtimes"),
    "--companion": (
        "operator.companion",
        True,
        "run alongside Kubeflow Trainer and training-operator: only TTL, history limits and records",
    ),
    "--no-progress": ("operator.progress", False, "do not give Pods an address to report progress to"),
    "--no-webhook": ("operator.webhooks", False, "do not serve admission webhooks"),
}

_PRINTED = ("--values", "--without-deployment", "--webhooks", "--records")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="default: as kubectl; in a Pod, its service account"
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: the current one)"
    )
    parser.add_argument("--config", default="", metavar="FILE", help="settings file (default: $TRAINMASTER_CONFIG)")
    for flag, (_, placeholder, text) in _TEXTS.items():
        parser.add_argument(flag, metavar=placeholder, help=text)
    for flag, (_, text) in _PORTS.items():
        parser.add_argument(flag, type=_parse_port, metavar="N", help=text)
    for flag, (_, _, text) in _SWITCHES.items():
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument(
        "--print-manifests",
        action="store_true",
        help="print all objects of an installation for kubectl apply -f -, and exit",
    )
    parser.add_argument(
        "--values", default="", metavar="FILE", help="with --print-manifests: values as for the chart (docs/values.md)"
    )
    parser.add_argument(
        "--without-deployment",
        action="store_true",
        help="with --print-manifests: only what an operator in the foreground needs, which are kinds and rights",
    )
    parser.add_argument(
        "--webhooks",
        action="store_true",
        help="with --without-deployment: also the webhook configurations, for an operator behind its Service, or at "
        "--webhook-url",
    )
    parser.add_argument(
        "--records",
        action="store_true",
        help="with --without-deployment and --history: also the API through which the cluster serves records, for an "
        "operator behind its Service",
    )
    add_actions(parser)


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it must be a number up to 65535")
    return int(text)


def run(options: argparse.Namespace, context: CommandContext) -> int:
    if options.action:
        return _run_action(options, context)
    # Imported here, as in `up`, because the controllers would slow down every other command.
    from trainmaster.operator.choices import OperatorChoices

    in_pod = bool(context.environ.get("KUBERNETES_SERVICE_HOST")) and not options.kubeconfig
    try:
        effective = load_settings(options, context)
        choices = OperatorChoices(effective, in_pod=in_pod)
    except SettingsError as error:
        if in_pod:
            _tell_cluster(context, str(error))
        raise exits.Failure(str(error), exits.USAGE) from None
    if options.print_manifests:
        context.say(json.dumps(_build_manifests(options, effective, choices), indent=1))
        return exits.OK
    for flag in _PRINTED:
        if _get(options, flag):
            raise exits.Failure(f"{flag} is about what is printed: use it with --print-manifests", exits.USAGE)
    _operate(options, context, effective, choices)
    return exits.OK


def _run_action(options: argparse.Namespace, context: CommandContext) -> int:
    for flag in (*_TEXTS, *_PORTS, *_SWITCHES, *_PRINTED, "--config", "--print-manifests"):
        if _get(options, flag):
            text = f"{flag} before {options.action} is for an operator in the foreground"
            raise exits.Failure(f"{text}: give values to {options.action} (docs/values.md)", exits.USAGE)
    return run_action(options, context)


def _tell_cluster(context: CommandContext, text: str) -> None:
    """An event about the Pod of this process, whose log nobody may read."""
    from trainmaster.client.kubeconfig import load_in_cluster
    from trainmaster.operator.mode import tell_refusal
    from trainmaster.operator.own_pod import find_own_pod

    pod = find_own_pod()
    try:
        config = load_in_cluster(context.environ)
    except ConfigError:
        return
    if pod is not None:
        tell_refusal(config, pod, text)


def load_settings(options: argparse.Namespace, context: CommandContext) -> Effective:
    """Raises SettingsError. Only a file that is named is read: the operator has no home."""
    named = options.config or context.environ.get("TRAINMASTER_CONFIG")
    file = Path(named).expanduser() if named else None
    return load(file, context.environ, _read_flags(options), file_required=True)


def _read_flags(options: argparse.Namespace) -> dict[str, tuple[str, object]]:
    """Of the settings that have one: the value that was given."""
    found: dict[str, tuple[str, object]] = {}
    for flag, (key, *_) in (*_TEXTS.items(), *_PORTS.items()):
        value = _get(options, flag)
        if value is not None:
            found[key] = (flag, _split(value) if key in _LISTS else value)
    for flag, (key, value, _) in _SWITCHES.items():
        if _get(options, flag):
            found[key] = (flag, value)
    return found


def _get(options: argparse.Namespace, flag: str) -> Any:
    return getattr(options, flag.lstrip("-").replace("-", "_"))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _operate(
    options: argparse.Namespace, context: CommandContext, effective: Effective, choices: OperatorChoices
) -> None:
    from trainmaster.api.status import StatusError
    from trainmaster.engine import lease
    from trainmaster.operator import mode as operator

    home = Path(context.environ["HOME"]) if context.environ.get("HOME") else None
    try:
        config = choose_config(path=options.kubeconfig, context=options.context, environ=context.environ, home=home)
    except ConfigError as error:
        raise exits.Failure(str(error)) from None
    context.note(f"operating on {config.server}")
    log = effective.settings.log
    try:
        operator.run(config, choices.build(), log_level=log.level, log_form=log.form)
    except OSError as error:
        raise exits.Failure(str(error)) from None
    except StatusError as error:
        raise exits.Failure(f"the cluster refused what the operator needs at its start: {error}") from None
    except lease.LeaseLost as error:
        raise exits.Failure(f"{error}; start it again to wait for the lease") from None


def _build_manifests(options: argparse.Namespace, effective: Effective, choices: OperatorChoices) -> Object:
    from trainmaster.cli.installation.cluster.values import read_values_file
    from trainmaster.operator.install import ValuesError, build_objects, read_values
    from trainmaster.operator.install.building import build_foreground_objects
    from trainmaster.operator.install.options import build_values
    from trainmaster.operator.manifests import wrap

    if options.webhooks and not choices.serves_webhooks:
        raise exits.Failure("--webhooks: a companion, and an operator with --no-webhook, serves none", exits.USAGE)
    if options.records and not choices.duties.records:
        raise exits.Failure("--records: there are only records with an archive: name one with --history", exits.USAGE)
    in_pods, namespace = not options.without_deployment, choices.duties.own_namespace
    try:
        given = read_values_file(Path(options.values)) if options.values else {}
        values = read_values(build_values(effective, given, in_pods=in_pods))
    except ValuesError as error:
        raise exits.Failure(str(error), exits.USAGE) from None
    if in_pods:
        return wrap(build_objects(values, namespace))
    url = choices.webhook_url
    chosen = {"webhooks": options.webhooks, "records": options.records}
    return wrap(build_foreground_objects(values, namespace, url=url, **chosen))
