"""Makes a job of `/api/v1`: of a framework's template or of any runtime, with code, packages, variables and volumes.

In the order of `creating`, each step of which may be the last before a crash: the framework's system ConfigMap, the
job's own code (an immutable ConfigMap, or a bundle of the home where it is larger), the TrainJob, the owner of the
code. What is left half done the sweep finds.

With an Idempotency-Key the name is derived from the key where none was asked for, and the hash of key and body stand
on what is made. So a request that comes again meets what the first one made, whatever became of that one: the TrainJob
(answered again), only the code (gone on with), or the record of a job that was deleted (answered again).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.api.code import CODE_DIGEST, build_volume
from trainmaster.api.labels import MANAGED_BY, PACKAGES, REST_FRAMEWORK, SCRIPT_OF, USER
from trainmaster.api.lifecycle.term_names import DEADLINE_ANNOTATION, DEADLINE_FIELD, TTL_ANNOTATION, TTL_FIELD
from trainmaster.api.meta import Object
from trainmaster.api.resources import CLUSTER_TRAINING_RUNTIMES, CONFIG_MAPS, TRAIN_JOBS, TRAINING_RUNTIMES
from trainmaster.api.status import AlreadyExists, NotFound, StatusError
from trainmaster.api.tenancy import RESOURCE_QUOTAS, find_storage_problem
from trainmaster.api.training.steps import NODE, find_policy, get_template_spec, list_jobs, list_node_jobs
from trainmaster.client.contract import Client, ListOptions
from trainmaster.rest.problems import FieldProblem, Problem, from_status, invalid
from trainmaster.rest.services import naming, offers
from trainmaster.rest.services.code import ENTRY, INLINE_BYTES, build_data, store_bundle
from trainmaster.rest.services.creating import MANAGER, WRITES, JobMaker, adopt, fill_in
from trainmaster.rest.services.history import HistoryDesk, RecordsWanted
from trainmaster.rest.services.rerunning import KEY_LABEL
from trainmaster.rest.services.wishes import JobWish

log = logging.getLogger(__name__)

BODY_HASH = "trainmaster.dev/idempotency-body"
"""Annotation beside the label with the key: the hash of the request's body."""
SCRIPTS = "/workspace/scripts"
CODE_VOLUME = "train-script"
_DOLLARS = re.compile(r"\$\$+|\$(?=\()")
_NAME_TRIES = 12
_POINTERS = {
    "spec.trainer.numNodes": "/config/num_nodes",
    "spec.trainer.resourcesPerNode": "/config",
    "spec.trainer.env": "/env",
    "spec.runtimeRef": "/runtime",
    "spec.ttlSecondsAfterFinished": "/ttl_seconds",
    "spec.activeDeadlineSeconds": "/deadline_seconds",
    "metadata.labels": "/labels",
    "metadata.name": "/name",
}


