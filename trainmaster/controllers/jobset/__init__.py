"""JobSet -> headless Service and Jobs; restarts of the whole gang; Completed and Failed. Embedded mode only."""
