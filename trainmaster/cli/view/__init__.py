"""The live view of a job: a pure model, two views of it, and the session that follows the server."""
