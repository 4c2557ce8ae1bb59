"""Metrics of the process, of its store and of the history."""

from __future__ import annotations

from trainmaster.kit.metrics import GaugeSpec

MEMORY = GaugeSpec("process_resident_memory_bytes", "Resident memory size in bytes.")
STORE_REVISION = GaugeSpec("trainmaster_store_revision", "Newest revision, and the durable one on disk.", ("state",))
HISTORY_RECORDS = GaugeSpec("trainmaster_history_records", "Records in the archive.")
HISTORY_BYTES = GaugeSpec("trainmaster_history_bytes", "Bytes of records, logs and results in the archive.")
HISTORY_UNWRITTEN = GaugeSpec(
    "trainmaster_history_unwritten", "Finished jobs that are kept because their record could not be written."
)
IDLE_GPUS = GaugeSpec("trainmaster_idle_gpus", "GPUs of jobs that have left all of theirs idle for the set time.")
