"""TrainJob -> runtime snapshot and JobSet; the JobSet's conditions and counts back onto the TrainJob."""
