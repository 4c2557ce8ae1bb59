"""The checks of `trainmaster doctor`: of this machine, or of one TrainJob."""