@dataclass(frozen=True, slots=True)
class Ticket:
    """The Idempotency-Key of a request and its body, hashed; empty for a request without one."""

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
    """`bundles` is the folder of the home's; None where there is no home: larger code is refused then."""

    def __init__(self, maker: JobMaker, history: HistoryDesk, bundles: Path | None) -> None:
        self._maker = maker
        self._history = history
        self._bundles = bundles

    @property
    def rules(self) -> Any:
        return self._maker.rules

    async def find_made(self, client: Client, wish: JobWish, ticket: Ticket) -> Made | None:
        """What an earlier request with this key has made."""
        if not ticket.key:
            return None
        namespace, name = wish.order.namespace, choose_name(wish, ticket)
        try:
            return _replay(await client.get(TRAIN_JOBS, name, namespace), ticket)
        except NotFound:
            items, _ = await self._history.select(RecordsWanted(namespace, name, deleted=True, limit=1))
        for item in items:
            record = await self._history.get(namespace, item["uid"])
            if _get_key(record.document["trainjob"]) == ticket.key:
                return _replay(record.document["trainjob"], ticket)
        return None

    async def create(self, client: Client, wish: JobWish, ticket: Ticket) -> Made:
        job = await self._build(client, wish)
        for attempt in range(_NAME_TRIES):
            name = choose_name(wish, ticket)
            if not name:
                user, space = wish.order.user_id, wish.order.namespace
                moment = self._maker.seconds.take(space, user, self._maker.clock.now(), (1 << attempt) - 1)
                name = naming.build_job_name(user, moment)
            made = await self._make(client, wish, ticket, name, job)
            if made is not None:
                return made
            if choose_name(wish, ticket):
                raise Problem(409, "already-exists", f"there is a job {name!r} already", hint="choose another name")
        raise Problem(409, "names-taken", "no second was free for the job's name", hint="send it again in a moment")

    # Building: everything but the name

    async def _build(self, client: Client, wish: JobWish) -> Object:
        if wish.order.framework:
            template = self._maker.find_template(wish.order)
            await self._maker.ensure_system(client, wish.order.namespace, template)
            job: Object = copy.deepcopy(template.trainjob)
        else:
            job = await _build_plain(client, wish)
        fields = await self._maker.offered.list_fields()
        _add_terms(job, wish, fields)
        if wish.packages and self._bundles is None:
            text = "packages are installed by the server of a home; on a cluster the image has them"
            raise invalid([FieldProblem(text, pointer="/packages")])
        if wish.suspended:
            job["spec"]["suspend"] = True
        return job

    def _finish(
        self, wish: JobWish, ticket: Ticket, name: str, job: Object, source: Object | None, has: bool
    ) -> Object:
        """The TrainJob under its name, with its code."""
        order = wish.order
        filled = fill_in(job, order, name) if order.framework else copy.deepcopy(job)
        for override in _list_node_overrides(filled):
            _fit_override(override, wish, naming.get_job_script(name), source)
        if order.framework and wish.tree is not None:
            _set_entry(filled, wish.tree.entry)
        _add_env(filled, wish)
        meta = filled.setdefault("metadata", {})
        labels = {**(meta.get("labels") or {}), **wish.labels, MANAGED_BY: MANAGER, USER: order.user_id}
        if order.framework:
            labels[REST_FRAMEWORK] = order.framework
        notes = dict(meta.get("annotations") or {})
        if ticket.key:
            labels[KEY_LABEL], notes[BODY_HASH] = ticket.key, ticket.body
        digest = ((source or {}).get("csi") or {}).get("volumeAttributes", {}).get("digest")
        if digest:
            notes[CODE_DIGEST] = digest
        filled["metadata"] = {
            **meta,
            "name": name,
            "namespace": order.namespace,
            "labels": labels,
            "annotations": notes,
        }
        return filled if has else offers.to_patches(filled)

    # Making

    async def _make(self, client: Client, wish: JobWish, ticket: Ticket, name: str, job: Object) -> Made | None:
        """None when the name is taken by something else."""
        script, source = await self._make_code(client, wish, ticket, name)
        if source is None and wish.tree is not None:
            return None
        has = await self._maker.offered.has_overrides()
        whole = self._finish(wish, ticket, name, job, source, has)
        try:
            made = await client.create(TRAIN_JOBS, whole, wish.order.namespace, options=WRITES)
        except AlreadyExists:
            present = await client.get(TRAIN_JOBS, name, wish.order.namespace)
            if ticket.key and _get_key(present) == ticket.key:
                return _replay(present, ticket)
            await self._drop(client, script)
            return None
        except StatusError as error:
            # From 500 on nobody knows whether it was made.
            if error.code >= 500:
                self._maker.remind()
                raise
            await self._drop(client, script)
            raise explain_refusal(error) from None
        if script is not None:
            await self._adopt(client, script, made)
        return _read_made(made)

    async def _make_code(
        self, client: Client, wish: JobWish, ticket: Ticket, name: str
    ) -> tuple[Object | None, Object | None]:
        """(the ConfigMap, the volume's source); the source is None when the name is taken or there is no code."""
        tree = wish.tree
        if tree is None:
            return None, None
        if not tree.is_small:
            if self._bundles is None:
                text = f"has {tree.size} bytes in {len(tree.files)} files; on a cluster {INLINE_BYTES} fit"
                raise invalid([FieldProblem(text, pointer="/archive")], hint="keep data in volumes, send only code")
            await _check_budget(client, wish.order.namespace)
            digest = await asyncio.to_thread(store_bundle, self._bundles, tree, wish.order.namespace)
            return None, {"csi": build_volume(digest)["csi"]}
        data, items = build_data(tree)
        labels = {MANAGED_BY: MANAGER, USER: wish.order.user_id, SCRIPT_OF: name}
        meta: Object = {"name": naming.get_job_script(name), "namespace": wish.order.namespace, "labels": labels}
        if ticket.key:
            labels[KEY_LABEL] = ticket.key
            meta["annotations"] = {BODY_HASH: ticket.body}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, **data}
        source = {"configMap": {"name": meta["name"], **({"items": items} if items else {})}}
        try:
            return await client.create(CONFIG_MAPS, body, wish.order.namespace, options=WRITES), source
        except AlreadyExists:
            present = await client.get(CONFIG_MAPS, meta["name"], wish.order.namespace)
            if not ticket.key or _get_key(present) != ticket.key:
                return None, None
            _check_body(present, ticket)
            return present, source

    async def _adopt(self, client: Client, script: Object, made: Object) -> None:
        try:
            await adopt(client, script, made)
        except StatusError as error:
            # The job runs; all that is missing is that its code goes with it.
            self._maker.remind()
            log.warning("a script has no owner yet", extra={"action": "rest.unowned", "error": error.message})

    async def _drop(self, client: Client, script: Object | None) -> None:
        if script is not None and not script["metadata"].get("ownerReferences"):
            await self._maker.remove(client, script)


