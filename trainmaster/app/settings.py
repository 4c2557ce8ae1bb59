"""The settings: what each means, its default, and where an effective value came from.

Order: defaults, then the file (`config.toml` in the home, or --config), then the environment, then flags; the last one
wins. A key that does not exist is an error that names the nearest one, in the file and in the environment alike,
because a typing error that silently changes nothing is worse than a refusal. Only `app` reads the environment.

The groups are frozen dataclasses; a field's docstring is its documentation (docs/settings.md is made from it).
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainmaster.api.formats import quantity
from trainmaster.api.lifecycle.stalls import StallPolicy
from trainmaster.apiserver.http.limits import ApiLimits
from trainmaster.app.operator_options import OperatorOptions
from trainmaster.edge.addresses import parse_network
from trainmaster.kit.addresses import is_private
from trainmaster.shim.sandbox.egress import split_entry

PREFIX = "TRAINMASTER_"
# Variables that are read elsewhere: the home, the settings file, crash tests. They are not settings.
RESERVED = frozenset({"TRAINMASTER_HOME", "TRAINMASTER_CONFIG", "TRAINMASTER_FAILPOINTS"})
# What Kubernetes sets in Pods for each Service of their namespace: those of a Service `trainmaster-operator` begin as
# the settings of the operator do.
_SERVICE_LINK = re.compile(
    r"(.+?)_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]*[A-Za-z0-9_~-])+")
_SITE = re.compile(r"self|https?://(\*\.)?[A-Za-z0-9.-]+(:([0-9]{1,5}|\*))?")

Source = str
"""Where a value came from, as text: "default", "file PATH", "environment NAME", "flag --name"."""


class SettingsError(Exception):
    """A setting is unknown or invalid; the text is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the API server listens."""

    address: str = "127.0.0.1"
    """IP address to listen on. Loopback by default, so that the server is not exposed to a network by accident."""
    port: int = 0
    """TCP port; 0 chooses a free one at the first start and keeps it for this home."""
    names: tuple[str, ...] = ()
    """Additional host names and IP addresses for the server's certificate, besides localhost and the address above."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The REST API (docs/rest.md): its address, limits, sign-up and identity provider."""

    enabled: bool = True
    """Serve the REST API. Its code is loaded at the first connection, so it costs nothing while it is not used."""
    address: str = "127.0.0.1"
    """IP address to listen on. Loopback by default, as for the API server."""
    port: int = 0
    """TCP port; 0 chooses a free one at the first start and keeps it for this home."""
    base_path: str = ""
    """Prefix of all paths, such as /trainmaster, for a reverse proxy that keeps its prefix. Not needed for a proxy that
    removes it."""
    max_body_bytes: int = 2 * 1024 * 1024
    """Maximum size of a request body. Training code is stored in a ConfigMap, which has at most 1 MiB."""
    max_nodes: int = 1_000
    """Maximum number of nodes of one job."""
    requests_per_second: float = 50.0
    """Average request rate of each caller who is not an administrator; 0 is no limit."""
    request_burst: int = 200
    """How many of those requests may arrive at once."""
    sign_up: Literal["off", "invited", "open"] = "off"
    """Who may become a tenant without an administrator (docs/tenants.md): off, no one; invited, anyone with an
    invitation code; open, anyone who can reach the port. true and false mean open and off."""
    sign_ups_per_hour: int = 360
    """New tenants per hour who sign up without an invitation, from all addresses together."""
    sign_ups_per_hour_per_address: int = 20
    """Attempts to sign up per hour from one address (IPv6: one /64); half of them may arrive at once."""
    sign_up_tenants: int = 1_000
    """Maximum number of tenants who signed up themselves, including deleted ones whose records or files are left."""
    sign_up_cpu: str = "2"
    """CPUs of a tenant who signs up, as with `tenant add --cpu`. Empty: no limit; use that only for trusted users."""
    sign_up_memory: str = "4Gi"
    """Memory of a tenant who signs up. Empty: no limit."""
    sign_up_storage: str = "20Gi"
    """Storage of a tenant who signs up. Empty: no limit."""
    check_code: bool = True
    """Refuse training code that the server's Python cannot parse. Set it to false if jobs run on a newer Python."""
    oidc_issuer: str = ""
    """Also accept OpenID Connect tokens of this issuer, an https URL as in their `iss`. Empty: none."""
    oidc_audience: str = ""
    """The required `aud` of such a token: the client id of this API at your identity provider."""
    oidc_jwks: str = ""
    """The issuer's keys: an https URL or a file. Empty: the URL in the issuer's discovery document."""
    oidc_ca: str = ""
    """File with the CA of the issuer's certificate. Empty: the CAs that the machine trusts."""
    oidc_private_addresses: bool = False
    """Allow fetching the issuer's keys when its name resolves to a private or loopback address. A literal address in
    `oidc_issuer` or `oidc_jwks` (`https://10.0.0.7`, `http://localhost:8080`) is always allowed, a link-local one
    never. With false, the DNS of the issuer cannot direct the server to its own network."""
    oidc_user_claim: str = "sub"
    """Claim with the name of the user."""
    oidc_groups_claim: str = "groups"
    """Claim with the groups of the user, a string or a list of strings. Empty: no groups."""
    oidc_prefix: str = "oidc:"
    """Prefix of every such name and group, so that they cannot collide with other users and groups."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The web dashboard (docs/dashboard.md). It is a part of the REST API."""

    plain: bool = True
    """Serve it on a home also over plain HTTP, on 127.0.0.1 only, because browsers warn of the home's own certificates.
    Only one-time links open it there, no tokens. `trainmaster rest` never does."""
    port: int = 0
    """TCP port for that; 0 chooses a free one at the first start and keeps it for this home."""
    read_only: bool = False
    """Logins of the dashboard may change nothing, whatever the roles of the caller."""
    frame_ancestors: tuple[str, ...] = ()
    """Sites that may show the dashboard in a frame: https://portal.example.org, or self. Empty: none."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The SQLite file with all objects."""

    synchronous: Literal["full", "normal"] = "full"
    """full: acknowledged writes survive a power cut. normal: a power cut may lose the last milliseconds."""
    commit: Literal["auto", "inline", "thread"] = "auto"
    """Where commits run: in the event loop (inline) or in a thread; auto decides by the measured speed of the disk."""
    window_events: int = 8_192
    """Events kept per kind for watches that resume; a watch from an older revision gets 410 and has to list again."""
    window_bytes: int = 16 * 1024 * 1024
    """The same limit in bytes; the oldest events are dropped when either limit is reached."""
    reserve_mib: int = 16
    """MiB reserved inside the database for when the disk is full, so that deletes, status updates and evictions still
    work. With less than this free (on a small disk, a 32nd of it), writes of users that add data get 507. 0: off."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit log of writes: who changed what and when, and the response."""

    enabled: bool = True
    """Write logs/audit.log in the home, one JSON object per line, without request bodies."""
    max_bytes: int = 16 * 1024 * 1024
    """Size at which the file is rotated."""
    keep: int = 3
    """Number of rotated files to keep."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The server's log on standard error, or with --detach in logs/server.log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the lines that are written."""
    form: Literal["text", "json"] = "text"
    """Format of the lines: text, or json with one object per line."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The control-plane process itself."""

    uvloop: bool = True
    """Use uvloop, a faster event loop, if it is installed."""
    workloads: bool = True
    """Run the controllers and the node. false: only an API server, which stores jobs but does not run them."""
    stop_seconds: float = 20.0
    """How long a server may take to shut down before it exits anyway."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Pods as processes on this machine, and the resources for them (docs/scheduling.md)."""

    isolation: Literal["auto", "full", "user", "plain"] = "auto"
    """How Pods are isolated from the machine and from each other; auto uses the best level that works here.
    `trainmaster doctor` shows which one that is and why; see docs/isolation.md."""
    egress: bool = True
    """Let Pods that have their own network connect to other hosts through a proxy (pip, git, downloads)."""
    proxy: str = ""
    """The proxy that this machine itself has to use, `http://host:port`; empty for none."""
    tenant_egress: Literal["internet", "none", "all"] = "internet"
    """What Pods of tenants can reach through the proxy: internet, only public addresses; none, nothing; all, also the
    local network. This machine's own addresses are never included. Does not apply to the owner's Pods."""
    tenant_egress_allow: tuple[str, ...] = ()
    """Exceptions that Pods of tenants can reach, for example a local package index or object store: host:port,
    address:port, address or network (10.1.0.0/16)."""
    tenant_write_mib: int = 64
    """What all Pods of one tenant together may write to the disk, in MiB per second; 0: no limit. Faster writers are
    frozen for moments, because on a busy disk the writes of everyone wait. Needs control groups."""
    restart_seconds: float = 1.0
    """Back-off before a container is restarted in place (restartPolicy Always, OnFailure) for the second time; it
    doubles with each restart. The first restart is immediate; ten minutes of running reset it. Kubelet: 10."""
    restart_max_seconds: float = 60.0
    """Maximum of that back-off. Kubelet: 300."""
    host_paths: bool = True
    """Let Pods mount paths of this machine (hostPath volumes, and PersistentVolumes with a hostPath)."""
    model_caches: tuple[str, ...] = ("huggingface/hub", "torch/hub/checkpoints", "whisper")
    """Directories in your cache directory (`~/.cache`; HF_HOME, HF_HUB_CACHE and TORCH_HOME of the server are followed)
    whose files your own jobs can read, never tenants'. Tokens and code are left out. None: an empty list. See
    docs/volumes.md."""
    packages_mib: int = 16384
    """Disk space for the installation of one environment (annotation trainmaster.dev/packages), including downloads,
    in MiB. The largest frameworks need a third of the default."""
    warm: Literal["off", "auto"] = "auto"
    """auto: in environments with torch, Python programs are forked from an interpreter that has already imported what
    earlier programs needed, which takes milliseconds instead of seconds; see docs/warm-start.md. A Pod's annotation
    trainmaster.dev/warm overrides it."""
    warm_mib: int = 0
    """Memory for these interpreters, in MiB; 0: a sixteenth of the machine's memory, and none on machines with less
    than 3 GiB."""
    cpus: float = 0.0
    """CPUs for all jobs together; 0: all that this process may use."""
    overcommit: float = 1.0
    """How many CPUs jobs may request for each that there is. With 2, jobs that request twice as many run at the same
    time and share them, so they are slower (docs/scheduling.md). Memory and GPUs are never shared; limits of containers
    and quotas of tenants do not change."""
    memory_mib: int = 0
    """Memory for all jobs together, in MiB; 0: all of it."""
    gpus: int = 0
    """Number of GPUs to declare; 0: the detected ones. Declare more only on a machine without any, for tests."""
    pods: int = 1000
    """Maximum number of Pods that run at the same time."""
    min_free_disk_mib: int = 1024
    """If less than this is free on the home's disk (on a small disk, a tenth of it), no new Pods are started, and Pods
    that used up the space are evicted: those over their own limit first, then tenants', the owner's last."""
    labels: tuple[str, ...] = ()
    """Labels of the Node, key=value, in addition to the detected ones, which they override."""


