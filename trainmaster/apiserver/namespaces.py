"""The lifecycle of namespaces.

`NamespaceLifecycle` is the admission plugin: it refuses new objects in namespaces that do not exist or are terminating,
and the deletion of built-in namespaces. `NamespaceController` creates the `default` ServiceAccount and the
`kube-root-ca.crt` ConfigMap in each namespace, empties terminating namespaces, and removes them when they are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainmaster.api import status
from trainmaster.api.declaring.kinds import Kind
from trainmaster.api.meta import GVR, Object
from trainmaster.api.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from trainmaster.api.status import AlreadyExists, NotFound
from trainmaster.apiserver import stored
from trainmaster.apiserver.admission.chain import CREATE, DELETE, AdmissionOperation, Attributes, Plugin
from trainmaster.apiserver.contract import Call
from trainmaster.apiserver.state import RegistryState
from trainmaster.apiserver.verbs import create, delete, update
from trainmaster.apiserver.work import KeyedWorker
from trainmaster.client.contract import ActingIdentity, DeleteOptions, WriteOptions
from trainmaster.store.contract import Event, EventType, StoredRecord

CONTROLLER = ActingIdentity("system:serviceaccount:kube-system:namespace-controller", groups=("system:masters",))
INITIAL = ("default", "kube-system", "kube-public", "kube-node-lease", "kubeflow-system")
"""Created at the first start. The SDK expects the namespace of its runtimes, kubectl expects `default`."""

_IMMORTAL = ("default", "kube-system", "kube-public")
_NAME_LABEL = "kubernetes.io/metadata.name"
_FINALIZER = "kubernetes"
_BUCKET = NAMESPACES.collection
_ROOT_CA = "kube-root-ca.crt"
_DEFAULT_OBJECTS = {stored.bucket_of(SERVICE_ACCOUNTS): "default", stored.bucket_of(CONFIG_MAPS): _ROOT_CA}
"""Objects that every namespace has: bucket to name."""
_SLICE = 50
"""Deletions before yielding to other tasks, about 2 ms."""


class NamespaceLifecycle(Plugin):
    def __init__(self, state: RegistryState) -> None:
        self._state = state

    def concerns(self, kind: Kind, operation: AdmissionOperation) -> bool:
        return kind.gvr == NAMESPACES or (kind.namespaced and operation is CREATE)

    def follows_status(self, kind: Kind) -> bool:
        return kind.gvr == NAMESPACES

    def mutate(self, attributes: Attributes) -> None:
        if attributes.kind.namespaced:
            self._check_open(attributes)
        elif attributes.operation is not DELETE:
            _complete(attributes.new, new=attributes.operation is CREATE)
        elif attributes.name in _IMMORTAL:
            raise status.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")

    def _check_open(self, attributes: Attributes) -> None:
        namespace = attributes.namespace
        found = self._state.find_shared(NAMESPACES, "", namespace)
        if found is None:
            raise status.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found["metadata"]:
            raise status.forbidden(
                attributes.kind.gvr,
                attributes.name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                causes=[
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )


def _complete(namespace: Object, *, new: bool) -> None:
    """Sets the label with the namespace's name; a new namespace also gets the phase Active and the finalizer."""
    metadata = namespace["metadata"]
    if metadata.get("name"):
        metadata.setdefault("labels", {})[_NAME_LABEL] = metadata["name"]
    if new:
        namespace["spec"] = {"finalizers": [_FINALIZER]}
        namespace["status"] = {"phase": "Active"}


