"""Makes a job out of an order, in one order of steps in every mode, each of which may be the last before a crash:

    1. the system ConfigMap of the framework, if it is not there        stays; the next job uses it
    2. `{user_id}-train-script`, the user's newest code                 stays; the next job replaces it
    3. `{trainjob}-script`, this job's own copy, which never changes    its name reserves the TrainJob's
    4. the TrainJob
    5. the TrainJob becomes the owner of its copy, which goes with it

A copy without an owner is looked at after ten minutes (`sweeping`): it gets its owner, or goes. A TrainJob that the
server refuses takes its copy with it at once; where nobody knows whether it was made, the sweep finds out.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import orjson

from trainmaster.api.labels import MANAGED_BY, REST_FRAMEWORK, SCRIPT_OF, SHIPPED_HASH, USER
from trainmaster.api.meta import Object
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import FieldProblem, Problem, from_status, invalid
from trainmaster.rest.services import naming, offers
from trainmaster.rest.services.orders import JobOrder, check_order
from trainmaster.rest.services.templates import Template, TemplateError, Templates, Value, fill

log = logging.getLogger(__name__)

MANAGER = "trainmaster-rest"
CODE_FILE = "train.py"
WRITES = WriteOptions(field_manager=MANAGER)
_NAME_TRIES = 12
"""Each goes further ahead than the one before; 4,095 seconds in all."""
_POINTERS = {
    "spec.trainer.numNodes": "/config/num_nodes",
    "spec.trainer.resourcesPerNode": "/config",
    "spec.trainer.env": "/config/num_nodes",
    "spec.runtimeRef": "/framework",
    "metadata.name": "/user_id",
}


@dataclass(frozen=True, slots=True)
class CreationRules:
    max_nodes: int = 1000
    check_code: bool = True


class JobMaker:
    """`remind` is told when a job was left without its last step."""

    def __init__(
        self,
        templates: Templates,
        offered: offers.Offers,
        clock: Clock,
        *,
        rules: CreationRules = CreationRules(),  # noqa: B008  # frozen
        remind: Callable[[], None] = lambda: None,
    ) -> None:
        self._templates = templates
        self.offered = offered
        self.clock = clock
        self.rules = rules
        self.remind = remind
        self.seconds = naming.Seconds()

    async def create(self, client: Client, order: JobOrder) -> Object:
        """The TrainJob, as the server stored it. Problem for an order that cannot be carried out."""
        template = self.find_template(order)
        await check_order(order, max_nodes=self.rules.max_nodes, check_code=self.rules.check_code)
        has_overrides = await self.offered.has_overrides()
        await self.ensure_system(client, order.namespace, template)
        failpoints.hit("rest.system_made")
        await _put_latest(client, order)
        failpoints.hit("rest.latest_made")
        for attempt in range(_NAME_TRIES):
            moment = self.seconds.take(order.namespace, order.user_id, self.clock.now(), (1 << attempt) - 1)
            job = self._build(order, template, moment, has_overrides)
            made = await self._make(client, order, job)
            if made is not None:
                return made
        raise Problem(409, "names-taken", "no second was free for the job's name", hint="send it again in a moment")

    def list_frameworks(self) -> list[str]:
        return self._templates.list_frameworks()

    def find_template(self, order: JobOrder) -> Template:
        try:
            template = self._templates.find(order.framework)
        except TemplateError as error:
            raise _build_broken(error) from None
        if template is None:
            known = ", ".join(self._templates.list_frameworks())
            text = f"there is no framework {order.framework[:40]!r}; there are {known}"
            raise invalid([FieldProblem(text, pointer="/framework")])
        return template

    async def ensure_system(self, client: Client, namespace: str, template: Template) -> None:
        """One that somebody edited is theirs; one that is as we made it follows the template."""
        system, wanted = template.system, _hash(template.system)
        name = system["metadata"]["name"]
        try:
            present = await client.get(CONFIG_MAPS, name, namespace)
        except NotFound:
            meta = {**system["metadata"], "namespace": namespace}
            meta["labels"] = {**(meta.get("labels") or {}), MANAGED_BY: MANAGER}
            meta["annotations"] = {**(meta.get("annotations") or {}), SHIPPED_HASH: wanted}
            try:
                await client.create(CONFIG_MAPS, {**system, "metadata": meta}, namespace, options=WRITES)
            except AlreadyExists:
                log.debug("another request made it", extra={"action": "rest.system", "namespace": namespace})
            return
        made = (present["metadata"].get("annotations") or {}).get(SHIPPED_HASH)
        if made == wanted or made != _hash(present):
            return
        head = {"resourceVersion": present["metadata"]["resourceVersion"], "annotations": {SHIPPED_HASH: wanted}}
        gone = {key: None for key in present.get("data") or () if key not in system["data"]}
        patch = {"metadata": head, "data": {**gone, **system["data"]}}
        try:
            await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, namespace, options=WRITES)
        except Conflict:
            log.debug("another request changed it", extra={"action": "rest.system", "namespace": namespace})

    def _build(self, order: JobOrder, template: Template, moment: datetime, has_overrides: bool) -> Object:
        name = naming.build_job_name(order.user_id, moment)
        job = fill_in(template.trainjob, order, name)
        meta = {**job["metadata"], "name": name, "namespace": order.namespace}
        own = {MANAGED_BY: MANAGER, USER: order.user_id, REST_FRAMEWORK: order.framework}
        meta["labels"] = {**(meta.get("labels") or {}), **own}
        job = {**job, "metadata": meta}
        return job if has_overrides else offers.to_patches(job)

    async def _make(self, client: Client, order: JobOrder, job: Object) -> Object | None:
        """The TrainJob with its copy; None when the name is taken."""
        namespace, name = order.namespace, job["metadata"]["name"]
        try:
            copy = await client.create(CONFIG_MAPS, _build_copy(order, name), namespace, options=WRITES)
        except AlreadyExists:
            return None
        failpoints.hit("rest.copy_made")
        try:
            made = await client.create(TRAIN_JOBS, job, namespace, options=WRITES)
        except StatusError as error:
            # From 500 on nobody knows whether it was made.
            if error.code >= 500:
                self.remind()
                raise
            await self.remove(client, copy)
            if isinstance(error, AlreadyExists):
                return None
            raise _explain(error) from None
        failpoints.hit("rest.trainjob_made")
        try:
            await adopt(client, copy, made)
        except StatusError as error:
            # The job runs; all that is missing is that its code goes with it.
            self.remind()
            log.warning("a script has no owner yet", extra={"action": "rest.unowned", "error": error.message})
        failpoints.hit("rest.owned")
        return made

    async def remove(self, client: Client, copy: Object) -> None:
        meta = copy["metadata"]
        try:
            await client.delete(CONFIG_MAPS, meta["name"], meta["namespace"], DeleteOptions(uid=meta["uid"]))
        except (NotFound, Conflict):
            return
        except StatusError as error:
            self.remind()
            log.warning("a script is left over", extra={"action": "rest.leftover", "error": error.message})


def _hash(config_map: Object) -> str:
    raw = orjson.dumps(config_map.get("data") or {}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(raw).hexdigest()[:32]


async def _put_latest(client: Client, order: JobOrder) -> None:
    name = naming.get_latest_script(order.user_id)
    labels = {MANAGED_BY: MANAGER, USER: order.user_id}
    patch: Object = {"metadata": {"labels": labels}, "data": {CODE_FILE: order.code}}
    try:
        await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, order.namespace, options=WRITES)
    except NotFound:
        meta = {"name": name, "namespace": order.namespace, "labels": labels}
        fresh = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CODE_FILE: order.code}}
        try:
            await client.create(CONFIG_MAPS, fresh, order.namespace, options=WRITES)
        except AlreadyExists:
            await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, order.namespace, options=WRITES)


def _build_copy(order: JobOrder, trainjob: str) -> Object:
    labels = {MANAGED_BY: MANAGER, USER: order.user_id, SCRIPT_OF: trainjob}
    meta = {"name": naming.get_job_script(trainjob), "namespace": order.namespace, "labels": labels}
    data = {CODE_FILE: order.code}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}


async def adopt(client: Client, copy: Object, trainjob: Object) -> None:
    """Lets the copy go with its TrainJob."""
    owner = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "name": trainjob["metadata"]["name"],
        "uid": trainjob["metadata"]["uid"],
    }
    meta = copy["metadata"]
    patch = {"metadata": {"uid": meta["uid"], "ownerReferences": [owner]}}
    await client.patch(CONFIG_MAPS, meta["name"], PatchType.MERGE, patch, meta["namespace"], options=WRITES)


def _explain(error: StatusError) -> Problem:
    """The server's refusal of the TrainJob, with the fields of the request that it comes from."""
    problem = from_status(error)
    errors = []
    for cause in error.causes:
        field = str(cause.get("field") or "")
        pointer = next((value for key, value in _POINTERS.items() if field.startswith(key)), "")
        errors.append(FieldProblem(str(cause.get("message") or error.message), pointer=pointer))
    status, kind, hint = problem.status, problem.kind, ""
    if "denied the request" in problem.detail:
        # A webhook's no reaches clients as 403, and is about what was sent, not about who sent it.
        status, kind, hint = 422, "refused", "change what it names, or ask an administrator about the template"
    if isinstance(error, NotFound):
        hint = "ask an administrator to make the namespace"
    elif "must be created before the TrainJob" in problem.detail:
        hint = "ask an administrator to install the runtime of this framework"
    elif "exceeded quota" in problem.detail:
        hint = "delete a job that is over, or ask an administrator for more"
    return Problem(status, kind, problem.detail, hint=hint, errors=errors)


def fill_in(trainjob: Object, order: JobOrder, name: str) -> Object:
    """A template's TrainJob for an order, under that name. Problem 500 for a template that cannot be filled."""
    values: dict[str, Value] = {
        "trainjob_name": name,
        "namespace": order.namespace,
        "user_id": order.user_id,
        "num_nodes": order.num_nodes,
        "gpu_per_node": order.gpu_per_node or None,
        "cpu_per_node": order.cpu_per_node,
        "memory_per_node": order.memory_per_node,
        "script_configmap": naming.get_job_script(name),
    }
    try:
        filled: Object = fill(trainjob, values)
    except TemplateError as error:
        raise _build_broken(error) from None
    return filled


def _build_broken(error: TemplateError) -> Problem:
    return Problem(500, "template", str(error), hint="an administrator has to correct the template")