@dataclass(frozen=True, slots=True)
class History:
    """Records of finished jobs; see `trainmaster history`."""

    keep_days: float = 365.0
    """How many days the record and the logs of a deleted job are kept."""
    max_bytes: int = 20 * 1024 * 1024 * 1024
    """Maximum size of all of them; above it, the records of the oldest deleted jobs are removed."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Defaults of the Job controller, and what is reported of jobs. The restarts of gangs have their own rules
    (docs/jobset.md)."""

    replacement_seconds: float = 10.0
    """Back-off before a failed Pod is replaced; doubled by each further failure, reset by a success. As upstream."""
    replacement_max_seconds: float = 600.0
    """Maximum of that back-off."""
    idle_gpu_minutes: float = 30.0
    """Report a job whose GPUs have all done nothing for this long, in minutes; 0 never does."""


@dataclass(frozen=True, slots=True)
class ProgressOptions:
    """Progress reports of training programs; see docs/progress.md."""

    enabled: bool = True
    """Set the variables for progress reports in the trainer's containers (KUBEFLOW_TRAINER_SERVER_URL and two more).
    This is upstream's feature gate TrainJobStatus, which is off there."""


@dataclass(frozen=True, slots=True)
class StallOptions:
    """When a running TrainJob counts as stalled, and what happens then; see docs/stalls.md. Also for the operator."""

    seconds: float = 300.0
    """How long steps may stand still at least. The bound of a job is twice the longest time that one of its steps took,
    if that is more. A job that never reported a step is stalled after this time without output and use."""
    phase_seconds: float = 1800.0
    """The same for what is expected to take long: a phase that the program reports, such as evaluation, the first step,
    and the time after the last one."""
    policy: StallPolicy = "observe"
    """What happens to a stalled job: observe, it is only reported; restart, it starts again from its last complete
    checkpoint, at most maxRestarts times without progress; fail. The annotation trainmaster.dev/on-stall overrides
    it."""


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    rest: Rest = field(default_factory=Rest)
    dashboard: Dashboard = field(default_factory=Dashboard)
    storage: Storage = field(default_factory=Storage)
    limits: ApiLimits = field(default_factory=ApiLimits)
    audit: Audit = field(default_factory=Audit)
    log: LogSettings = field(default_factory=LogSettings)
    process: ProcessSettings = field(default_factory=ProcessSettings)
    node: NodeOptions = field(default_factory=NodeOptions)
    history: History = field(default_factory=History)
    jobs: JobSettings = field(default_factory=JobSettings)
    progress: ProgressOptions = field(default_factory=ProgressOptions)
    stalls: StallOptions = field(default_factory=StallOptions)
    operator: OperatorOptions = field(default_factory=OperatorOptions)


