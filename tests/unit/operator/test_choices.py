"""From settings to an operator: what each means in a Pod and outside, and what contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.app.settings import SettingsError, load
from trainmaster.engine.lease import LeaseTimes
from trainmaster.jobs.models.v1jobs import MODELS, MPIJob, TFJob
from trainmaster.operator.choices import OperatorChoices
from trainmaster.operator.monitoring.health import HealthSettings
from trainmaster.operator.monitoring.metrics_server import MetricsSettings
from trainmaster.operator.records.settings import RecordsSettings

pytestmark = pytest.mark.unit

_ALL = """
[log]
form = "json"
[operator]
namespaces = ["a", "b", "a"]
lease_namespace = "own"
lease_duration = 30
lease_renew_deadline = 20
lease_retry_period = 4
history = "/records"
runtimes = false
v1_jobs = ["TFJob", "mpijob"]
gang_scheduler_name = "volcano"
progress_port = 10444
webhook_port = 9444
webhook_cert_dir = "/certificates"
webhook_client_ca = "/ca.crt"
health_port = 8082
metrics_port = 8444
metrics_address = "10.0.0.1"
metrics_cert_dir = "/metrics-certificates"
records_port = 8445
records_address = "10.0.0.2"
records_cert_dir = "/records-certificates"
workers = 3
requests_per_second = 20
request_burst = 40
"""


def choose(tmp_path: Path, text: str, *, in_pod: bool = True) -> OperatorChoices:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return OperatorChoices(load(file, {}, {}), in_pod=in_pod)


def test_everything_can_be_chosen_in_the_file(tmp_path: Path) -> None:
    found = choose(tmp_path, _ALL).build()
    assert found.namespaces == ("a", "b") and found.lease_namespace == "own"
    assert found.lease_times == LeaseTimes(30, 20.0, 4.0, 2.0)
    assert found.history == Path("/records") and not found.runtimes and found.workers == 3
    assert found.v1_jobs == (TFJob, MPIJob) and found.gang_scheduler == "volcano"
    assert found.progress is not None and found.progress.port == 10444
    assert found.progress.url == "https://trainmaster-operator.own.svc:10444" and found.progress.namespace == "own"
    assert found.webhooks is not None and found.webhooks.port == 9444
    assert found.webhooks.directory == Path("/certificates") and found.webhooks.client_ca == Path("/ca.crt")
    assert "trainmaster-operator.own.svc" in found.webhooks.names
    assert found.health == HealthSettings("", 8082)
    assert found.metrics == MetricsSettings("10.0.0.1", 8444, directory=Path("/metrics-certificates"))
    names = ("trainmaster-operator.own.svc", "trainmaster-operator.own.svc.cluster.local")
    directory = Path("/records-certificates")
    assert found.records == RecordsSettings("own", names, "10.0.0.2", 8445, directory)
    assert (found.requests_per_second, found.request_burst) == (20.0, 40)


def test_outside_a_pod_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    found = choose(tmp_path, "[operator]\nhistory = '/records'\n", in_pod=False).build()
    assert [found.progress, found.webhooks, found.health, found.metrics, found.records] == [None] * 5
    asked = "[operator]\nhealth_port = 8081\nmetrics_port = 8443\nrecords_port = 8444\nhistory = '/records'\n"
    found = choose(tmp_path, asked, in_pod=False).build()
    assert found.health == HealthSettings("127.0.0.1", 8081), "the default, but somebody asked for it"
    assert found.metrics == MetricsSettings("127.0.0.1", 8443)
    assert found.records is not None and (found.records.host, found.records.port) == ("127.0.0.1", 8444)
    found = choose(tmp_path, asked + 'health_address = "::"\n', in_pod=False).build()
    assert found.health == HealthSettings("::", 8081)


def test_in_a_pod_every_port_can_be_turned_off(tmp_path: Path) -> None:
    text = "[operator]\nprogress = false\nwebhooks = false\nhealth_port = 0\nmetrics_port = 0\nhistory = '/x'\n"
    choices = choose(tmp_path, text + "records_port = 0\n")
    found = choices.build()
    assert [found.progress, found.webhooks, found.health, found.metrics, found.records] == [None] * 5
    assert choices.duties.history and not choices.duties.records


def test_a_companion_serves_no_jobs_and_answers_probes(tmp_path: Path) -> None:
    choices = choose(tmp_path, "[operator]\ncompanion = true\nhistory = '/records'\n")
    found = choices.build()
    assert found.progress is None and found.webhooks is None and not choices.serves_webhooks
    assert found.health == HealthSettings("", 8081) and found.metrics == MetricsSettings("", 8443)
    assert choices.duties.companion and choices.duties.history and choices.duties.records
    assert found.records is not None and (found.records.host, found.records.port) == ("", 8444)


def test_without_an_archive_there_are_no_records(tmp_path: Path) -> None:
    choices = choose(tmp_path, "")
    assert choices.build().records is None and not choices.duties.records


def test_without_leader_election_the_namespace_is_still_known(tmp_path: Path) -> None:
    choices = choose(tmp_path, "[operator]\nleader_election = false\nlease_namespace = 'own'\nv1_jobs = ['all']\n")
    found = choices.build()
    assert found.lease_namespace == "" and found.webhooks is not None and found.webhooks.namespace == "own"
    assert found.v1_jobs == MODELS and choices.duties.own_namespace == "own"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("companion = true\nv1_jobs = ['all']", "operator.v1_jobs runs jobs, which", id="companion"),
        pytest.param("v1_jobs = ['caffejob']", "operator.v1_jobs caffejob: it must be all, or", id="unknown kind"),
        pytest.param("gang_scheduler_name = 'volcano'", "is for the kinds that operator.v1_jobs names", id="gangs"),
        pytest.param("lease_duration = 14", "operator.lease_duration 14: it must be more than", id="two leaders"),
        pytest.param("instance = 'a'", "others run the jobs of other namespaces", id="instance"),
        pytest.param("lease_namespace = ''", "operator.lease_namespace is empty", id="no namespace"),
        pytest.param("metrics_secure = false\nmetrics_cert_dir = '/x'", "need no certificate", id="plain with a key"),
        pytest.param("webhook_url = 'http://x'", "operator.webhook_url http://x: it must be https://", id="webhooks"),
        pytest.param("progress_url = 'x:1'", "operator.progress_url x:1: it must be https://", id="progress"),
        pytest.param("records_port = 8444", "there are only records with an archive", id="records"),
        pytest.param("metrics_port = 9443", "metrics_port 9443: webhook_port is the same", id="two ports"),
    ],
)
def test_what_contradicts_itself_is_refused_with_the_place(tmp_path: Path, text: str, want: str) -> None:
    with pytest.raises(SettingsError) as caught:
        choose(tmp_path, f"[operator]\n{text}\n")
    assert want in str(caught.value) and "config.toml" in str(caught.value)


def test_a_refusal_names_the_flag_or_the_variable_that_was_used() -> None:
    by_flag = load(None, {}, {"operator.v1_jobs": ("--v1-jobs", ["x"])})
    by_variable = load(None, {"TRAINMASTER_OPERATOR_V1_JOBS": "x"}, {})
    for effective, name in ((by_flag, "--v1-jobs x:"), (by_variable, "TRAINMASTER_OPERATOR_V1_JOBS x:")):
        with pytest.raises(SettingsError) as caught:
            OperatorChoices(effective, in_pod=True)
        assert str(caught.value).startswith(name)
