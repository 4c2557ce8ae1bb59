"""Creates a job of `/api/v1` from a framework's template or any runtime, with code, packages, variables and volumes.

The steps are those of `guide_jobs`, and a crash may occur after any of them: the framework's system ConfigMap, the
job's own code (an immutable ConfigMap, or a bundle of the home if it is larger), the TrainJob, the owner of the code.
The sweep completes or removes what is left.

With an Idempotency-Key the name is derived from the key if none was requested, and what is created has the hashes of
key and body. So a repeated request finds what the first one created: the TrainJob or the record of a deleted job, which
is returned again, or only the code, from which it continues.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.api.code import CODE_DIGEST, build_volume
from trainmaster.api.labels import (
    KEEP_CHECKPOINTS,
    MANAGED_BY,
    QUEUE_NAME,
    REST_FRAMEWORK,
    RESUME_FROM,
    SCRIPT_OF,
    USER,
)
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_labels
from trainmaster.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    RESOURCE_QUOTAS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.api.tenancy import find_storage_problem
from trainmaster.api.training.steps import read_framework
from trainmaster.client.contract import Client, ListOptions
from trainmaster.jobs.compose.refusals import RefusalCause
from trainmaster.jobs.compose.request import JobRequest, MountedCode
from trainmaster.jobs.compose.trainjob import SupportedFields, complete, compose
from trainmaster.rest.problems import FieldProblem, Problem, invalid
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.code import ENTRY, INLINE_BYTES, CodeTree, build_data, store_bundle
from trainmaster.rest.services.creation.guide_jobs import (
    MANAGER,
    TOO_LARGE_HINT,
    WRITES,
    CreationRules,
    GuideJobs,
    adopt,
    explain_refusal,
    fill_in,
)
from trainmaster.rest.services.creation.guide_request import GuideRequest
from trainmaster.rest.services.creation.new_job_request import NewJobRequest
from trainmaster.rest.services.creation.rerunning import KEY_LABEL
from trainmaster.rest.services.history import HistoryService, RecordsWanted

log = logging.getLogger(__name__)

BODY_HASH = "trainmaster.dev/idempotency-body"
"""Annotation next to the label with the key: the hash of the request's body."""
SCRIPTS = "/workspace/scripts"
CODE_VOLUME = "train-script"
_NAME_TRIES = 12
_POINTERS = {
    "nodes": "/config/num_nodes",
    "resources": "/config",
    "env": "/env",
    "runtime": "/runtime",
    "ttl_seconds": "/ttl_seconds",
    "deadline_seconds": "/deadline_seconds",
    "labels": "/labels",
    "name": "/name",
    "packages": "/packages",
    "processes": "/processes_per_node",
}
"""Parts of a job and their pointers in the request."""
_HINTS = {
    RefusalCause.NO_RUNTIME: "GET /api/v1/runtimes lists the runtimes that there are",
    RefusalCause.QUOTA: "delete a job that is over, or ask an administrator for more",
    RefusalCause.TOO_LARGE: TOO_LARGE_HINT,
}


@dataclass(frozen=True, slots=True)
class Ticket:
    """The hashed Idempotency-Key and body of a request; empty without a key."""

    key: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    name: str
    namespace: str
    uid: str
    created_at: str
    replayed: bool = False


