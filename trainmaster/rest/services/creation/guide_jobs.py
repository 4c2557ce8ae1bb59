"""Creates a job from the guide's request, in a fixed order of steps, so that a crash after any of them can be handled:

    1. the system ConfigMap of the framework, if it is not there        stays; the next job uses it
    2. `{user_id}-train-script`, the user's newest code                 stays; the next job replaces it
    3. `{trainjob}-script`, this job's own copy, which never changes    its name reserves the TrainJob's
    4. the TrainJob
    5. the TrainJob becomes the owner of its copy, which goes with it

A copy without an owner is checked after ten minutes (`sweeping`): it gets its owner, or is deleted. If the server
refuses the TrainJob, the copy is deleted immediately; if it is unknown whether it was created, the sweep finds out.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import orjson

from trainmaster.api.labels import MANAGED_BY, REST_FRAMEWORK, SCRIPT_OF, SHIPPED_HASH, USER
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields, read_labels
from trainmaster.api.resources import CONFIG_MAPS, TRAIN_JOBS
from trainmaster.api.status import AlreadyExists, Conflict, NotFound, StatusError
from trainmaster.client.contract import Client, DeleteOptions, PatchType, WriteOptions
from trainmaster.jobs.compose.refusals import RefusalCause, is_denied, judge_refusal, list_refused_parts
from trainmaster.jobs.compose.request import JobRequest
from trainmaster.jobs.compose.trainjob import SupportedFields, complete
from trainmaster.kit import failpoints
from trainmaster.kit.clock import Clock
from trainmaster.rest.problems import FieldProblem, Problem, from_status, invalid
from trainmaster.rest.services.creation import naming
from trainmaster.rest.services.creation.guide_request import GuideRequest, list_guide_problems
from trainmaster.rest.services.creation.server_fields import ServerFields
from trainmaster.rest.services.creation.templates import Template, TemplateError, Templates, Value, fill

log = logging.getLogger(__name__)

MANAGER = "trainmaster-rest"
CODE_FILE = "train.py"
WRITES = WriteOptions(field_manager=MANAGER)
_NAME_TRIES = 12
"""Each attempt skips further ahead than the previous one; 4,095 seconds in total."""
_POINTERS = {
    "nodes": "/config/num_nodes",
    "resources": "/config",
    "env": "/config/num_nodes",
    "runtime": "/framework",
    "name": "/user_id",
}
"""Parts of a job and their pointers in the guide's request."""
TOO_LARGE_HINT = (
    "ask for fewer nodes, or for less of each in config (a node without amounts gets the defaults of the namespace); "
    "or ask an administrator for more"
)
_HINTS = {
    RefusalCause.NO_NAMESPACE: "ask an administrator to make the namespace",
    RefusalCause.NO_RUNTIME: "ask an administrator to install the runtime of this framework",
    RefusalCause.QUOTA: "delete a job that is over, or ask an administrator for more",
    RefusalCause.TOO_LARGE: TOO_LARGE_HINT,
    RefusalCause.WEBHOOK: "change what it names, or ask an administrator about the template",
}


@dataclass(frozen=True, slots=True)
class CreationRules:
    max_nodes: int = 1000
    check_code: bool = True


