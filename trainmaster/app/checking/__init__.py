"""Says what would become of manifests, without creating them: for `trainmaster check` and the REST API."""
