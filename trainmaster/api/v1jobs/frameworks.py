"""What distinguishes the seven kinds of `kubeflow.org/v1` from one another, as data.

Everything that the kinds have in common is written once and reads this table: the declaration of the kind, its
validation, its model and its reconciler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trainmaster.api.meta import GVR

GROUP, VERSION = "kubeflow.org", "v1"
API_VERSION = f"{GROUP}/{VERSION}"

MASTER, WORKER, CHIEF, LAUNCHER, SCHEDULER = "Master", "Worker", "Chief", "Launcher", "Scheduler"

LABEL_PREFIX = "training.kubeflow.org/"
JOB_NAME = f"{LABEL_PREFIX}job-name"
OPERATOR_NAME = f"{LABEL_PREFIX}operator-name"
REPLICA_TYPE = f"{LABEL_PREFIX}replica-type"
REPLICA_INDEX = f"{LABEL_PREFIX}replica-index"
JOB_ROLE = f"{LABEL_PREFIX}job-role"

ALWAYS, ON_FAILURE, NEVER, EXIT_CODE = "Always", "OnFailure", "Never", "ExitCode"
RESTART_POLICIES = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)

MANAGER = "kubeflow.org/training-operator"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True)
class V1Framework:
    kind: str
    plural: str
    name: str
    """As in upstream's metrics: `pytorch`."""
    replicas_field: str
    """The field of spec that contains the replicas by type."""
    types: tuple[str, ...]
    """Replica types in the order in which they are examined; those that decide about the job come first."""
    deciding: tuple[str, ...]
    """Types whose end is the end of the job. Without any of them the workers decide."""
    container: str
    """The container that the framework runs in."""
    port_name: str
    port: int
    restart_policy: str = NEVER
    """The default."""
    is_scalable: bool = False
    """Whether it has the subresource `scale`, for its workers."""
    labelled: tuple[str, ...] | None = None
    """Types whose Pods have the label `job-role: master`, if they are not the deciding ones."""
    labels_first_worker: bool = False
    """Whether worker 0 has that label if the job has none of those types."""
    has_services: bool = True

    @cached_property
    def gvr(self) -> GVR:
        return GVR(GROUP, VERSION, self.plural)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def controller(self) -> str:
        """The name of upstream's controller, which is also the value of a label."""
        return f"{self.singular}-controller"

    @property
    def path(self) -> str:
        return f"spec.{self.replicas_field}"


PYTORCH = V1Framework(
    kind="PyTorchJob",
    plural="pytorchjobs",
    name="pytorch",
    replicas_field="pytorchReplicaSpecs",
    types=(MASTER, WORKER),
    deciding=(MASTER,),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    restart_policy=ON_FAILURE,
    is_scalable=True,
    labels_first_worker=True,
)
TENSORFLOW = V1Framework(
    kind="TFJob",
    plural="tfjobs",
    name="tensorflow",
    replicas_field="tfReplicaSpecs",
    types=(CHIEF, MASTER, "Evaluator", "PS", WORKER),
    deciding=(CHIEF, MASTER),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    labels_first_worker=True,
)
MPI = V1Framework(
    kind="MPIJob",
    plural="mpijobs",
    name="mpi",
    replicas_field="mpiReplicaSpecs",
    types=(LAUNCHER, WORKER),
    deciding=(LAUNCHER,),
    container="mpi",
    port_name="mpi-port",
    port=9999,
    has_services=False,
)
XGBOOST = V1Framework(
    kind="XGBoostJob",
    plural="xgboostjobs",
    name="xgboost",
    replicas_field="xgbReplicaSpecs",
    types=(MASTER, WORKER),
    deciding=(MASTER,),
    container="xgboost",
    port_name="xgboostjob-port",
    port=9999,
)
PADDLE = V1Framework(
    kind="PaddleJob",
    plural="paddlejobs",
    name="paddle",
    replicas_field="paddleReplicaSpecs",
    types=(MASTER, WORKER),
    deciding=(MASTER,),
    container="paddle",
    port_name="master",
    port=36543,
    restart_policy=ON_FAILURE,
    is_scalable=True,
)
JAX = V1Framework(
    kind="JAXJob",
    plural="jaxjobs",
    name="jax",
    replicas_field="jaxReplicaSpecs",
    types=(WORKER,),
    deciding=(),
    container="jax",
    port_name="jaxjob-port",
    port=6666,
    is_scalable=True,
    labels_first_worker=True,
)
MXNET = V1Framework(
    kind="MXJob",
    plural="mxjobs",
    name="mxnet",
    replicas_field="mxReplicaSpecs",
    types=(SCHEDULER, "Server", WORKER, "TunerTracker", "TunerServer", "Tuner"),
    deciding=(SCHEDULER,),
    container="mxnet",
    port_name="mxjob-port",
    port=9091,
    labelled=("Server",),
)

FRAMEWORKS = (PYTORCH, TENSORFLOW, MPI, XGBOOST, PADDLE, JAX, MXNET)
BY_KIND = {framework.kind: framework for framework in FRAMEWORKS}