class NewJobs:
    """`bundles` is the home's directory; None without a home, in which case larger code is refused."""

    def __init__(self, maker: GuideJobs, history: HistoryService, bundles: Path | None) -> None:
        self._maker = maker
        self._history = history
        self._bundles = bundles

    @property
    def rules(self) -> CreationRules:
        return self._maker.rules

    async def find_made(self, client: Client, asked: NewJobRequest, ticket: Ticket) -> Made | None:
        """What an earlier request with this key has created."""
        if not ticket.key:
            return None
        namespace, name = asked.basics.namespace, choose_name(asked, ticket)
        try:
            return _replay(await client.get(TRAIN_JOBS, name, namespace), ticket)
        except NotFound:
            items, _ = await self._history.select(RecordsWanted((namespace,), name, deleted=True, limit=1))
        for item in items:
            record = await self._history.get(namespace, item["uid"])
            if _get_key(record.document["trainjob"]) == ticket.key:
                return _replay(record.document["trainjob"], ticket)
        return None

    async def create(self, client: Client, asked: NewJobRequest, ticket: Ticket) -> Made:
        base = await self._get_base(client, asked)
        for attempt in range(_NAME_TRIES):
            name = choose_name(asked, ticket)
            if not name:
                user, space = asked.basics.user_id, asked.basics.namespace
                moment = self._maker.seconds.take(space, user, self._maker.clock.now(), (1 << attempt) - 1)
                name = naming.build_job_name(user, moment)
            made = await self._make(client, asked, ticket, name, base)
            if made is not None:
                return made
            if choose_name(asked, ticket):
                raise Problem(409, "already-exists", f"there is a job {name!r} already", hint="choose another name")
        raise Problem(409, "names-taken", "no second was free for the job's name", hint="send it again in a moment")

    async def preview(self, client: Client, asked: NewJobRequest) -> list[Object]:
        """The objects that `create` would make now; none for code that only a bundle can hold. Creates nothing."""
        base, errors = await self._find_base(client, asked)
        if base is None or errors:
            raise invalid(errors)
        name = choose_name(asked, Ticket()) or naming.build_job_name(asked.basics.user_id, self._maker.clock.now())
        if asked.tree is None:
            return [_compose(asked, Ticket(), name, base, None, await self._maker.server.get_shape())]
        if not asked.tree.is_small:
            return []
        script, code = _build_script(asked, asked.tree, Ticket(), name)
        return [script, _compose(asked, Ticket(), name, base, code, await self._maker.server.get_shape())]

    # Building everything except the name

    async def list_base_problems(self, client: Client, asked: NewJobRequest) -> list[FieldProblem]:
        """What the request needs and this installation does not have."""
        try:
            return (await self._find_base(client, asked))[1]
        except (StatusError, Problem):
            # A runtime that the caller may not read, or a broken template: reported once the request itself is valid.
            return []

    async def _get_base(self, client: Client, asked: NewJobRequest) -> Object:
        """The TrainJob of the framework's template, or the given runtime."""
        base, errors = await self._find_base(client, asked)
        if base is None or errors:
            raise invalid(errors)
        if asked.basics.framework:
            template = self._maker.get_template(asked.basics.framework)
            await self._maker.ensure_system(client, asked.basics.namespace, template)
        return base

    async def _find_base(self, client: Client, asked: NewJobRequest) -> tuple[Object | None, list[FieldProblem]]:
        base: Object | None = None
        errors = []
        if asked.packages and self._bundles is None:
            text = "packages are installed by the server of a home; on a cluster the image has them"
            errors.append(FieldProblem(text, pointer="/packages"))
        if asked.tree is not None and not asked.tree.is_small and self._bundles is None:
            text = f"has {asked.tree.size} bytes in {len(asked.tree.files)} files; on a cluster {INLINE_BYTES} fit"
            errors.append(FieldProblem(f"{text}: keep data in volumes, send only code", pointer=asked.code_pointer))
        if asked.basics.framework:
            errors += self._maker.list_framework_problems(asked.basics.framework)
            if not errors:
                base = self._maker.get_template(asked.basics.framework).trainjob
        elif asked.runtime and (asked.basics.namespace or asked.runtime_kind != "TrainingRuntime"):
            base = await _find_runtime(client, asked)
            if base is None:
                text = f"there is no {asked.runtime_kind} {asked.runtime[:64]!r}; GET /api/v1/runtimes lists them"
                errors.append(FieldProblem(text, pointer="/runtime"))
        return base, errors

    # Creating

    async def _make(self, client: Client, asked: NewJobRequest, ticket: Ticket, name: str, base: Object) -> Made | None:
        """None if the name is taken by something else."""
        script, code = await self._make_code(client, asked, ticket, name)
        if code is None and asked.tree is not None:
            return None
        whole = _compose(asked, ticket, name, base, code, await self._maker.server.get_shape())
        try:
            made = await client.create(TRAIN_JOBS, whole, asked.basics.namespace, options=WRITES)
        except AlreadyExists:
            present = await client.get(TRAIN_JOBS, name, asked.basics.namespace)
            if ticket.key and _get_key(present) == ticket.key:
                return _replay(present, ticket)
            await self._drop(client, script)
            return None
        except StatusError as error:
            # From 500 on it is unknown whether it was created.
            if error.code >= 500:
                self._maker.remind()
                raise
            await self._drop(client, script)
            raise explain_refusal(error, _POINTERS, _HINTS) from None
        if script is not None:
            await self._adopt(client, script, made)
        return _read_made(made)

    async def _make_code(
        self, client: Client, asked: NewJobRequest, ticket: Ticket, name: str
    ) -> tuple[Object | None, MountedCode | None]:
        """(the ConfigMap, the code in it); no code if the name is taken or there is none."""
        tree, script = asked.tree, naming.get_job_script(name)
        if tree is None:
            return None, None
        if not tree.is_small:
            assert self._bundles is not None
            await _check_budget(client, asked.basics.namespace)
            digest = await asyncio.to_thread(store_bundle, self._bundles, tree, asked.basics.namespace)
            return None, MountedCode(build_volume(digest, CODE_VOLUME), SCRIPTS, script, {CODE_DIGEST: digest})
        body, code = _build_script(asked, tree, ticket, name)
        try:
            return await client.create(CONFIG_MAPS, body, asked.basics.namespace, options=WRITES), code
        except AlreadyExists:
            present = await client.get(CONFIG_MAPS, script, asked.basics.namespace)
            if not ticket.key or _get_key(present) != ticket.key:
                return None, None
            _check_body(present, ticket)
            return present, code

    async def _adopt(self, client: Client, script: Object, made: Object) -> None:
        try:
            await adopt(client, script, made)
        except StatusError as error:
            # The job was created; only its code would not be deleted with it yet.
            self._maker.remind()
            log.warning("a script has no owner yet", extra={"action": "rest.unowned", "error": error.message})

    async def _drop(self, client: Client, script: Object | None) -> None:
        if script is not None and not script["metadata"].get("ownerReferences"):
            await self._maker.remove(client, script)


