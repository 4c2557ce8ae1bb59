"""The verbs of the API, and the steps that writes share."""
