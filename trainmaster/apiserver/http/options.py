"""Converts query parameters (and DELETE bodies) to the option types of the Client protocol.

Only what the option types cannot express is refused here (a dryRun other than All); the registry validates the rest,
because in-process callers pass the same options. Unknown parameters are ignored.
"""

from __future__ import annotations

from trainmaster.api import fields, status
from trainmaster.api.fields import FieldError
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_fields
from trainmaster.apiserver.http.messages import EMPTY_QUERY, Query
from trainmaster.client.contract import DeleteOptions, ListOptions, LogOptions, WatchOptions, WriteOptions

_META = "meta.k8s.io"
_NO_WRITE_OPTIONS = WriteOptions()
_PROPAGATIONS = ("", "Background", "Foreground", "Orphan")
_STREAMS = ("All", "Stdout", "Stderr")


def _refuse(kind: str, errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid(_META, kind, "", errors)


def read_write_options(query: Query, kind: str) -> WriteOptions:
    """`kind` is CreateOptions, UpdateOptions or PatchOptions, for error messages."""
    if query is EMPTY_QUERY:
        return _NO_WRITE_OPTIONS
    dry_run = query.get("dryRun")
    if dry_run not in ("", "All"):
        _refuse(kind, [fields.not_supported("dryRun", [dry_run], ["All"])])
    return WriteOptions(
        dry_run=dry_run == "All",
        field_manager=query.get("fieldManager"),
        field_validation=query.get("fieldValidation"),
        force=query.flag("force"),
    )


def read_list_options(query: Query) -> ListOptions:
    if query.has("sendInitialEvents"):
        _refuse("ListOptions", [fields.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")])
    return ListOptions(
        label_selector=query.get("labelSelector"),
        field_selector=query.get("fieldSelector"),
        limit=max(0, query.find_integer("limit") or 0),
        continue_token=query.get("continue"),
        resource_version=query.get("resourceVersion"),
        resource_version_match=query.get("resourceVersionMatch"),
    )


def read_watch_options(query: Query, *, name: str = "", longest: float) -> WatchOptions:
    asked = query.find_integer("timeoutSeconds")
    return WatchOptions(
        label_selector=query.get("labelSelector"),
        field_selector=_with_name(query.get("fieldSelector"), name),
        resource_version=query.get("resourceVersion"),
        resource_version_match=query.get("resourceVersionMatch"),
        bookmarks=query.flag("allowWatchBookmarks"),
        send_initial_events=query.flag("sendInitialEvents") if query.has("sendInitialEvents") else None,
        timeout_seconds=min(asked, longest) if asked is not None and asked > 0 else longest,
    )


def _with_name(selector: str, name: str) -> str:
    """The selector of the old /watch/.../NAME paths."""
    if not name:
        return selector
    return f"{selector},metadata.name={name}" if selector else f"metadata.name={name}"


def find_selected_name(selector: str) -> str:
    """The name in `metadata.name=NAME`; authorization by resourceNames covers such lists and watches."""
    for term in selector.split(","):
        for prefix in ("metadata.name==", "metadata.name="):
            if term.startswith(prefix):
                return term[len(prefix) :]
    return ""


def read_delete_options(query: Query, body: Object | None) -> DeleteOptions:
    """From the body if there is one, otherwise from the query, as upstream."""
    if body is None:
        grace = query.find_integer("gracePeriodSeconds")
        body = {"propagationPolicy": query.get("propagationPolicy")}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        if query.has("orphanDependents"):
            body["orphanDependents"] = query.flag("orphanDependents")
    dry_run = body.get("dryRun") or []
    if query.get("dryRun"):
        dry_run = [query.get("dryRun")]
    propagation = _text(body, "propagationPolicy")
    orphan = body.get("orphanDependents")
    preconditions = read_fields(body, "preconditions")
    if not isinstance(preconditions, dict) or not isinstance(dry_run, list):
        raise status.bad_request(
            "DeleteOptions in version v1 cannot be handled as a DeleteOptions: wrong type of field"
        )
    errors: list[FieldError] = []
    if any(value != "All" for value in dry_run):
        errors.append(fields.not_supported("dryRun", dry_run, ["All"]))
    if propagation not in _PROPAGATIONS:
        supported = ["Foreground", "Background", "Orphan", "nil"]
        errors.append(fields.not_supported("propagationPolicy", propagation, supported))
    if orphan is not None and propagation:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(fields.invalid("propagationPolicy", propagation, text))
    _refuse("DeleteOptions", errors)
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    return DeleteOptions(
        propagation=propagation,
        grace_seconds=_find_grace(body.get("gracePeriodSeconds")),
        uid=_text(preconditions, "uid"),
        resource_version=_text(preconditions, "resourceVersion"),
        dry_run=bool(dry_run),
    )


def _text(mapping: Object, name: str) -> str:
    value = mapping.get(name)
    if value is not None and not isinstance(value, str):
        raise status.bad_request(f"DeleteOptions: {name} must be a string")
    return value or ""


def _find_grace(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise status.bad_request("DeleteOptions: gracePeriodSeconds must be an integer")
    return max(0, value)


def read_log_options(query: Query) -> LogOptions:
    since, tail = query.find_integer("sinceSeconds"), query.find_integer("tailLines")
    limit = query.find_integer("limitBytes")
    errors = []
    if tail is not None and tail < 0:
        errors.append(fields.invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        errors.append(fields.invalid("limitBytes", limit, "must be greater than 0"))
    if since is not None and since < 1:
        errors.append(fields.invalid("sinceSeconds", since, "must be greater than 0"))
    if since is not None and query.get("sinceTime"):
        errors.append(fields.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    stream = query.get("stream")
    if stream not in ("", *_STREAMS):
        errors.append(fields.not_supported("stream", stream, _STREAMS))
    if stream not in ("", "All") and tail is not None:
        errors.append(fields.forbidden("", "`tailLines` and specific `stream` are mutually exclusive for now"))
    if errors:
        raise status.invalid("", "PodLogOptions", "", errors)
    return LogOptions(
        container=query.get("container"),
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        since_seconds=since,
        since_time=query.get("sinceTime"),
        timestamps=query.flag("timestamps"),
        tail_lines=tail,
        limit_bytes=limit,
        stream="" if stream == "All" else stream,
        uid=query.get("uid"),
    )
