"""Restarts that make no sense, on a real API server, where upstream's controller restarts JobSets."""

from __future__ import annotations

import asyncio

import pytest

from tests.flow.stage import Stage, is_finished, make_trainjob
from tests.kube.cluster import KubeCluster
from tests.seam.stage import KwokNode, open_site
from trainmaster.api.labels import STOP_ON_SAME_FAILURE
from trainmaster.api.meta import Object
from trainmaster.api.resources import JOB_SETS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.kit.clock import SystemClock
from trainmaster.kit.scopes import Scope

pytestmark = pytest.mark.kube

TRACE = 'Traceback (most recent call last):\n  File "/w/train.py", line 12, in step\n    f()\nValueError: run {run}'
MISSING = 'Traceback (most recent call last):\n  File "/w/train.py", line 1, in <module>\n    import x\nImportError: x'
RUNTIME: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {
        "name": "six-restarts",
        "labels": {"trainer.kubeflow.org/framework": "plain"},
        "annotations": {STOP_ON_SAME_FAILURE: "true"},
    },
    "spec": {
        "template": {
            "spec": {
                "failurePolicy": {"maxRestarts": 6},
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "containers": [{"name": "node", "image": "train:1"}],
                                    }
                                },
                            },
                        },
                    }
                ],
            }
        }
    },
}


@pytest.mark.parametrize(
    ("words", "reason", "attempts"), [(TRACE, "RepeatedFailure", 3), (MISSING, "NotRestartable", 1)]
)
def test_a_job_whose_restarts_do_not_help_is_ended_with_its_jobset(
    seam_cluster: KubeCluster, words: str, reason: str, attempts: int
) -> None:
    async def main() -> None:
        async with open_site(seam_cluster) as site, Scope("stage") as scope:
            node = KwokNode(script=lambda pod, run: 1, namespace=site.namespace, words=words, seconds=1.0)
            scope.spawn_forever(node.run(site.client, SystemClock()), name="stage.node")
            await site.start()
            stage = Stage(site.client, site.namespace, node, site.come_to_rest)
            await site.client.create(TRAINING_RUNTIMES, RUNTIME, site.namespace)
            trainjob = make_trainjob(nodes=1)
            trainjob["spec"]["runtimeRef"] = {"name": "six-restarts", "kind": "TrainingRuntime"}
            await stage.submit(trainjob)
            ended = await stage.wait_for(TRAIN_JOBS, "first", is_finished)
            failed = next(one for one in ended["status"]["conditions"] if one["type"] == "Failed")
            assert failed["reason"] == reason, failed
            assert ended["status"]["repeated"]["attempt"] == attempts - 1
            await stage.eventually(lambda: _is_gone(stage))

    asyncio.run(main())


async def _is_gone(stage: Stage) -> bool:
    return not await stage.list_all(JOB_SETS)