class NamespaceController:
    def __init__(self, state: RegistryState, root_ca: str = "") -> None:
        """`root_ca`: the CA certificate (PEM) for clients in the namespace."""
        self._state = state
        self._root_ca = root_ca
        self._contents = [
            kind
            for kind in state.catalogue.kinds
            if kind.namespaced and not (kind.review or kind.measured) and kind.storage is None
        ]
        self._kinds = {kind.gvr: kind for kind in state.catalogue.kinds}
        self._terminating: set[str] = set()
        self.worker: KeyedWorker[str] = KeyedWorker(NAMESPACES.plural, self._look_after, state.clock, state.store)
        self._end: Callable[[], None] = state.store.subscribe(self._follow)

    def start(self) -> None:
        """Creates the initial namespaces, and continues work that a stop interrupted."""
        for name in INITIAL:
            self._create(NAMESPACES, "", {"metadata": {"name": name}})
        for record in self._state.store.scan(_BUCKET):
            if stored.peek_deletion(record.value):
                self._end_namespace(record.name)
            else:
                self._create_objects(record.name)

    async def run(self) -> None:
        await self.worker.run()

    def close(self) -> None:
        self._end()

    def _follow(self, events: Sequence[Event]) -> None:
        for event in events:
            record = event.record
            if record.bucket == _BUCKET:
                if event.type is EventType.DELETE:
                    self._terminating.discard(record.name)
                elif stored.peek_deletion(record.value):
                    self._end_namespace(record.name)
                elif event.previous is None:
                    self._create_objects(record.name)
            elif event.type is EventType.DELETE and (self._terminating or record.bucket in _DEFAULT_OBJECTS):
                namespace, name = stored.split_name(record.name)
                if namespace in self._terminating or name == _DEFAULT_OBJECTS.get(record.bucket):
                    self.worker.add(namespace)

    def _create_objects(self, namespace: str) -> None:
        self._create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "default"}})
        description = (
            "Certificate of the authority that signs this API server's certificate, for clients inside the namespace."
        )
        self._create(
            CONFIG_MAPS,
            namespace,
            {
                "metadata": {
                    "name": _ROOT_CA,
                    "annotations": {"kubernetes.io/description": description},
                },
                "data": {"ca.crt": self._root_ca},
            },
        )

    def _create(self, gvr: GVR, namespace: str, obj: Object) -> None:
        kind = self._kinds.get(gvr)
        if kind is None or self._state.find(kind, namespace, obj["metadata"]["name"]) is not None:
            return
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        try:
            create.create(self._state, _call(), kind, namespace, body, WriteOptions())
        except (AlreadyExists, NotFound):
            # The object exists already, or the namespace was deleted meanwhile.
            return

    def _end_namespace(self, name: str) -> None:
        self._terminating.add(name)
        self.worker.add(name)

    def _look_after(self, namespace: str) -> None:
        """Recreates the default objects if they are missing; empties a terminating namespace."""
        record = self._state.find(self._kinds[NAMESPACES], "", namespace)
        if record is None:
            return
        if stored.peek_deletion(record.value):
            self._empty(namespace, record)
        else:
            self._create_objects(namespace)

    def _empty(self, namespace: str, record: StoredRecord) -> None:
        """Deletes the content. The deletion of the last object queues the namespace again."""
        kind = self._kinds[NAMESPACES]
        held = 0
        for content in self._in_order():
            found, done = self._empty_kind(content, namespace)
            held += found
            if not done:
                # Yield to other tasks before the next slice.
                self.worker.add(namespace)
                return
        if held:
            return
        old = stored.parse(record.value)
        new = {**old, "metadata": dict(old["metadata"]), "spec": {}}
        update.store_change(self._state, update.ObjectUpdate(kind, record, old, new))

    def _in_order(self) -> Iterable[Kind]:
        """The kinds with Pods last, after the objects whose controllers would create new Pods."""
        return sorted(self._contents, key=lambda kind: kind.gvr == PODS)

    def _empty_kind(self, kind: Kind, namespace: str) -> tuple[int, bool]:
        """Deletes at most one slice of objects; returns how many remain for now, and whether it reached the end."""
        held = deleted = 0
        for record in self._state.store.scan(stored.bucket(kind), f"{namespace}/"):
            if stored.peek_deletion(record.value):
                held += 1
                continue
            if deleted == _SLICE:
                return held, False
            deleted += 1
            _, name = stored.split_name(record.name)
            options = DeleteOptions("Background")
            if not delete.delete(self._state, _call(), kind, namespace, name, options).gone:
                held += 1
        return held, True


def _call() -> Call:
    return Call(CONTROLLER, is_own=True)