@dataclass(frozen=True, slots=True)
class Effective:
    settings: Settings
    sources: Mapping[str, Source]
    """ "group.field" -> source of its value."""


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One effective setting, for people and programs."""

    key: str
    value: object
    """A list for several texts."""
    default: object
    source: Source


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of one group, with what loading needs."""

    key: str
    group: type[Any]
    default: object

    @property
    def type(self) -> Any:
        """Evaluated when it is asked for: that takes longer than all else here, and few settings are ever set."""
        return typing.get_type_hints(self.group)[self.key.partition(".")[2]]

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace(".", "_").upper()


# 0 has a special meaning for these.
_MAY_BE_ZERO = frozenset(
    {
        "storage.reserve_mib",
        "server.port",
        "rest.port",
        "dashboard.port",
        "rest.requests_per_second",
        "limits.requests_per_second",
        "limits.loop_share",
        "node.tenant_write_mib",
        "node.warm_mib",
        "node.cpus",
        "node.memory_mib",
        "node.gpus",
        "operator.health_port",
        "operator.metrics_port",
        "operator.records_port",
        "operator.requests_per_second",
    }
)
# Smaller limits would refuse writes of the server itself.
_MINIMA = {"limits.object_bytes": 64 * 1024, "limits.object_values": 10_000, "node.overcommit": 1}
# json_depth: the JSON writer cannot write deeper objects.
_MAXIMA = {
    "server.port": 65535,
    "rest.port": 65535,
    "dashboard.port": 65535,
    "limits.json_depth": 200,
    "node.overcommit": 100,
    **{f"operator.{name}_port": 65535 for name in ("progress", "webhook", "health", "metrics")},
}


