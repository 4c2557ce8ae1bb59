"""Why a TrainJob is as it is, and what would start one that waits. Pure; asks the real scheduler."""