class GuideJobs:
    """`remind` is called when a job's last step failed."""

    def __init__(
        self,
        templates: Templates,
        server: ServerFields,
        clock: Clock,
        *,
        rules: CreationRules = CreationRules(),
        remind: Callable[[], None] = lambda: None,
    ) -> None:
        self._templates = templates
        self.server = server
        self.clock = clock
        self.rules = rules
        self.remind = remind
        self.seconds = naming.Seconds()

    async def create(self, client: Client, request: GuideRequest) -> Object:
        """The TrainJob as stored by the server. Raises Problem."""
        if errors := await self.list_problems(request):
            raise invalid(errors)
        template = self.get_template(request.framework)
        shape = await self.server.get_shape()
        await self.ensure_system(client, request.namespace, template)
        failpoints.hit("rest.system_made")
        await _put_latest(client, request)
        failpoints.hit("rest.latest_made")
        for attempt in range(_NAME_TRIES):
            moment = self.seconds.take(request.namespace, request.user_id, self.clock.now(), (1 << attempt) - 1)
            job = _compose(request, template, moment, shape)
            made = await self._make(client, request, job)
            if made is not None:
                return made
        raise Problem(409, "names-taken", "no second was free for the job's name", hint="send it again in a moment")

    def list_frameworks(self) -> list[str]:
        return self._templates.list_frameworks()

    async def list_problems(self, request: GuideRequest) -> list[FieldProblem]:
        rules = self.rules
        errors = await list_guide_problems(request, max_nodes=rules.max_nodes, check_code=rules.check_code)
        return [*self.list_framework_problems(request.framework), *errors]

    def list_framework_problems(self, framework: str) -> list[FieldProblem]:
        if self._find_template(framework) is not None:
            return []
        text = f"there is no framework {framework[:40]!r}; there are {', '.join(self.list_frameworks())}"
        return [FieldProblem(text, pointer="/framework")]

    def get_template(self, framework: str) -> Template:
        """Raises Problem 422 if there is none."""
        template = self._find_template(framework)
        if template is None:
            raise invalid(self.list_framework_problems(framework))
        return template

    def _find_template(self, framework: str) -> Template | None:
        try:
            return self._templates.find(framework)
        except TemplateError as error:
            raise _build_broken(error) from None

    async def ensure_system(self, client: Client, namespace: str, template: Template) -> None:
        """Updates an unmodified ConfigMap to the template; leaves an edited one alone."""
        system, wanted = template.system, _hash(template.system)
        name = system["metadata"]["name"]
        try:
            present = await client.get(CONFIG_MAPS, name, namespace)
        except NotFound:
            meta = {**system["metadata"], "namespace": namespace}
            meta["labels"] = {**read_labels(system), MANAGED_BY: MANAGER}
            meta["annotations"] = {**read_annotations(system), SHIPPED_HASH: wanted}
            try:
                await client.create(CONFIG_MAPS, {**system, "metadata": meta}, namespace, options=WRITES)
            except AlreadyExists:
                log.debug("another request made it", extra={"action": "rest.system", "namespace": namespace})
            return
        made = read_annotations(present).get(SHIPPED_HASH)
        if made == wanted or made != _hash(present):
            return
        head = {"resourceVersion": present["metadata"]["resourceVersion"], "annotations": {SHIPPED_HASH: wanted}}
        gone = {key: None for key in read_fields(present, "data") if key not in system["data"]}
        patch = {"metadata": head, "data": {**gone, **system["data"]}}
        try:
            await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, namespace, options=WRITES)
        except Conflict:
            log.debug("another request changed it", extra={"action": "rest.system", "namespace": namespace})

    async def _make(self, client: Client, request: GuideRequest, job: Object) -> Object | None:
        """The TrainJob with its copy; None if the name is taken."""
        namespace, name = request.namespace, job["metadata"]["name"]
        try:
            copy = await client.create(CONFIG_MAPS, _build_copy(request, name), namespace, options=WRITES)
        except AlreadyExists:
            return None
        failpoints.hit("rest.copy_made")
        try:
            made = await client.create(TRAIN_JOBS, job, namespace, options=WRITES)
        except StatusError as error:
            # From 500 on it is unknown whether it was created.
            if error.code >= 500:
                self.remind()
                raise
            await self.remove(client, copy)
            if isinstance(error, AlreadyExists):
                return None
            raise explain_refusal(error, _POINTERS, _HINTS) from None
        failpoints.hit("rest.trainjob_made")
        try:
            await adopt(client, copy, made)
        except StatusError as error:
            # The job was created; only its code would not be deleted with it yet.
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
    raw = orjson.dumps(read_fields(config_map, "data"), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(raw).hexdigest()[:32]


async def _put_latest(client: Client, request: GuideRequest) -> None:
    name = naming.get_latest_script(request.user_id)
    labels = {MANAGED_BY: MANAGER, USER: request.user_id}
    patch: Object = {"metadata": {"labels": labels}, "data": {CODE_FILE: request.code}}
    try:
        await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, request.namespace, options=WRITES)
    except NotFound:
        meta = {"name": name, "namespace": request.namespace, "labels": labels}
        fresh = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CODE_FILE: request.code}}
        try:
            await client.create(CONFIG_MAPS, fresh, request.namespace, options=WRITES)
        except AlreadyExists:
            await client.patch(CONFIG_MAPS, name, PatchType.MERGE, patch, request.namespace, options=WRITES)


def _build_copy(request: GuideRequest, trainjob: str) -> Object:
    labels = {MANAGED_BY: MANAGER, USER: request.user_id, SCRIPT_OF: trainjob}
    meta = {"name": naming.get_job_script(trainjob), "namespace": request.namespace, "labels": labels}
    data = {CODE_FILE: request.code}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}


async def adopt(client: Client, copy: Object, trainjob: Object) -> None:
    """Makes the TrainJob the owner of the copy."""
    owner = {
        "apiVersion": TRAIN_JOBS.api_version,
        "kind": "TrainJob",
        "name": trainjob["metadata"]["name"],
        "uid": trainjob["metadata"]["uid"],
    }
    meta = copy["metadata"]
    patch = {"metadata": {"uid": meta["uid"], "ownerReferences": [owner]}}
    await client.patch(CONFIG_MAPS, meta["name"], PatchType.MERGE, patch, meta["namespace"], options=WRITES)


def explain_refusal(error: StatusError, pointers: Mapping[str, str], hints: Mapping[RefusalCause, str]) -> Problem:
    """The server's refusal of the TrainJob, with the corresponding fields of the request."""
    problem, cause = from_status(error), judge_refusal(error)
    errors = [FieldProblem(one.message, pointer=pointers.get(one.part, "")) for one in list_refused_parts(error)]
    status, kind = problem.status, problem.kind
    if is_denied(error):
        # A webhook's refusal is a 403, but is about the content, not the caller.
        status, kind = 422, "refused"
    elif cause is RefusalCause.TOO_LARGE:
        status, kind = 422, "exceeds-quota"
    return Problem(status, kind, problem.detail, hint=hints.get(cause, problem.hint), errors=errors)


def _compose(request: GuideRequest, template: Template, moment: datetime, shape: SupportedFields) -> Object:
    name = naming.build_job_name(request.user_id, moment)
    labels = {MANAGED_BY: MANAGER, USER: request.user_id, REST_FRAMEWORK: request.framework}
    filled = fill_in(template.trainjob, request, name)
    return complete(JobRequest(name, request.namespace, labels=labels), filled, shape)


def fill_in(trainjob: Object, request: GuideRequest, name: str) -> Object:
    """A template's TrainJob for a request, under that name. Raises Problem 500 if the template is invalid."""
    values: dict[str, Value] = {
        "trainjob_name": name,
        "namespace": request.namespace,
        "user_id": request.user_id,
        "num_nodes": request.num_nodes,
        "gpu_per_node": request.gpu_per_node or None,
        "cpu_per_node": request.cpu_per_node,
        "memory_per_node": request.memory_per_node,
        "script_configmap": naming.get_job_script(name),
    }
    try:
        filled: Object = fill(trainjob, values)
    except TemplateError as error:
        raise _build_broken(error) from None
    return filled


def _build_broken(error: TemplateError) -> Problem:
    return Problem(500, "template", str(error), hint="an administrator has to correct the template")
