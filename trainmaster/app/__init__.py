"""Composition root: settings, embedded mode, signals. The only part that reads the environment."""