# Values that earlier versions accepted.
_ALIASES = {
    "rest.sign_up": {"true": "open", "1": "open", "yes": "open", "false": "off", "0": "off", "no": "off"},
}


def list_settings() -> dict[str, Setting]:
    """Every setting by its key, "group.field", in order."""
    found = {}
    base = Settings()
    for group in dataclasses.fields(base):
        defaults = getattr(base, group.name)
        for item in dataclasses.fields(defaults):
            key = f"{group.name}.{item.name}"
            found[key] = Setting(key, type(defaults), getattr(defaults, item.name))
    return found


def list_values(effective: Effective) -> list[SettingValue]:
    """All settings, in order."""
    found = []
    for key, setting in list_settings().items():
        group, _, name = key.partition(".")
        values = getattr(getattr(effective.settings, group), name), setting.default
        value, default = (list(one) if isinstance(one, tuple) else one for one in values)
        found.append(SettingValue(key, value, default, effective.sources.get(key, "default")))
    return found


def load(
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, tuple[str, object]],
    *,
    file_required: bool = False,
) -> Effective:
    """The effective settings. `flags` maps keys to (flag name, value). SettingsError for anything unknown or wrong."""
    known = list_settings()
    values: dict[str, object] = {}
    sources: dict[str, Source] = dict.fromkeys(known, "default")

    def put(key: str, value: object, source: Source) -> None:
        values[key] = check_value(known[key], value, source)
        sources[key] = source

    for key, value in read_file(file, known, required=file_required).items():
        put(key, value, f"file {file}")
    for key, text in read_environment(environ, known).items():
        put(key, parse_text(known[key], text, known[key].variable), f"environment {known[key].variable}")
    for key, (flag, value) in flags.items():
        put(key, value, f"flag {flag}")
    groups: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        group, _, name = key.partition(".")
        groups.setdefault(group, {})[name] = value
    base = Settings()
    changed = {group: dataclasses.replace(getattr(base, group), **fields) for group, fields in groups.items()}
    settings = dataclasses.replace(base, **changed)
    _check_oidc(settings.rest)
    _check_amounts(settings.rest)
    _check_pages(settings)
    _check_proxies(settings.limits.trusted_proxies)
    _check_opened(settings.node.tenant_egress_allow)
    _check_caches(settings.node.model_caches)
    return Effective(settings, sources)