def choose_name(wish: JobWish, ticket: Ticket) -> str:
    """ "" where it is made of the time."""
    if wish.name is not None:
        return wish.name
    return f"{wish.order.user_id}-{ticket.key[:10]}" if ticket.key else ""


def escape(text: str) -> str:
    """So that Kubernetes, which replaces $(NAME) and halves $$, arrives at exactly this text."""
    return _DOLLARS.sub(lambda match: match[0] * 2, text)


async def _build_plain(client: Client, wish: JobWish) -> Object:
    """A TrainJob of a runtime, without a template."""
    narrow = wish.runtime_kind == "TrainingRuntime"
    gvr, space = (TRAINING_RUNTIMES, wish.order.namespace) if narrow else (CLUSTER_TRAINING_RUNTIMES, "")
    try:
        runtime = await client.get(gvr, wish.runtime, space)
    except NotFound:
        text = f"there is no {wish.runtime_kind} {wish.runtime[:64]!r}"
        raise invalid([FieldProblem(text, pointer="/runtime")], hint="GET /api/v1/runtimes lists them") from None
    order = wish.order
    amounts = {"cpu": order.cpu_per_node, "memory": order.memory_per_node, "nvidia.com/gpu": order.gpu_per_node or None}
    asked = {name: amount for name, amount in amounts.items() if amount is not None}
    trainer: Object = {"numNodes": order.num_nodes}
    if wish.command:
        trainer["command"] = [escape(word) for word in wish.command]
    elif wish.tree is not None:
        program = "torchrun" if find_policy(runtime)[0] == "torch" else "python"
        trainer["command"] = [program, f"{SCRIPTS}/{wish.tree.entry}"]
    if asked:
        trainer["resourcesPerNode"] = {"requests": asked, "limits": dict(asked)}
    names = [job["name"] for job in list_node_jobs(runtime, list_jobs(get_template_spec(runtime)))]
    override: Object = {"targetJobs": [{"name": name} for name in names or [NODE]], "spec": {}}
    spec: Object = {"runtimeRef": {"name": wish.runtime, "kind": wish.runtime_kind}, "trainer": trainer}
    spec |= {offers.OVERRIDES: [override]}
    return {"apiVersion": TRAIN_JOBS.api_version, "kind": "TrainJob", "metadata": {}, "spec": spec}


