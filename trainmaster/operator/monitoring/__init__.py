"""How one sees that an operator is well: probes and metrics, and the ports that answer them.

health          /healthz and /readyz
metrics_server  /metrics
metrics_access  who may read them
work_metrics    fills the metrics that only the operator has
insight         both together, for `operator.mode`
"""
