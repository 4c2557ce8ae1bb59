"""Reconciles Jobs (Indexed and NonIndexed): Pods, counts, the Complete and Failed conditions. Embedded mode only."""