def _build_script(asked: NewJobRequest, tree: CodeTree, ticket: Ticket, name: str) -> tuple[Object, MountedCode]:
    """The ConfigMap of the job's own code, and the code as a job mounts it."""
    data, items = build_data(tree)
    script, labels = naming.get_job_script(name), {MANAGED_BY: MANAGER, USER: asked.basics.user_id, SCRIPT_OF: name}
    meta: Object = {"name": script, "namespace": asked.basics.namespace, "labels": labels}
    if ticket.key:
        labels[KEY_LABEL] = ticket.key
        meta["annotations"] = {BODY_HASH: ticket.body}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, **data}
    source = {"name": script, **({"items": items} if items else {})}
    return body, MountedCode({"name": CODE_VOLUME, "configMap": source}, SCRIPTS, script)


def choose_name(asked: NewJobRequest, ticket: Ticket) -> str:
    """The requested name, or one derived from the key; "" if it is to be derived from the time."""
    if asked.name is not None:
        return asked.name
    return f"{asked.basics.user_id}-{ticket.key[:10]}" if ticket.key else ""


async def _find_runtime(client: Client, asked: NewJobRequest) -> Object | None:
    narrow = asked.runtime_kind == "TrainingRuntime"
    gvr, space = (TRAINING_RUNTIMES, asked.basics.namespace) if narrow else (CLUSTER_TRAINING_RUNTIMES, "")
    try:
        return {**await client.get(gvr, asked.runtime, space), "kind": asked.runtime_kind}
    except NotFound:
        return None


