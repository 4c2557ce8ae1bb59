"""`trainmaster operator` as a process of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from tests.flow.stage import Stage
from tests.kube.cluster import KubeCluster
from tests.seam.stage import KwokNode, open_site
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, JOB_SETS, LEASES

pytestmark = pytest.mark.kube


def test_it_works_with_a_kubeconfig_until_it_is_told_to_stop(seam_cluster: KubeCluster) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site:
            stage = Stage(site.client, site.namespace, KwokNode(), site.come_to_rest)
            command = [
                sys.executable,
                "-m",
                "trainmaster.cli",
                "operator",
                "--kubeconfig",
                str(seam_cluster.kubeconfig),
            ]
            command += ["--namespace", site.namespace, "--lease-namespace", site.namespace]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                await stage.submit()
                await stage.wait_for(JOB_SETS, "first", lambda jobset: True)
                assert await site.client.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
                process.send_signal(signal.SIGTERM)
                output, _ = await asyncio.to_thread(process.communicate, timeout=20)
            finally:
                process.kill()
                process.wait()
            assert process.returncode == 0, output
            assert f"operating on {seam_cluster.server}" in output
            lease = await site.client.get(LEASES, "trainmaster-operator", site.namespace)
            assert lease["spec"].get("holderIdentity", "") == ""

    asyncio.run(main())


def test_a_kubeconfig_that_does_not_exist_is_one_sentence() -> None:
    command = [sys.executable, "-m", "trainmaster.cli", "operator", "--kubeconfig", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("trainmaster: cannot read the kubeconfig nowhere") and done.stderr.count("\n") == 1
