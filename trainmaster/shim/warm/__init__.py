"""Programs that start as forks of an interpreter that has already imported what they need (docs/warm-start.md)."""
