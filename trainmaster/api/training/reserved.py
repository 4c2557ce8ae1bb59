"""Environment variables that frameworks set and a TrainJob must not set."""

from __future__ import annotations

TORCH = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
TORCH_NUM_NODES = "PET_NNODES"
"""Accepted with a warning if it equals the number of nodes."""
TORCH_ELASTIC = ("PET_MAX_RESTARTS", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT")
MPI = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)
JAX = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
XGBOOST = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")
