"""A line through points that lie on y = 3x + 1."""

from __future__ import annotations

POINTS = [(x / 10, 3 * x / 10 + 1) for x in range(20)]


def advance(weights: tuple[float, float], rate: float = 0.2) -> tuple[tuple[float, float], float]:
    """One step of gradient descent: the new weights, and the loss of the old ones."""
    slope, shift = weights
    errors = [(slope * x + shift - y, x) for x, y in POINTS]
    loss = sum(error * error for error, _ in errors) / len(errors)
    down = 2 * sum(error * x for error, x in errors) / len(errors)
    across = 2 * sum(error for error, _ in errors) / len(errors)
    return (slope - rate * down, shift - rate * across), loss
