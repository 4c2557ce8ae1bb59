"""Annotations of training jobs about their checkpoints. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainmaster.api.formats.numbers import find_count
from trainmaster.api.labels import KEEP_CHECKPOINTS, KEEP_CHECKPOINTS_EVERY
from trainmaster.api.reading import read_annotations

_MOST = 10**15
_MOST_LETTERS = 1024
_SOURCE = re.compile(r"[A-Za-z0-9-]{1,64}/.+", re.DOTALL)


def parse_count(text: str) -> int:
    """ValueError if it is not a number above 0."""
    number = find_count(text)
    if number is None or not 0 < number < _MOST:
        raise ValueError("must be a number above 0")
    return number


def parse_source(text: str) -> tuple[str, str]:
    """The uid of a job and the name of one of its checkpoints. ValueError if it is neither."""
    if len(text) > _MOST_LETTERS or not text.isprintable() or not _SOURCE.fullmatch(text):
        raise ValueError("must be the uid of a job, a slash, and the name of one of its checkpoints")
    uid, _, name = text.partition("/")
    return uid, name


def read_policy(job: Mapping[str, Any]) -> tuple[int, int]:
    """How many of the newest checkpoints are kept, and those of which steps besides; 0 where the job does not say, or
    says something invalid."""
    notes = read_annotations(job)
    return _read(notes, KEEP_CHECKPOINTS), _read(notes, KEEP_CHECKPOINTS_EVERY)


def _read(notes: Mapping[str, str], key: str) -> int:
    try:
        return parse_count(notes[key]) if key in notes else 0
    except ValueError:
        return 0
