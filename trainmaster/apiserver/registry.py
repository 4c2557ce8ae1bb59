"""The registry, through which all reads and writes of API objects go. See `contract.Registry` for its interface.

Each verb is implemented in a module of its own (`create`, `update`, `patch`, `delete`, `listing`, `watching`). A write
is one store transaction. The registry takes ownership of objects that are passed to `create` and `update`.

`running` starts garbage collection and the namespace controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Catalogue, Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import PODS
from trainmaster.apiserver import definitions
from trainmaster.apiserver.admission.gang_sizes import GangSizes
from trainmaster.apiserver.admission.limit_ranges import LimitRanges
from trainmaster.apiserver.admission.ownership import Ownership
from trainmaster.apiserver.admission.pods import Priorities, ServiceAccounts
from trainmaster.apiserver.admission.policy import PolicyAdmission
from trainmaster.apiserver.admission.quota_ledger import QuotaController
from trainmaster.apiserver.admission.quotas import QuotaAdmission
from trainmaster.apiserver.admission.runtime_use import RuntimeUse
from trainmaster.apiserver.admission.sizes import ObjectLimits
from trainmaster.apiserver.admission.storage_quota import StorageQuota
from trainmaster.apiserver.admission.tenant_packages import TenantPackages
from trainmaster.apiserver.admission.tenants import TenantPods
from trainmaster.apiserver.admission.trainer import TrainerAdmission
from trainmaster.apiserver.contract import Call, DeleteResult, ListPage, Written
from trainmaster.apiserver.gc import GarbageCollector
from trainmaster.apiserver.namespaces import NamespaceController, NamespaceLifecycle
from trainmaster.apiserver.owners import OwnerIndex
from trainmaster.apiserver.state import RegistryState, Reviewer, SubresourceCreator
from trainmaster.apiserver.verbs import create, delete, listing, patch, update, watching
from trainmaster.apiserver.verbs.pod_actions import build_binder, build_evictor
from trainmaster.client.contract import DeleteOptions, ListOptions, PatchType, WatchOptions, WriteOptions
from trainmaster.kit.clock import Clock
from trainmaster.kit.ids import Ids
from trainmaster.kit.scopes import Scope
from trainmaster.store.contract import Store

_SLICE = 50
"""Deletions before yielding to other tasks, about 2 ms."""


class ObjectRegistry:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        clock: Clock,
        ids: Ids,
        *,
        reviewers: Mapping[GVR, Reviewer] | None = None,
        limits: ObjectLimits | None = None,
    ) -> None:
        self.state = RegistryState(
            store, catalogue, clock, ids, reviewers=reviewers or {}, limits=limits or ObjectLimits()
        )
        self.trainer_admission = TrainerAdmission(self.state)
        for plugin in (
            NamespaceLifecycle(self.state),
            ServiceAccounts(store),
            TenantPods(self.state),
            Ownership(self.state),
            Priorities(store),
            TenantPackages(self.state),
            LimitRanges(store),
            self.trainer_admission,
            RuntimeUse(store),
            PolicyAdmission(),
            GangSizes(self.state),
            StorageQuota(self.state),
            QuotaAdmission(self.state),
        ):
            self.state.admission.add(plugin)
        self.serve_subresource(PODS, "binding", build_binder(self.state))
        self.serve_subresource(PODS, "eviction", build_evictor(self.state))
        self.owners = OwnerIndex(store)
        self._frames = watching.FrameCache()
        self._collector: GarbageCollector | None = None
        self._namespaces: NamespaceController | None = None
        self._quotas: QuotaController | None = None

    @property
    def store(self) -> Store:
        return self.state.store

    @property
    def catalogue(self) -> Catalogue:
        return self.state.catalogue

    @asynccontextmanager
    async def running(self, root_ca: str = "", *, has_definitions: bool = True) -> AsyncIterator[None]:
        """Creates the initial namespaces and runs garbage collection during the block.

        `has_definitions`: whether it stores the CustomResourceDefinitions, which take some time to build.
        """
        self._collector = GarbageCollector(self.state, self.owners)
        self._namespaces = NamespaceController(self.state, root_ca)
        self._quotas = QuotaController(self.state)
        try:
            self._namespaces.start()
            if has_definitions:
                definitions.ensure(self.state)
            async with Scope("registry") as scope:
                scope.spawn_forever(self._collector.run(), name="registry.garbage-collector")
                scope.spawn_forever(self._namespaces.run(), name="registry.namespaces")
                scope.spawn_forever(self._quotas.run(), name="registry.quotas")
                scope.spawn(definitions.refresh(self.state), name="registry.definitions")
                yield
        finally:
            self._collector.close()
            self._namespaces.close()
            self._quotas.close()

    async def settled(self) -> None:
        """Waits until garbage collection and namespace cleanup have nothing left to do."""
        if self._collector is None or self._namespaces is None or self._quotas is None:
            return
        parts = (self._collector, self._namespaces.worker, self._quotas.worker)
        while any(part.busy for part in parts):
            for part in parts:
                await part.idle()

    def close(self) -> None:
        self.owners.close()

    def serve_subresource(self, gvr: GVR, subresource: str, creator: SubresourceCreator) -> None:
        """Registers `creator` as the handler of POST on the subresource."""
        self.state.creators[(gvr, subresource)] = creator

    def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Written:
        if subresource:
            if kind.scale is not None and subresource == "scale":
                from trainmaster.apiserver.verbs.scale import read_scale  # noqa: PLC0415 - few objects are scaled

                return read_scale(self.state, kind, namespace, name)
            update.check_subresource(kind, subresource)
        record = self.state.find(kind, namespace, name)
        if record is None:
            raise status.not_found(kind.gvr, name)
        value = record.value if kind.from_storage is None else self.state.show(kind, record)
        return Written(value, record.revision)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListPage:
        return await listing.list_page(self.state, kind, namespace, options)

    def watch(
        self, kind: Kind, namespace: str, options: WatchOptions, *, durable: bool = True
    ) -> watching.RegistryFrames:
        return watching.open_watch(self.state, self._frames, kind, namespace, options, durable=durable)

    def create(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        obj: Object,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
    ) -> Written:
        if subresource:
            return create.create_subresource(self.state, call, kind, namespace, name, subresource, obj, options)
        return create.create(self.state, call, kind, namespace, obj, options)

    def create_proven(self, call: Call, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Written:
        """Like `create`, for an object as in `client.writes.Create.proven`."""
        return create.store_new(self.state, call, kind, namespace, obj, options, is_proven=True)

    def update(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written:
        if kind.scale is not None and subresource == "scale":
            from trainmaster.apiserver.verbs.scale import update_scale  # noqa: PLC0415 - few objects are scaled

            return update_scale(self.state, call, kind, namespace, name, obj, options)
        return update.update(self.state, call, kind, namespace, name, obj, options, subresource=subresource)

    def patch(
        self,
        call: Call,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: PatchType,
        patch_body: object,
        options: WriteOptions,
        *,
        subresource: str = "",
    ) -> Written:
        target = patch.PatchTarget(kind, namespace, name, subresource)
        if kind.scale is not None and subresource == "scale":
            from trainmaster.apiserver.verbs.scale import patch_scale  # noqa: PLC0415 - few objects are scaled

            return patch_scale(self.state, call, target, patch_type, patch_body, options)
        return patch.patch(self.state, call, target, patch_type, patch_body, options)

    def delete(self, call: Call, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> DeleteResult:
        return delete.delete(self.state, call, kind, namespace, name, options)

    async def delete_collection(
        self, call: Call, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListPage:
        """Deletes the selected objects; returns them as they were before."""
        delete.check_options(options)
        page = await listing.list_page(self.state, kind, namespace, selection)
        revision = page.revision
        for number, value in enumerate(page.values):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            deleted = delete.delete_listed(self.state, call, kind, value, options)
            if deleted is not None:
                revision = max(revision, deleted.revision)
        return ListPage(page.values, revision, page.continue_token, page.remaining)
