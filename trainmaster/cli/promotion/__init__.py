"""`trainmaster promote`: what is different if a job of this machine runs on a cluster, and its submission there."""
