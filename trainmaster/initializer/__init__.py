"""Replaces the dataset and model initializer images: fills /workspace before training. Runs inside Pods."""
