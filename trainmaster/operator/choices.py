"""What the settings of an operator mean together: from the group `operator` to `OperatorSettings` and `Duties`.

Everything that contradicts something else is refused here, before anything is started. Defaults depend on whether the
process runs in a Pod: there, a Service leads to it and its network belongs to the Pod. Outside, nothing listens unless
it is asked for, and then on loopback.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from trainmaster.api.lifecycle.stalls import StallRules
from trainmaster.app.operator_options import OperatorOptions
from trainmaster.app.settings import Effective, SettingsError
from trainmaster.engine.lease import LeaseTimes
from trainmaster.jobs.models.v1jobs import MODELS, V1Job
from trainmaster.operator.addresses import build_progress_url
from trainmaster.operator.mode import OperatorSettings, ProgressSettings
from trainmaster.operator.monitoring.health import HealthSettings
from trainmaster.operator.monitoring.metrics_server import MetricsSettings
from trainmaster.operator.names import NAME, name_on_cluster
from trainmaster.operator.own_pod import find_own_pod
from trainmaster.operator.records.settings import RecordsSettings
from trainmaster.operator.rights import Duties
from trainmaster.operator.webhooks.serving import WebhookSettings

_LOOPBACK = "127.0.0.1"
_PORTS = ("progress_port", "webhook_port", "health_port", "metrics_port", "records_port")


class OperatorChoices:
    """One set of settings. Creating it raises SettingsError if they contradict one another."""

    def __init__(self, effective: Effective, *, in_pod: bool) -> None:
        self._options: OperatorOptions = effective.settings.operator
        self._sources = effective.sources
        self._stalls = effective.settings.stalls
        self._in_pod = in_pod
        self.v1_jobs = self._choose_v1_jobs()
        self._lease_times = self._choose_lease_times()
        self._check()

    @property
    def duties(self) -> Duties:
        """What decides about its rights."""
        options = self._options
        return Duties(
            options.companion,
            self.v1_jobs,
            self.namespaces,
            history=bool(options.history),
            records=self.serves_records,
            own_namespace=options.lease_namespace,
            instance=options.instance,
        )

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._options.namespaces))

    @property
    def webhook_url(self) -> str:
        """ "" if they are reached through the Service."""
        return self._options.webhook_url.rstrip("/")

    @property
    def serves_webhooks(self) -> bool:
        """If API servers can reach it."""
        return self._options.webhooks and not self._options.companion

    @property
    def serves_records(self) -> bool:
        """If API servers can reach it."""
        return bool(self._options.history and self._options.records_port)

    def build(self) -> OperatorSettings:
        options = self._options
        return OperatorSettings(
            namespaces=self.namespaces,
            lease_namespace=options.lease_namespace if options.leader_election else "",
            lease_times=self._lease_times,
            runtimes=options.runtimes,
            companion=options.companion,
            history=Path(options.history) if options.history else None,
            progress=self._choose_progress(),
            webhooks=self._choose_webhooks(),
            health=self._choose_health(),
            metrics=self._choose_metrics(),
            records=self._choose_records(),
            workers=options.workers,
            requests_per_second=options.requests_per_second,
            request_burst=options.request_burst,
            v1_jobs=self.v1_jobs,
            gang_scheduler=options.gang_scheduler_name,
            stalls=StallRules(self._stalls.seconds, self._stalls.phase_seconds, self._stalls.policy),
            pod=find_own_pod() if self._in_pod else None,
        )

    def _choose_v1_jobs(self) -> tuple[type[V1Job], ...]:
        known = {model.framework.singular: model for model in MODELS}
        words = [word.lower() for word in self._options.v1_jobs]
        if words == ["all"]:
            return MODELS
        unknown = [word for word in words if word not in known]
        if unknown:
            raise SettingsError(f"{self._name('v1_jobs')} {unknown[0]}: it must be all, or some of {', '.join(known)}")
        return tuple(known[word] for word in dict.fromkeys(words))

    def _choose_lease_times(self) -> LeaseTimes:
        options = self._options
        period = options.lease_retry_period
        try:
            return LeaseTimes(options.lease_duration, options.lease_renew_deadline, period, period / 2)
        except ValueError:
            raise SettingsError(
                f"{self._name('lease_duration')} {options.lease_duration}: it must be more than lease_renew_deadline "
                f"({options.lease_renew_deadline:g}) and twice lease_retry_period ({period:g}) together, or two "
                "operators could lead at the same time"
            ) from None

    def _check(self) -> None:
        options = self._options
        if options.companion and self.v1_jobs:
            text = f"{self._name('v1_jobs')} runs jobs, which a companion does not: leave out one of the two"
            raise SettingsError(text)
        if options.gang_scheduler_name and not self.v1_jobs:
            text = f"{self._name('gang_scheduler_name')} is for the kinds that {self._flag('v1_jobs')} names: name some"
            raise SettingsError(text)
        if options.instance and not options.namespaces:
            text = f"{self._name('instance')}: others run the jobs of other namespaces: name its own with namespaces"
            raise SettingsError(text)
        if not options.lease_namespace:
            raise SettingsError(
                f"{self._name('lease_namespace')} is empty: name the operator's own namespace; to run without leader "
                "election, set operator.leader_election to false (--no-lease)"
            )
        if options.metrics_cert_dir and not options.metrics_secure:
            text = "over plain HTTP metrics need no certificate: leave out metrics_cert_dir, or set metrics_secure"
            raise SettingsError(f"{self._name('metrics_cert_dir')}: {text}")
        port = "records_port"
        if not options.history and options.records_port and self._sources[f"operator.{port}"] != "default":
            text = f"there are only records with an archive: name its directory with {self._flag('history')}"
            raise SettingsError(f"{self._name(port)}: {text}")
        self._check_url("progress_url", options.progress_url)
        self._check_url("webhook_url", options.webhook_url)
        self._check_ports()

    def _check_url(self, key: str, url: str) -> None:
        if url and not (url.startswith("https://") and urlsplit(url).hostname):
            raise SettingsError(f"{self._name(key)} {url}: it must be https://NAME:PORT")

    def _check_ports(self) -> None:
        """Two that are the same cannot both be listened on, whichever of them are used."""
        seen: dict[int, str] = {}
        for key in _PORTS:
            port: int = getattr(self._options, key)
            if port and port in seen:
                raise SettingsError(f"{self._name(key)} {port}: {seen[port]} is the same; choose another one")
            seen[port] = key

    def _choose_progress(self) -> ProgressSettings | None:
        """On if Pods can reach this process: known if it runs in a Pod, otherwise set with the URL."""
        options = self._options
        url, namespace, port = options.progress_url, options.lease_namespace, options.progress_port
        if not options.progress or options.companion:
            return None
        if not url and self._in_pod:
            url = build_progress_url(namespace, port)
        return ProgressSettings(url.rstrip("/"), namespace, port=port) if url else None

    def _choose_webhooks(self) -> WebhookSettings | None:
        """On if API servers can reach this process, which is known as for progress reports."""
        options = self._options
        url, namespace = options.webhook_url, options.lease_namespace
        if not self.serves_webhooks or not (url or self._in_pod):
            return None
        return WebhookSettings(
            namespace,
            (str(urlsplit(url).hostname),) if url else self._list_service_names(),
            port=options.webhook_port,
            directory=_to_path(options.webhook_cert_dir),
            client_ca=_to_path(options.webhook_client_ca),
            configurations=name_on_cluster(NAME, options.instance),
        )

    def _choose_health(self) -> HealthSettings | None:
        port = self._choose_port("health_port")
        return HealthSettings(self._choose_host(self._options.health_address), port) if port else None

    def _choose_metrics(self) -> MetricsSettings | None:
        options, port = self._options, self._choose_port("metrics_port")
        if not port:
            return None
        host, directory = self._choose_host(options.metrics_address), _to_path(options.metrics_cert_dir)
        return MetricsSettings(host, port, secure=options.metrics_secure, directory=directory)

    def _choose_records(self) -> RecordsSettings | None:
        options, port = self._options, self._choose_port("records_port")
        if not port or not options.history:
            return None
        host, directory = self._choose_host(options.records_address), _to_path(options.records_cert_dir)
        return RecordsSettings(options.lease_namespace, self._list_service_names(), host, port, directory)

    def _list_service_names(self) -> tuple[str, ...]:
        service = f"{NAME}.{self._options.lease_namespace}.svc"
        return service, f"{service}.cluster.local"

    def _choose_port(self, key: str) -> int:
        """0: none. Outside a Pod nobody expects a port that was not asked for."""
        is_wanted = self._in_pod or self._sources[f"operator.{key}"] != "default"
        return int(getattr(self._options, key)) if is_wanted else 0

    def _choose_host(self, address: str) -> str:
        return address or ("" if self._in_pod else _LOOPBACK)

    def _name(self, key: str) -> str:
        """As the user wrote it: --v1-jobs, TRAINMASTER_OPERATOR_V1_JOBS, or operator.v1_jobs in the file."""
        kind, _, place = self._sources[f"operator.{key}"].partition(" ")
        if kind in ("flag", "environment"):
            return place
        return f"{place}: operator.{key}" if kind == "file" else f"operator.{key}"

    def _flag(self, key: str) -> str:
        """How somebody who wrote a flag would write another one; without flags, the setting."""
        is_flag = any(source.startswith("flag ") for name, source in self._sources.items() if name[:9] == "operator.")
        return f"--{key.replace('_', '-')}" if is_flag else f"operator.{key}"


def _to_path(text: str) -> Path | None:
    return Path(text) if text else None
