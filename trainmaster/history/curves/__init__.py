"""What jobs reported and used over time: points, and which of them are kept."""
