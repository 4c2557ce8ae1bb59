"""Job (Indexed) -> Pods, counts, Complete and Failed. Embedded mode only."""
