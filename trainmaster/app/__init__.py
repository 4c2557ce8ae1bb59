"""Composition root: settings, the home, embedded mode. The only part that reads the environment."""
