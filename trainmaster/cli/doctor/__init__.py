"""What `trainmaster doctor` looks at: this machine, or one TrainJob."""
