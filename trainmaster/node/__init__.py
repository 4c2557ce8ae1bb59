"""Pods as local processes: machine, supervisor, logs."""
