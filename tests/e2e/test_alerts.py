"""The alert rules that we ship, judged by promtool: they are well formed, and each of them fires and clears."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tools.toolbox import Toolbox

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


def test_every_alert_has_a_test_in_which_it_fires_and_clears() -> None:
    promtool = Toolbox().find_promtool()
    if promtool is None:
        pytest.skip(Toolbox().why_missing("promtool"))
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    tests = yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    states: dict[str, list[bool]] = {}
    for test in tests:
        for moment in test["alert_rule_test"]:
            states.setdefault(moment["alertname"], []).append(bool(moment["exp_alerts"]))
    assert states == {alert: [False, True, False] for alert in alerts}
    done = subprocess.run([promtool, "test", "rules", FOLDER / "rules_test.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
