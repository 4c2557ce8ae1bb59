"""Virtual time, in-process cluster, contract suites, fault injection. Product code never imports it."""
