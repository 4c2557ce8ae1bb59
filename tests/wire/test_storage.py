"""Claims, volumes and classes with kubectl: bound, shown, grown, and gone with their data."""

from __future__ import annotations

import pytest

from tests.support.kubectl import Kubectl
from tests.wire.scenario import Scenario, play, run, scenario

pytestmark = pytest.mark.wire

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
"""
BY_HAND = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: "hand-{ns}"}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 2Gi}
  storageClassName: "hand-{ns}"
  hostPath: {path: /no/such}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mine}
spec:
  storageClassName: "hand-{ns}"
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""
NO_SOURCE = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: x}
spec: {capacity: {storage: 1Gi}}
"""

SCENARIOS = [
    scenario(
        "a claim is bound to a directory that goes with it",
        run("create -f -", stdin=CLAIM, out="persistentvolumeclaim/data created"),
        run("wait --for=jsonpath={.status.phase}=Bound pvc/data", out="persistentvolumeclaim/data condition met"),
        run(
            "get pvc data",
            out="""
            NAME   STATUS   VOLUME      CAPACITY   ACCESS MODES   STORAGECLASS <any> AGE
            data   Bound    pvc-<uid>   1Gi        RWX            local-directory <any> <age>
            """,
        ),
        run(
            """patch pvc data --type=merge -p '{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}'""",
            out="persistentvolumeclaim/data patched",
        ),
        run("wait --for=jsonpath={.status.capacity.storage}=5Gi pvc/data", out=None),
        run("delete pvc data", out='persistentvolumeclaim "data" deleted<any>'),
        since=24,
    ),
    scenario(
        "there is one class of storage and it is the default",
        run(
            "get sc local-directory",
            out="""
            NAME                        PROVISIONER                      RECLAIMPOLICY  VOLUMEBINDINGMODE <any>
            local-directory (default)   trainmaster.dev/local-directory   Delete         Immediate <any>
            """,
        ),
        core=True,
    ),
    scenario(
        "a volume made by hand serves the claim of its class",
        run("create -f -", stdin=BY_HAND, out=None),
        run("wait --for=jsonpath={.status.phase}=Bound pvc/mine", out=None),
        run(
            "get pv hand-{ns}",
            out="""
            NAME        CAPACITY   ACCESS MODES   RECLAIM POLICY   STATUS   CLAIM <any>
            hand-{ns}   2Gi        RWO            Retain           Bound    {ns}/mine <any>
            """,
        ),
        run("delete pvc mine", out=None),
        run("wait --for=jsonpath={.status.phase}=Released pv/hand-{ns}", out=None),
        run("delete pv hand-{ns}", out=None, err=None),
        since=24,
    ),
    scenario(
        "a volume that names no storage is refused",
        run(
            "create -f -",
            stdin=NO_SOURCE,
            rc=1,
            err="""
            The PersistentVolume "x" is invalid:<any>
            * spec.accessModes: Required value
            * spec: Required value: must specify a volume type
            """,
        ),
        kube=True,
    ),
]


def test_kubectl(scenario: Scenario, kubectl: Kubectl) -> None:
    play(scenario, kubectl)
