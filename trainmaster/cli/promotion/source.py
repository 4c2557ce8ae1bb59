"""Reads a job of this machine, and prepares it for another server."""

from __future__ import annotations

import sys

from trainmaster.api import code as code_words
from trainmaster.api.labels import RERUN_OF
from trainmaster.api.meta import Object
from trainmaster.api.reading import read_annotations, read_fields, read_text
from trainmaster.api.resources import CONFIG_MAPS, TRAINING_RUNTIMES
from trainmaster.api.status import NotFound
from trainmaster.api.training import snapshots
from trainmaster.api.training.references import find_runtime_gvr
from trainmaster.app.home.folder import Home
from trainmaster.bundles.archives import build_archive
from trainmaster.bundles.errors import BundleError
from trainmaster.bundles.store import BundleStore
from trainmaster.cli import exits
from trainmaster.cli.jobs import get_job
from trainmaster.cli.launch.environments import find_environment
from trainmaster.cli.promotion.target import Promotion
from trainmaster.client.contract import Client
from trainmaster.jobs.compose import carried
from trainmaster.jobs.compose.moving import MoveError, find_code
from trainmaster.jobs.manifests import build_manifest
from trainmaster.jobs.models.trainjobs import TrainJob

_NOTES = (code_words.CODE_DIGEST, code_words.GIT_COMMIT, code_words.GIT_DIRTY)


async def read_promotion(client: Client, home: Home, namespace: str, reference: str) -> Promotion:
    """The job as its author wrote it, still with its namespace and volumes of here."""
    job = await get_job(client, namespace, reference)
    if not isinstance(job, TrainJob):
        text = f"{job.label} is no TrainJob, and only these are promoted: `trainmaster convert` converts its manifest"
        raise exits.Failure(text)
    runtime = await _read_runtime(client, job)
    image = read_text(job.trainer, "image")
    info = home.find_running()
    prefix = (info.python if info is not None else "") or sys.prefix
    found = await find_environment(client, runtime, image, prefix)
    place = f"the Python environment {found.prefix}" if found is not None else "a Python environment"
    packages = f" with {', '.join(found.packages)}" if found is not None and found.packages else ""
    manifest = build_manifest(job.raw, job.name)
    manifest["metadata"].get("annotations", {}).pop(RERUN_OF, None)
    return Promotion(manifest, runtime, f"here {place}{packages} ran in its place")


async def _read_runtime(client: Client, job: TrainJob) -> Object:
    """As it was when the job started, else as it is now."""
    reference = job.runtime
    gvr = find_runtime_gvr(reference)
    if gvr is None:
        raise exits.Failure(f"{job.name} refers to {reference.get('kind')}, which is no runtime")
    kind = "TrainingRuntime" if gvr == TRAINING_RUNTIMES else "ClusterTrainingRuntime"
    try:
        snapshot = await client.get(CONFIG_MAPS, snapshots.get_name(job.raw), job.namespace)
        return {**snapshots.read(str(read_fields(snapshot, "data").get(snapshots.DATA_KEY))), "kind": kind}
    except (NotFound, ValueError):
        pass
    try:
        namespace = job.namespace if gvr == TRAINING_RUNTIMES else ""
        return {**await client.get(gvr, reference["name"], namespace), "kind": kind}
    except NotFound:
        raise exits.Failure(f"the {kind} {reference['name']} of {job.name} does not exist any more") from None


def place(promotion: Promotion, home: Home, name: str, namespace: str, suffix: str) -> None:
    """Gives the job the name and the namespace that it has there, and packs its code. `suffix`: of the ConfigMap."""
    meta = promotion.trainjob["metadata"]
    meta |= {"name": name or meta["name"], "namespace": namespace}
    try:
        digest = find_code(promotion.trainjob, promotion.runtime)
    except MoveError as error:
        raise exits.Failure(f"{meta['name']} cannot be promoted: {error}") from None
    if digest:
        notes = {code_words.CODE_DIGEST: digest}
        notes |= {key: text for key, text in read_annotations(promotion.trainjob).items() if key in _NOTES}
        archive = _pack(home, digest)
        code = carried.carry(archive, f"{meta['name']}-code-{suffix}", meta["name"], namespace, notes)
        promotion.config_map = code.config_map


def _pack(home: Home, digest: str) -> bytes:
    stored = BundleStore(home.bundles).find(digest)
    if stored is None:
        raise exits.Failure(
            f"the code {digest} is not in {home.root} any more: submit the job again from its directory"
        )
    try:
        return build_archive(stored.tree, stored.tree)
    except BundleError as error:
        raise exits.Failure(str(error).replace(str(stored.tree), "the job")) from None
