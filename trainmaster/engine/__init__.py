"""Controller machinery: queue, sources, plans, manager. Our rules live in controllers."""
