"""Suspends what runs on a drained machine, and resumes exactly that when the drain is over."""