def _add_terms(job: Object, wish: JobWish, fields: frozenset[str]) -> None:
    """As a field where the server has it, else as our annotation of the same meaning."""
    for name, annotation, seconds in (
        (TTL_FIELD, TTL_ANNOTATION, wish.ttl_seconds),
        (DEADLINE_FIELD, DEADLINE_ANNOTATION, wish.deadline_seconds),
    ):
        if seconds is None:
            continue
        if name in fields:
            job["spec"][name] = seconds
        else:
            notes = job.setdefault("metadata", {}).setdefault("annotations", {})
            notes[annotation] = str(seconds)


def _list_node_overrides(job: Object) -> Iterator[Object]:
    """The first that speaks about each of the trainer's jobs."""
    found = job["spec"].get(offers.OVERRIDES) or []
    yield from found[:1]


def _fit_override(override: Object, wish: JobWish, script: str, source: Object | None) -> None:
    spec = override.setdefault("spec", {})
    volumes = list(spec.get("volumes") or ())
    containers = spec.setdefault("containers", [])
    node = next((one for one in containers if one.get("name") == NODE), None)
    if node is None:
        node = {"name": NODE}
        containers.append(node)
    mounts = list(node.get("volumeMounts") or ())
    if source is not None:
        known = next((one for one in volumes if (one.get("configMap") or {}).get("name") == script), None)
        if known is None:
            volumes.append({"name": CODE_VOLUME, **source})
            mounts.append({"name": CODE_VOLUME, "mountPath": SCRIPTS})
        else:
            volumes[volumes.index(known)] = {"name": known["name"], **source}
    for number, mount in enumerate(wish.mounts):
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": mount.claim}})
        entry = {"name": f"claim-{number}", "mountPath": mount.path.rstrip("/")}
        mounts.append({**entry, "readOnly": True} if mount.read_only else entry)
    if volumes:
        spec["volumes"], node["volumeMounts"] = volumes, mounts
    elif not mounts and set(node) == {"name"}:
        del spec["containers"]
    if wish.packages:
        notes = override.setdefault("metadata", {}).setdefault("annotations", {})
        notes[PACKAGES] = "\n".join(wish.packages)


def _add_env(job: Object, wish: JobWish) -> None:
    """After the placeholders were filled in: a value may look like one."""
    if wish.env:
        trainer = job["spec"].setdefault("trainer", {})
        known = [entry for entry in trainer.get("env") or () if entry.get("name") not in wish.env]
        trainer["env"] = [*known, *({"name": name, "value": escape(value)} for name, value in wish.env.items())]


def _set_entry(job: Object, entry: str) -> None:
    """Templates start /workspace/scripts/train.py."""
    trainer = job["spec"].get("trainer") or {}
    for name in ("command", "args"):
        if name in trainer:
            trainer[name] = [word.replace(f"{SCRIPTS}/{ENTRY}", f"{SCRIPTS}/{entry}") for word in trainer[name]]


def explain_refusal(error: StatusError) -> Problem:
    """The server's no to the TrainJob, with the fields of the request that it comes from."""
    problem = from_status(error)
    errors = []
    for cause in error.causes:
        path = str(cause.get("field") or "")
        pointer = next((value for key, value in _POINTERS.items() if path.startswith(key)), "")
        if path.endswith(f"[{PACKAGES}]"):
            pointer = "/packages"
        errors.append(FieldProblem(str(cause.get("message") or error.message), pointer=pointer))
    hint = problem.hint
    if "exceeded quota" in problem.detail:
        hint = "delete a job that is over, or ask an administrator for more"
    elif "must be created before the TrainJob" in problem.detail:
        hint = "GET /api/v1/runtimes lists the runtimes that there are"
    return Problem(problem.status, problem.kind, problem.detail, hint=hint, errors=errors)


# Keys


def _get_key(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(KEY_LABEL, ""))


def _check_body(obj: Object, ticket: Ticket) -> None:
    if (obj["metadata"].get("annotations") or {}).get(BODY_HASH) != ticket.body:
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
    """Code takes room before the job is asked for. Problem while the namespace keeps more than it may."""
    for quota in (await client.list(RESOURCE_QUOTAS, namespace, ListOptions())).items:
        problem = find_storage_problem(quota)
        if problem:
            raise Problem(403, "forbidden", problem)
