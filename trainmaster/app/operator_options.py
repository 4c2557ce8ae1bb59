"""The group `operator` of the settings: everything that `trainmaster operator` can be told.

A Deployment runs `trainmaster operator --config FILE` with nothing else. What the values mean together, and which
contradict one another, is decided in `operator.choices`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The operator on a Kubernetes cluster (docs/operator.md). It reads only the file that --config or
    TRAINMASTER_CONFIG names, not the one in a home."""

    namespaces: tuple[str, ...] = ()
    """The only namespaces to work in. Empty: all."""
    instance: str = ""
    """One of several installations on the cluster, each for other namespaces: its name, with which the names of its
    cluster-wide objects end."""
    lease_namespace: str = "trainmaster-system"
    """The operator's own namespace: of its Lease, its certificates and its Service."""
    leader_election: bool = True
    """Wait until no other operator leads. With false only one may run."""
    lease_duration: int = 15
    """Seconds after which another operator takes over from one that does not renew its Lease any more."""
    lease_renew_deadline: float = 10.0
    """Seconds without a renewal after which the leader stops. With twice `lease_retry_period` added, it must be less
    than `lease_duration`."""
    lease_retry_period: float = 2.0
    """Seconds between two renewals, and twice the time between two attempts of others to take the Lease."""
    companion: bool = False
    """Leave jobs to Kubeflow Trainer's manager and training-operator, and only do retention."""
    history: str = ""
    """Directory of an archive with records of jobs. Empty: no records."""
    runtimes: bool = True
    """Install the shipped ClusterTrainingRuntimes."""
    v1_jobs: tuple[str, ...] = ()
    """Also run these kinds of training-operator: `["all"]`, or some of pytorchjob, tfjob, mpijob, xgboostjob,
    paddlejob, jaxjob, mxjob."""
    gang_scheduler_name: str = ""
    """Create a PodGroup for each of these jobs: `volcano`, or the name of a scheduler with the coscheduling plugin."""
    progress: bool = True
    """Give Pods an address to report progress to."""
    progress_url: str = ""
    """The https URL of that address. Empty: the Service of the operator if it runs in a Pod, otherwise none."""
    progress_port: int = 10443
    """Port for progress reports, over HTTPS."""
    webhooks: bool = True
    """Serve admission webhooks."""
    webhook_url: str = ""
    """The https URL at which API servers reach them. Empty: the Service of the operator if it runs in a Pod; otherwise
    none are served."""
    webhook_port: int = 9443
    """Port for webhooks, over HTTPS."""
    webhook_cert_dir: str = ""
    """Directory with `tls.crt` and `tls.key` of the webhooks. Empty: a certificate of our own, in a Secret."""
    webhook_client_ca: str = ""
    """Accept reviews only from holders of a certificate of this CA (PEM file). Empty: from whoever reaches the port."""
    health_port: int = 8081
    """Port for `/healthz` and `/readyz`, over plain HTTP. 0: off. Outside a Pod it is off unless it is set."""
    health_address: str = ""
    """IP address for it. Empty: all addresses in a Pod, otherwise 127.0.0.1."""
    metrics_port: int = 8443
    """Port for `/metrics`. 0: off. Outside a Pod it is off unless it is set."""
    metrics_address: str = ""
    """IP address for it. Empty: all addresses in a Pod, otherwise 127.0.0.1."""
    metrics_secure: bool = True
    """Metrics over HTTPS, for callers whose token may get the nonResourceURL `/metrics`. With false, over plain HTTP,
    for whoever reaches the port."""
    metrics_cert_dir: str = ""
    """Directory with `tls.crt` and `tls.key` for metrics. Empty: a certificate that is made at each start."""
    records_port: int = 8444
    """Port for records of jobs, over HTTPS and for API servers only, if there is a `history`. 0: off. Outside a Pod it
    is off unless it is set."""
    records_address: str = ""
    """IP address for it. Empty: all addresses in a Pod, otherwise 127.0.0.1."""
    records_cert_dir: str = ""
    """Directory with `tls.crt` and `tls.key` for records. Empty: a certificate of our own, in a Secret."""
    workers: int = 8
    """Jobs of each kind that are handled in parallel."""
    requests_per_second: float = 0.0
    """Average rate of the operator's requests to the API server, without its Lease and without opening watches; 0 is no
    limit. API servers limit their callers themselves (priority and fairness)."""
    request_burst: int = 100
    """How many of those requests may be sent at once."""
