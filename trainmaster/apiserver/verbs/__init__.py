"""The verbs of the API on the store, and the steps that writes share."""