def _check_oidc(rest: Rest) -> None:
    """Refuses OIDC settings that would accept no users, or too many."""
    if not rest.oidc_issuer:
        if rest.oidc_audience or rest.oidc_jwks or rest.oidc_ca:
            raise SettingsError("rest.oidc_audience, oidc_jwks and oidc_ca say nothing without rest.oidc_issuer")
        return
    if not rest.oidc_audience:
        text = "rest.oidc_issuer needs rest.oidc_audience, else tokens that are meant for other programs would do"
        raise SettingsError(text)
    if not rest.oidc_user_claim:
        raise SettingsError("rest.oidc_user_claim is empty: name the claim with the user's name, such as sub or email")
    for key in ("oidc_issuer", "oidc_jwks"):
        address = getattr(rest, key)
        if (key == "oidc_issuer" or "://" in address) and not is_private(address):
            raise SettingsError(f"rest.{key} must be an https address (http only to this machine), not {address!r}")
    for key in ("oidc_jwks", "oidc_ca"):
        path = getattr(rest, key)
        if path and "://" not in path and not Path(path).is_file():
            raise SettingsError(f"rest.{key}: there is no file {path}")


def _check_amounts(rest: Rest) -> None:
    for key in ("sign_up_cpu", "sign_up_memory", "sign_up_storage"):
        text = getattr(rest, key)
        try:
            if text and quantity.parse(text) <= 0:
                raise ValueError
        except ValueError:
            raise SettingsError(f"rest.{key} must be an amount such as 4 or 16Gi, not {text!r}") from None


def _check_pages(settings: Settings) -> None:
    base = settings.rest.base_path
    if base and not _BASE_PATH.fullmatch(base):
        raise SettingsError(
            f"rest.base_path must be a path such as /trainmaster, without a slash at its end, not {base!r}"
        )
    for site in settings.dashboard.frame_ancestors:
        if not _SITE.fullmatch(site):
            raise SettingsError(
                f"dashboard.frame_ancestors must name sites such as https://portal.example.org, or self, not {site!r}"
            )


def _check_proxies(proxies: tuple[str, ...]) -> None:
    for text in proxies:
        try:
            parse_network(text)
        except ValueError:
            raise SettingsError(
                f"limits.trusted_proxies must name addresses or networks such as 10.0.0.0/8, not {text!r}"
            ) from None


