"""Answers reviews with the rules of `api.admission` over the operator's watch cache, as the embedded server does over
its store; the texts are the same.

The cache may be some milliseconds behind: a runtime that was created right before its TrainJob. So whoever would be
refused gets a second look, with the runtime as the cluster has it now, and whether a runtime may be deleted is decided
from the jobs that the cluster has now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from copy import deepcopy

from trainmaster.api import status
from trainmaster.api.admission import reserved, runtimes, writes
from trainmaster.api.admission.contract import Findings
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.lifecycle.policy import NAME, NAMESPACE, check_policy
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, PRIORITY_CLASSES, TRAIN_JOBS
from trainmaster.api.spelling import respell
from trainmaster.api.status import NotFound, StatusError
from trainmaster.api.validation import structural
from trainmaster.client.collection import Key, get_key
from trainmaster.client.contract import Client, ListOptions
from trainmaster.client.pages import read_pages
from trainmaster.client.view import ContentUnavailable, View, ask_whole
from trainmaster.kit.clock import Clock, format_time
from trainmaster.operator.webhooks.reviews import DELETE, Review, ReviewVerdict, list_changes

_SECONDS = 2.0
"""For looking again. The API server waits five."""
_AT_ONCE = 8
"""So many second looks at a time, so that senders of nonsense cannot make us flood the API server."""
_PAGE = 500
_EXISTS: Object = {"metadata": {}}
"""Stands for an object that may exist and that we may not read."""
_Key = tuple[GVR, str, str]
_NO_ANSWER = StatusError(
    503, "ServiceUnavailable", "the cluster did not answer when a runtime was looked up; try again"
)


class Examiner:
    def __init__(
        self, view: View, client: Client, catalogue: Catalogue, clock: Clock, *, namespaces: Collection[str] = ()
    ) -> None:
        """`namespaces`: the only ones that the view shows; () is all."""
        self._view = view
        self._client = client
        self._catalogue = catalogue
        self._clock = clock
        self._namespaces = namespaces
        self._looks = asyncio.Semaphore(_AT_ONCE)

    def complete(self, review: Review) -> ReviewVerdict:
        """Defaults that only an admission step can fill in. The object has not been validated yet."""
        kind = self._find_kind(review)
        if kind is None or not writes.has_rules(kind) or review.operation == DELETE:
            return ReviewVerdict()
        new = deepcopy(review.new)
        kind.default(new)
        now = format_time(self._clock.now())
        warnings = writes.complete(kind, new, _respell_old(kind, review), now, embedded=False)
        return ReviewVerdict(warnings=warnings, patch=list(list_changes(review.new, new)))

    async def examine(self, review: Review) -> ReviewVerdict:
        if review.gvr == CONFIG_MAPS:
            return _examine_policy(review)
        kind = self._find_kind(review)
        if kind is None or not writes.has_rules(kind):
            return ReviewVerdict()
        if review.operation == DELETE:
            return await self._examine_deletion(review)
        old = _respell_old(kind, review)
        errors = kind.validate(review.new, old)
        if errors:
            return ReviewVerdict(status.invalid(kind.group, kind.kind, review.name, errors))
        return await self._examine_write(kind, review.new, old)

    def examine_marks(self, review: Review) -> ReviewVerdict:
        """Labels and annotations that only controllers may set, in a namespace that belongs to a tenant."""
        kind = self._find_kind(review)
        if kind is None or review.operation == DELETE:
            return ReviewVerdict()
        problems = list(reserved.list_added(review.new, review.old, kind.tenants.reserved))
        return ReviewVerdict(reserved.refuse(kind.gvr, review.name, review.namespace, problems) if problems else None)

    def find_misfit(self, review: Review) -> str:
        """Where the objects of a review do not fit the definition of their kind; "" if they do. An API server looks at
        that before it asks, so the rules do not: this is for whoever else sends reviews, once a rule has stumbled."""
        kind = self._catalogue.find(review.gvr)
        if kind is None:
            return ""
        try:
            return next((found for obj in (review.new, review.old) if obj and (found := _find_misfit(kind, obj))), "")
        except RecursionError:
            return "it is nested too deeply"

    def _find_kind(self, review: Review) -> Kind | None:
        """None for what is not ours to examine; nothing is known about namespaces that are not watched."""
        if self._namespaces and review.namespace and review.namespace not in self._namespaces:
            return None
        return self._catalogue.find(review.gvr)

    async def _examine_write(self, kind: Kind, new: Object, old: Object | None) -> ReviewVerdict:
        warnings = list(kind.warnings(new, old))
        known: dict[_Key, Object | None] = {}

        def ask(view: View) -> tuple[Findings, _CacheLookup]:
            lookup = _CacheLookup(view, known)
            return writes.examine(kind, new, old, lookup, embedded=False), lookup

        try:
            findings, lookup = await ask_whole(self._view, ask)
        except ContentUnavailable:
            raise _NO_ANSWER from None
        if findings.text and lookup.uncertain:
            await self._look_again(lookup)
            findings, _ = await ask_whole(self._view, ask)
        if findings.text:
            return ReviewVerdict(StatusError(403, "Forbidden", findings.text))
        return ReviewVerdict(warnings=[*warnings, *findings.warnings])

    async def _look_again(self, lookup: _CacheLookup) -> None:
        """Raises StatusError 503 if the cluster does not answer."""
        try:
            async with asyncio.timeout(_SECONDS), self._looks:
                for key in lookup.uncertain:
                    lookup.known[key] = await self._get(*key)
        except (TimeoutError, OSError):
            raise _NO_ANSWER from None

    async def _get(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        try:
            return await self._client.get(gvr, name, namespace)
        except NotFound:
            return None
        except StatusError as error:
            if error.code != 403:
                raise OSError(error.message) from None
            return _EXISTS if gvr == PRIORITY_CLASSES else self._view.find(gvr, namespace, name)

    async def _examine_deletion(self, review: Review) -> ReviewVerdict:
        runtime = review.old
        if runtime is None or review.gvr not in writes.RUNTIMES or runtimes.may_always_be_deleted(runtime):
            return ReviewVerdict()
        name = runtime["metadata"]["name"]
        places = (review.namespace,) if review.namespace else self._namespaces or ("",)
        jobs: dict[Key, Object] = {}
        if not await self._read_jobs(places, jobs):
            cached = self._view.list(TRAIN_JOBS, review.namespace)
            jobs = {get_key(trainjob): trainjob for trainjob in cached} | jobs
        return ReviewVerdict(runtimes.check_unused(review.gvr, runtime, _list_users(jobs.values(), review, name)))

    async def _read_jobs(self, places: Iterable[str], jobs: dict[Key, Object]) -> bool:
        """Adds the TrainJobs that the cluster has now, as many as it says in time; returns whether these are all."""
        try:
            async with asyncio.timeout(_SECONDS), self._looks:
                for namespace in places:
                    async for page in read_pages(self._client, TRAIN_JOBS, namespace, ListOptions(limit=_PAGE)):
                        jobs.update((get_key(trainjob), trainjob) for trainjob in page.items)
        except (TimeoutError, OSError, StatusError):
            return False
        return True


def _list_users(trainjobs: Iterable[Object], review: Review, name: str) -> Iterator[str]:
    for trainjob in trainjobs:
        if runtimes.is_used_by(trainjob, review.gvr, name):
            yield "/".join(get_key(trainjob))


def _examine_policy(review: Review) -> ReviewVerdict:
    if review.operation == DELETE or (review.namespace, review.name) != (NAMESPACE, NAME):
        return ReviewVerdict()
    errors = check_policy(review.new)
    return ReviewVerdict(status.invalid("", "ConfigMap", NAME, errors) if errors else None)


def _find_misfit(kind: Kind, obj: Object) -> str:
    for name in ("labels", "annotations"):
        found = obj["metadata"].get(name)
        if not isinstance(found, dict | None) or not all(isinstance(text, str) for text in (found or {}).values()):
            return f"metadata.{name} is not a map of strings"
    for name, node in kind.load().properties.items():
        if name in obj and name != "metadata" and (errors := structural.check(node, obj[name], name, body=name)):
            # Without the value, which may be large.
            return f"{errors[0].path}: {errors[0].detail or errors[0].kind.value[1]}"
    return ""


def _respell_old(kind: Kind, review: Review) -> Object | None:
    return None if review.old is None else respell(kind, review.old, review.new)


class _CacheLookup:
    """The `Lookup` of admission rules in the watch cache."""

    _SECOND_LOOK = frozenset((*writes.RUNTIMES, PRIORITY_CLASSES))

    def __init__(self, view: View, known: dict[_Key, Object | None]) -> None:
        """`known`: what the cluster answered."""
        self._view = view
        self.known = known
        self.uncertain: list[_Key] = []
        """What was looked for in vain, or may have changed since the cache saw it, and is worth another look."""

    def find(self, gvr: GVR, namespace: str, name: str) -> Object | None:
        key = (gvr, namespace, name)
        if key in self.known:
            return self.known[key]
        # Never cached for this: any job may name one, and few do.
        found = None if gvr == PRIORITY_CLASSES else self._view.find(gvr, namespace, name)
        if gvr in self._SECOND_LOOK:
            self.uncertain.append(key)
        return found
