"""Live data for streams: each thing is watched once for all who follow it with the same rights."""