def _compose(
    asked: NewJobRequest, ticket: Ticket, name: str, base: Object, code: MountedCode | None, shape: SupportedFields
) -> Object:
    """The TrainJob under its name, with its code. `base` is a template's TrainJob or a runtime."""
    basics = asked.basics
    labels = {**asked.labels, MANAGED_BY: MANAGER, USER: basics.user_id}
    if ticket.key:
        labels[KEY_LABEL] = ticket.key
    if asked.queue:
        labels[QUEUE_NAME] = asked.queue
    request = JobRequest(
        name,
        basics.namespace,
        nodes=basics.num_nodes,
        processes="" if asked.processes is None else str(asked.processes),
        env=asked.env,
        mounts=tuple(asked.mounts),
        resources=_list_resources(basics),
        labels={**labels, REST_FRAMEWORK: basics.framework} if basics.framework else labels,
        annotations=_build_annotations(asked, ticket),
        packages=tuple(asked.packages),
        code=code,
        ttl_seconds=asked.ttl_seconds,
        deadline_seconds=asked.deadline_seconds,
        is_suspended=asked.suspended,
    )
    if not basics.framework:
        return compose(replace(request, command=_build_command(asked, base)), base, shape).trainjob
    filled = fill_in(base, basics, name)
    if asked.tree is not None:
        _set_entry(filled, asked.tree.entry)
    return complete(request, filled, shape)


def _build_annotations(asked: NewJobRequest, ticket: Ticket) -> dict[str, str]:
    given = {
        BODY_HASH: ticket.body if ticket.key else "",
        RESUME_FROM: asked.resume_from,
        KEEP_CHECKPOINTS: "" if asked.keep_checkpoints is None else str(asked.keep_checkpoints),
    }
    return {key: value for key, value in given.items() if value}


def _list_resources(basics: GuideRequest) -> dict[str, str | int]:
    amounts = {
        "cpu": basics.cpu_per_node,
        "memory": basics.memory_per_node,
        "nvidia.com/gpu": basics.gpu_per_node or None,
    }
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _build_command(asked: NewJobRequest, runtime: Object) -> tuple[str, ...]:
    if asked.command or asked.tree is None:
        return (*asked.command, *asked.arguments)
    program = "torchrun" if read_framework(runtime)[0] == "torch" else "python"
    return program, f"{SCRIPTS}/{asked.tree.entry}", *asked.arguments


def _set_entry(job: Object, entry: str) -> None:
    """Replaces the script that templates start, /workspace/scripts/train.py."""
    trainer = job["spec"].get("trainer") or {}
    for name in ("command", "args"):
        if name in trainer:
            trainer[name] = [word.replace(f"{SCRIPTS}/{ENTRY}", f"{SCRIPTS}/{entry}") for word in trainer[name]]


# Idempotency keys


def _get_key(obj: Object) -> str:
    return read_labels(obj).get(KEY_LABEL, "")


def _check_body(obj: Object, ticket: Ticket) -> None:
    if read_annotations(obj).get(BODY_HASH) != ticket.body:
        text = "this Idempotency-Key was used for another request"
        raise Problem(422, "key-reused", text, hint="send a new key with a new request")


def _replay(job: Object, ticket: Ticket) -> Made:
    if _get_key(job) != ticket.key:
        name = job["metadata"]["name"]
        raise Problem(409, "already-exists", f"there is a job {name!r} already", hint="choose another name")
    _check_body(job, ticket)
    return _read_made(job, replayed=True)


def _read_made(job: Object, *, replayed: bool = False) -> Made:
    meta = job["metadata"]
    return Made(meta["name"], meta["namespace"], meta["uid"], meta["creationTimestamp"], replayed)


async def _check_budget(client: Client, namespace: str) -> None:
    """Code uses space before the job is created. Raises Problem while the namespace exceeds its storage quota."""
    for quota in (await client.list(RESOURCE_QUOTAS, namespace, ListOptions())).items:
        problem = find_storage_problem(quota)
        if problem:
            raise Problem(403, "forbidden", problem)
