"""Creates what manifests hold, as `trainmaster submit` does: all are read before the first is sent; training jobs are
created, other objects applied, in the order in which they need one another. With a dry run the server only validates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.api.labels import CODE_MAP, SCRIPT_OF
from trainmaster.api.meta import GVR, Object
from trainmaster.api.reading import read_annotations, read_labels
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import NotFound, StatusError
from trainmaster.client.contract import Client
from trainmaster.jobs import code_maps
from trainmaster.jobs.submission.documents import parse_bounded
from trainmaster.jobs.submission.ordering import Manifest, ManifestError, order_manifests
from trainmaster.jobs.submission.sending import (
    DEPENDENT,
    describe_refusal,
    find_collection,
    is_dependent,
    send_object,
)
from trainmaster.rest.problems import FieldProblem, Problem, from_status, invalid
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.guide_jobs import adopt

log = logging.getLogger(__name__)

MANAGER = "trainmaster-rest"
_POINTER = "/manifests"
_SOURCE = "the manifests"
_MOST_OBJECTS = 200


@dataclass(frozen=True, slots=True)
class Submission:
    """Manifests that were read and belong together."""

    manifests: Sequence[tuple[Manifest, GVR]]
    dry_run: bool = False


async def read_submission(text: str, namespace: str | None, own: str | None, *, dry_run: bool) -> Submission:
    """`namespace`: where all are to be; `own`: where those are that do not say. Raises Problem 422 for what cannot be
    read, with its line, before anything is sent."""
    documents = await asyncio.to_thread(parse_bounded, _SOURCE, text)
    try:
        found = order_manifests(documents, _SOURCE)
    except ManifestError as error:
        raise _refuse(str(error)) from None
    if len(found) > _MOST_OBJECTS:
        raise _refuse(f"{len(found)} objects; at most {_MOST_OBJECTS} are taken at once")
    return Submission([(manifest, _place(manifest, namespace, own)) for manifest in found], dry_run)


def _place(manifest: Manifest, namespace: str | None, own: str | None) -> GVR:
    """Sets its namespace; returns its collection."""
    version, kind = manifest.obj["apiVersion"], manifest.obj["kind"]
    known = find_collection(version, kind)
    if known is None:
        raise _refuse(f"line {manifest.line}: {kind} of {version} is not taken here: use the Kubernetes API")
    gvr, is_namespaced = known
    named = manifest.obj["metadata"].get("namespace")
    if not is_namespaced:
        return gvr
    if named is not None and (not isinstance(named, str) or not naming.is_namespace(named)):
        raise _refuse(f"line {manifest.line}: metadata.namespace is no name of a namespace")
    if namespace and named and namespace != named:
        raise _refuse(f"line {manifest.line}: it is for the namespace {named}, and the request for {namespace}")
    manifest.namespace = named or namespace or own or ""
    if not manifest.namespace:
        raise _refuse(f"line {manifest.line}: metadata.namespace is needed: you are no tenant")
    return gvr


def _refuse(text: str) -> Problem:
    return invalid([FieldProblem(text, pointer=_POINTER)])


async def submit(client: Client, submission: Submission) -> list[Object]:
    """What was done with each object. Raises Problem at the first that is refused; it names what was written before."""
    done: list[Object] = []
    codes: dict[str, Object] = {}
    for manifest, gvr in submission.manifests:
        namespace = manifest.namespace
        try:
            obj, verb = await send_object(
                client, gvr, manifest.obj, namespace, manager=MANAGER, dry_run=submission.dry_run
            )
        except StatusError as error:
            planned = {one["name"] for one in done}
            if not submission.dry_run or not is_dependent(error, planned):
                raise _explain(manifest, error, done if not submission.dry_run else ()) from None
            obj, verb = manifest.obj, DEPENDENT
        meta = obj["metadata"]
        head = {"kind": manifest.obj["kind"], "namespace": namespace or None, "name": meta.get("name", "")}
        # The uid of a dry run belongs to nothing.
        done.append({**head, "uid": None if submission.dry_run else meta.get("uid"), "done": verb})
        if submission.dry_run:
            continue
        if gvr == CONFIG_MAPS and (job := read_labels(obj).get(SCRIPT_OF)):
            codes[f"{namespace}/{job}"] = obj
        elif gvr == TRAIN_JOBS:
            await _own_code(client, obj, codes.get(f"{namespace}/{meta['name']}"))
    return done


async def _own_code(client: Client, job: Object, script: Object | None) -> None:
    """Lets the job own the ConfigMap with its code, so that it is deleted with it. What fails here, the sweep does."""
    try:
        if script is not None:
            await adopt(client, script, job)
        elif CODE_MAP in read_annotations(job) and (found := await code_maps.find(client, job)) is not None:
            await code_maps.adopt(client, found, job)
    except NotFound:
        log.debug("the code is not there", extra={"action": "rest.unowned", "job": job["metadata"]["name"]})
    except StatusError as error:
        log.warning("code has no owner yet", extra={"action": "rest.unowned", "error": error.message})


def _explain(manifest: Manifest, error: StatusError, written: Sequence[Object]) -> Problem:
    name = manifest.obj["metadata"].get("name") or manifest.obj["metadata"].get("generateName", "")
    refusal, problem = describe_refusal(error), from_status(error)
    texts = [f"{path}: {message}" for path, message in refusal.fields] or [refusal.summary]
    detail = f'line {manifest.line}: {manifest.obj["kind"]} "{name}" was refused: {"; ".join(texts)}'
    done = ", ".join(f"{one['kind']} {one['name']}" for one in written if one["done"] != "unchanged")
    if done:
        detail += f"; written before it: {done}"
    hint = "choose another name, or delete it first" if refusal.exists else refusal.hint or problem.hint
    errors = [FieldProblem(f"line {manifest.line}: {text}", pointer=_POINTER) for text in texts]
    return Problem(problem.status, problem.kind, detail, hint=hint, errors=errors, retry_after=problem.retry_after)