def _check_caches(places: tuple[str, ...]) -> None:
    for place in places:
        if place != os.path.normpath(place) or place.startswith(("/", "..")) or place == ".":
            raise SettingsError(
                f"node.model_caches: {place!r} must be a path below your cache directory, such as huggingface/hub"
            )


def _check_opened(entries: tuple[str, ...]) -> None:
    for text in entries:
        try:
            split_entry(text)
        except ValueError as error:
            raise SettingsError(f"node.tenant_egress_allow: {error}") from None


def read_file(file: Path | None, known: Mapping[str, Setting], *, required: bool) -> dict[str, object]:
    if file is None:
        return {}
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise SettingsError(f"the settings file {file} does not exist") from None
        return {}
    except OSError as error:
        raise SettingsError(f"the settings file {file} cannot be read: {error.strerror}") from None
    import tomllib  # noqa: PLC0415 - most homes have no such file

    try:
        parsed = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {file} is not valid TOML: {error}") from None
    found = {}
    groups = {key.partition(".")[0] for key in known}
    for group, fields in parsed.items():
        if group not in groups:
            raise SettingsError(f"{file}: there is no group [{group}]{_nearest(group, groups)}")
        if not isinstance(fields, dict):
            raise SettingsError(f"{file}: {group} is a group of settings: write [{group}] and its keys below")
        for name, value in fields.items():
            key = f"{group}.{name}"
            if key not in known:
                raise SettingsError(f"{file}: there is no setting {key}{_nearest(key, known)}")
            found[key] = value
    return found


def read_environment(environ: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
    """Reads TRAINMASTER_GROUP_FIELD. Variables that look like a setting but match none are refused; variables that we
    set in Pods (such as TRAINMASTER_OUTPUT_DIR), and those that Kubernetes sets there for Services, are ignored."""
    by_variable = {setting.variable: key for key, setting in known.items()}
    groups = {key.partition(".")[0].upper() for key in known}
    found = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in RESERVED or _is_service_link(variable, environ):
            continue
        if variable in by_variable:
            found[by_variable[variable]] = text
            continue
        near = _list_close(variable, by_variable, 0.85)
        if near or variable.removeprefix(PREFIX).split("_")[0] in groups:
            raise SettingsError(f"environment: there is no setting {variable}{_nearest(variable, by_variable)}")
    return found


def _is_service_link(variable: str, environ: Mapping[str, str]) -> bool:
    match = _SERVICE_LINK.fullmatch(variable)
    return match is not None and f"{match[1]}_SERVICE_HOST" in environ


def _list_close(word: str, candidates: typing.Iterable[str], cutoff: float) -> list[str]:
    import difflib  # noqa: PLC0415 - only for mistakes

    return difflib.get_close_matches(word, list(candidates), n=1, cutoff=cutoff)


def _nearest(word: str, candidates: typing.Iterable[str]) -> str:
    near = _list_close(word, candidates, 0.5)
    return f"; did you mean {near[0]}?" if near else "; `trainmaster config` lists them all"


def parse_text(setting: Setting, text: str, source: Source) -> object:
    """Converts the text of an environment variable to the setting's type."""
    kind = setting.type
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except (KeyError, ValueError):
        raise SettingsError(f"{source}: {text!r} is not {_describe(kind)}") from None
    if typing.get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def check_value(setting: Setting, value: Any, source: Source) -> object:
    """The value in the setting's type, or SettingsError."""
    kind, key = setting.type, setting.key
    wrong = SettingsError(f"{source}: {key} must be {_describe(kind)}, not {value!r}")
    if typing.get_origin(kind) is Literal:
        value = _ALIASES.get(key, {}).get(str(value).lower(), value)
        if value not in typing.get_args(kind):
            raise wrong
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise wrong
        return tuple(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise wrong
    if kind in (int, float):
        least = _MINIMA.get(key, 0 if key in _MAY_BE_ZERO else 1 if kind is int else 0.001)
        if not least <= value <= _MAXIMA.get(key, float("inf")):
            most = f" to {_MAXIMA[key]}" if key in _MAXIMA else " or more"
            raise SettingsError(f"{source}: {key} must be {least}{most}, not {value}")
    return value


def _describe(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return "a list of texts"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
