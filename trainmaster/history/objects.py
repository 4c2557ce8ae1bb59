"""Records as objects of the Kubernetes API, `jobrecords.records.trainmaster.dev`. Pure.

The operator serves them (`trainmaster.operator.records`), and the command line reads them (`history.cluster`).

    metadata.name   the uid of the job
    record          one line: name, kind, state, times, who deleted it
    details         everything else, as in `trainmaster history get -o json`; lists leave it out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.meta import Fields, Object
from trainmaster.api.reading import list_items, read_fields
from trainmaster.api.resources import JOB_RECORDS
from trainmaster.history.archive import RecordLine
from trainmaster.history.curves import series
from trainmaster.history.curves.series import Point
from trainmaster.history.record import JobRecord, RecordedDeletion
from trainmaster.history.rendering import RecordedLog, log_to_data, to_data
from trainmaster.jobs.models.ranks import PodPlace, parse_place

KIND = "JobRecord"
_BESIDE = ("logs", "progress")


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """A log in the archive of an operator."""

    place: PodPlace
    container: str
    restart: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CompleteRecord:
    """A record with its logs and its progress reports."""

    record: JobRecord
    logs: Sequence[RecordedLog]
    points: Sequence[Point]


def build_object(line: RecordLine | JobRecord) -> Object:
    meta = {"name": line.uid, "namespace": line.namespace, "uid": line.uid, "creationTimestamp": line.created}
    return {
        "apiVersion": JOB_RECORDS.api_version,
        "kind": KIND,
        "metadata": meta,
        "record": to_data(line),
    }


def build_complete_object(complete: CompleteRecord) -> Object:
    logs = [{**log_to_data(log), "place": str(log.place)} for log in complete.logs]
    details = {**complete.record.document, "logs": logs, "progress": series.to_data(complete.points)}
    return {**build_object(complete.record), "details": details}


def read_line(obj: Fields) -> RecordLine:
    record = obj["record"]
    return RecordLine(
        record["uid"],
        record["namespace"],
        record["name"],
        record["runtime"],
        record["state"],
        record["created"],
        record["finished"],
        _read_deletion(record),
        0,
        record["kind"],
    )


def read_complete(obj: Fields) -> CompleteRecord:
    """The inverse of `build_complete_object`."""
    line, details = read_line(obj), read_fields(obj, "details")
    document = {key: value for key, value in details.items() if key not in _BESIDE}
    record = JobRecord(
        line.uid,
        line.namespace,
        line.name,
        line.runtime,
        line.state,
        line.created,
        line.finished,
        line.deletion,
        document,
    )
    logs = [
        RemoteLog(parse_place(log["place"]), log["container"], log["restart"], log["bytes"])
        for log in list_items(details, "logs")
    ]
    return CompleteRecord(record, logs, series.read_data(list_items(details, "progress")))


def _read_deletion(record: Fields) -> RecordedDeletion | None:
    found = record.get("deletion")
    return None if found is None else RecordedDeletion(**found)
