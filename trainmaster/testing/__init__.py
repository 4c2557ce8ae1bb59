"""Virtual time and an in-process cluster for tests. Product code never imports it."""
