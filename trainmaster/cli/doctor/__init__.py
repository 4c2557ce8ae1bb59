"""`trainmaster doctor trainjob`; its checks are in `jobs.diagnosis`, those of machines in `app.doctor`."""
