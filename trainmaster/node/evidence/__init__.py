"""Evidence of what the ranks of a job do: collected before they are stopped, when they fail, and on request."""
