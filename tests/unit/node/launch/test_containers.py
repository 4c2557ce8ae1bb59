"""From a Pod to the shim's specs: commands, directories, users, limits, and what the plain level rewrites."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.making import make_pod, make_prepared
from trainmaster.api.labels import JOBSET_UID
from trainmaster.api.meta import Object
from trainmaster.api.v1jobs.waits import build_wait
from trainmaster.jobs.models.pods import Pod
from trainmaster.node.caches.mirror import CacheView
from trainmaster.node.images.contract import Environment
from trainmaster.node.launch.containers import build_container
from trainmaster.node.launch.contract import LaunchError, keep_port
from trainmaster.node.launch.rewriting import build_rewriter
from trainmaster.node.launch.sandboxes import build_sandbox
from trainmaster.node.network.ports import PortLeases
from trainmaster.node.volumes.contract import Volume
from trainmaster.shim.protocol import FULL, HOST_NETWORK, OWN_NETWORK, USER, ContainerSpec, Mount, ResourceLimits

pytestmark = pytest.mark.unit


def build(tmp_path: Path, container: Object, *, spec: Object | None = None, **parts: Any) -> tuple[ContainerSpec, str]:
    pod = make_pod(container, **(spec or {}))
    made, notes = build_container(Pod(pod), "node", 2, make_prepared(tmp_path, **parts))
    return made, "\n".join(notes)


def test_command_and_args_are_expanded_with_the_declared_variables(tmp_path: Path) -> None:
    container = {
        "command": ["/bin/sh", "-c"],
        "args": ["echo $(A) $(PATH) $HOME"],
        "env": [{"name": "A", "value": "1"}],
    }
    spec, notes = build(tmp_path, container)
    assert spec.argv == ("/bin/sh", "-c", "echo 1 $(PATH) $HOME")
    assert (spec.name, spec.attempt, spec.env["A"]) == ("node", 2, "1")
    assert spec.directory == spec.env["HOME"] == str(tmp_path / "work")
    assert "image train:1 is run as /python" in notes


def test_a_container_without_a_command_uses_that_of_the_rule(tmp_path: Path) -> None:
    image = Environment("/python", command=("/bin/echo", "from the rule"))
    assert build(tmp_path, {"command": [], "args": ["x"]}, image=image)[0].argv == ("/bin/echo", "from the rule", "x")
    with pytest.raises(LaunchError, match='container "node" has no command') as caught:
        build(tmp_path, {"command": []})
    assert not caught.value.retry


def test_a_container_without_command_and_args_runs_what_its_image_runs_by_default(tmp_path: Path) -> None:
    image = Environment("/python", default_args=("/bin/sh", "-e"))
    spec, notes = build(tmp_path, {"command": []}, image=image)
    assert spec.argv == ("/bin/sh", "-e")
    assert "the container has no command, so it runs what the image would run: /bin/sh -e" in notes
    spec, notes = build(tmp_path, {"command": [], "args": ["/bin/echo", "x"]}, image=image)
    assert spec.argv == ("/bin/echo", "x")
    assert "no command" not in notes
    assert build(tmp_path, {"command": ["/bin/echo"]}, image=image)[0].argv == ("/bin/echo",)


def test_a_stand_in_takes_the_place_of_the_images_program(tmp_path: Path) -> None:
    image = Environment("/python", stand_ins={"/usr/sbin/sshd": ("/bin/echo", "stand-in")})
    spec, notes = build(tmp_path, {"command": ["/usr/sbin/sshd"], "args": ["-De"]}, image=image)
    assert spec.argv == ("/bin/echo", "stand-in")
    assert "/usr/sbin/sshd is run as /bin/echo stand-in" in notes


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param({"command": ["no-such-program-here"]}, "executable file not found in $PATH", id="no program"),
        pytest.param({"command": ["/no/such/file"]}, "not executable", id="no file"),
        pytest.param({"workingDir": "/no/such/directory"}, "does not exist on this machine", id="no directory"),
    ],
)
def test_on_the_plain_level_what_cannot_start_says_why(tmp_path: Path, container: Object, want: str) -> None:
    with pytest.raises(LaunchError) as caught:
        build(tmp_path, container)
    assert caught.value.reason == "StartError"
    assert want in caught.value.message


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("/data", "/v", id="alone"),
        pytest.param("--in=/data/x --out=/data", "--in=/v/x --out=/v", id="in arguments"),
        pytest.param("cat '/data/a b' > /data/c; ls", "cat '/v/a b' > /v/c; ls", id="in a script"),
        pytest.param("file:///data/x", "file:///v/x", id="in a file URL"),
        pytest.param("/data/deep/x /data/x", "/w/x /v/x", id="the longest path first"),
        pytest.param("/database /data.txt /data-2", "/database /data.txt /data-2", id="other names"),
        pytest.param("/opt/data ./data s3://data", "/opt/data ./data s3://data", id="parts of other paths"),
        pytest.param("A:/data:/usr", "A:/v:/usr", id="in a search path"),
        pytest.param("I read /data.", "I read /v.", id="at the end of a sentence"),
    ],
)
def test_mount_paths_become_directories_on_the_plain_level(text: str, want: str) -> None:
    assert build_rewriter(Pod(make_pod({})), {"/data": "/v", "/data/deep": "/w"}, keep_port).rewrite(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("job-node-0-0.job", "127.0.0.1", id="short name"),
        pytest.param(
            "tcp://job-node-0-0.job.ns.svc.cluster.local:1/x", "tcp://127.0.0.1:1001/x", id="in a URL, with a port"
        ),
        pytest.param("a.job,b.job", "127.0.0.1,127.0.0.1", id="a list"),
        pytest.param("a.jobs", "a.jobs", id="another service"),
        pytest.param("a.job.other.svc", "a.job.other.svc", id="another namespace"),
        pytest.param("a.job.example.com", "a.job.example.com", id="another domain"),
        pytest.param("job", "job", id="no host"),
    ],
)
def test_names_of_the_own_service_become_the_loopback_address(text: str, want: str) -> None:
    assert build_rewriter(Pod(make_pod({})), {}, lambda port, _: port + 1000).rewrite(text) == want


def make_v1_pod(kind: str, job: str = "a") -> Pod:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": job, "uid": "u", "controller": True}
    pod = make_pod({}, hostname=None, subdomain=None)
    pod["metadata"] |= {"ownerReferences": [owner], "labels": {"training.kubeflow.org/job-name": job}}
    return Pod(pod)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("pt-master-0", "127.0.0.1", id="the variable"),
        pytest.param("nslookup pt-master-0; then", "nslookup 127.0.0.1; then", id="in the script of init-pytorch"),
        pytest.param("pt-worker-0.ns.svc:23456", "127.0.0.1:24456", id="a qualified name with a port"),
        pytest.param("pt-master-0.other", "pt-master-0.other", id="another namespace"),
        pytest.param("my-pt-master-0 pt-master pt-x-1-y", "my-pt-master-0 pt-master pt-x-1-y", id="other names"),
    ],
)
def test_names_of_the_pods_of_a_v1_job_become_the_loopback_address(text: str, want: str) -> None:
    pod = make_v1_pod("PyTorchJob", "pt")
    assert build_rewriter(pod, {}, lambda port, _: port + 1000).rewrite(text) == want
    del pod.raw["metadata"]["ownerReferences"]
    assert build_rewriter(pod, {}, keep_port).rewrite(text) == text, "a label alone is a claim"


def test_every_pod_of_a_tfjob_has_a_port_of_its_own_and_the_others_know_it() -> None:
    cluster = '{"worker": ["a-worker-0.ns.svc:2222", "a-worker-1.ns.svc:2222"], "ps": ["a-ps-0.ns.svc:2222"]}'
    leases = PortLeases()
    rewriters = [build_rewriter(make_v1_pod("TFJob"), {}, partial(leases.lease, "gang")) for _ in range(2)]
    first, second = (rewriter.rewrite_variable("TF_CONFIG", cluster) for rewriter in rewriters)
    assert first == second
    ports = re.findall(r"127\.0\.0\.1:(\d+)", first)
    assert len(set(ports)) == 3
    assert f"port 2222 of a-worker-1 became {ports[1]}: the plain level has one network for all jobs" in "".join(
        rewriters[0].list_notes()
    )


def test_names_of_an_mpijobs_workers_stay_because_kubectl_needs_them() -> None:
    text = "mpirun -H a-worker-0,a-worker-1 /etc/mpi/kubexec.sh a-worker-0"
    paths = {"/etc/mpi": "/v"}
    assert build_rewriter(make_v1_pod("MPIJob"), paths, keep_port).rewrite(text) == text.replace("/etc/mpi", "/v")


def test_the_plain_level_rewrites_everything_that_names_a_mount_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "v" / "sub").mkdir(parents=True)
    container = {
        "command": ["/bin/cat", "/data/x"],
        "env": [{"name": "PET_MASTER_PORT", "value": "29500"}, {"name": "DIR", "value": "/data/y"}],
        "workingDir": "/data/sub",
        "volumeMounts": [{"name": "v", "mountPath": "/data/", "readOnly": True}],
        "resources": {"limits": {"cpu": "1"}},
    }
    spec, notes = build(
        tmp_path, container, directories={"v": tmp_path / "v"}, site={"lease_port": lambda port, host: 30001}
    )
    assert spec.argv == ("/bin/cat", f"{tmp_path}/v/x")
    assert (spec.env["DIR"], spec.env["PET_MASTER_PORT"]) == (f"{tmp_path}/v/y", "30001")
    assert spec.directory == f"{tmp_path}/v/sub"
    assert spec.mounts == ()
    for part in ("/data became", "29500 became 30001", "readOnly of /data", "limits are not enforced"):
        assert part in notes


def test_on_the_plain_level_volumes_beside_the_code_keep_their_relative_place(tmp_path: Path) -> None:
    code, data = tmp_path / "volumes" / "code", tmp_path / "data"
    (code / "present").mkdir(parents=True)
    data.mkdir()
    places = ("/workspace/data", "/workspace/code/raw", "/workspace/code/present", "/shared", "/workspace/code")
    names = ("d0", "d1", "d2", "d3", "code")
    mounts = [{"name": name, "mountPath": path} for name, path in zip(names, places, strict=True)]
    volumes = {name: Volume(name, str(data)) for name in names[:-1]}
    volumes["code"] = Volume("code", str(code), code="sha256:1")
    spec, _ = build(tmp_path, {"volumeMounts": mounts}, volumes=volumes)
    assert spec.directory == str(code)
    assert (code / "../data").readlink() == (code / "raw").readlink() == data
    assert not (code / "present").is_symlink()
    assert sorted(path.name for path in (tmp_path / "volumes").iterdir()) == ["code", "data"]
    assert not (tmp_path / "shared").exists()


def test_on_the_plain_level_the_termination_message_has_a_path_that_the_program_can_reach(tmp_path: Path) -> None:
    want = f"{tmp_path}/run/node.2.message"
    spec, notes = build(tmp_path, {"command": ["/bin/sh", "-c", "echo why > /dev/termination-log"]})
    assert spec.argv[-1] == f"echo why > {want}"
    assert spec.env["TRAINMASTER_TERMINATION_LOG"] == want
    assert "/dev/termination-log became" in notes
    container = {"command": ["/bin/cat", "/own/path"], "terminationMessagePath": "/own/path"}
    assert build(tmp_path, container)[0].argv[-1] == want


def test_on_the_plain_level_an_initializer_never_writes_into_a_directory_of_the_machine(tmp_path: Path) -> None:
    image = Environment("/python", command=("/bin/true",), variables={"TARGET": "/workspace/dataset"})
    spec, _ = build(tmp_path, {"command": []}, image=image)
    assert spec.env["TARGET"] == f"{tmp_path}/work/workspace/dataset"
    mounted = {"command": [], "volumeMounts": [{"name": "v", "mountPath": "/workspace"}]}
    (tmp_path / "v").mkdir()
    spec, _ = build(tmp_path, mounted, image=image, directories={"v": tmp_path / "v"})
    assert spec.env["TARGET"] == f"{tmp_path}/v/dataset"
    assert build(tmp_path, {"command": []}, image=image, level=FULL)[0].env["TARGET"] == "/workspace/dataset"


def test_in_a_sandbox_volumes_are_mounted_outer_paths_first(tmp_path: Path) -> None:
    container = {
        "command": ["/bin/cat", "/data/x"],
        "volumeMounts": [
            {"name": "a", "mountPath": "/data/deep", "subPathExpr": "$(RANK)/out"},
            {"name": "b", "mountPath": "/data", "readOnly": True},
        ],
        "env": [{"name": "RANK", "value": "3"}],
    }
    directories = {"a": tmp_path / "a", "b": tmp_path / "b"}
    (tmp_path / "a").mkdir()
    spec, _ = build(tmp_path, container, directories=directories, level=FULL)
    assert spec.argv == ("/bin/cat", "/data/x")
    assert [mount for mount in spec.mounts if mount.target.startswith("/data")] == [
        Mount("/data", str(tmp_path / "b"), read_only=True),
        Mount("/data/deep", str(tmp_path / "a"), sub_path="3/out"),
    ]
    assert (tmp_path / "a" / "3" / "out").is_dir()
    assert Mount("/trainmaster/work", str(tmp_path / "work")) in spec.mounts
    assert spec.directory == spec.env["HOME"] == "/trainmaster/work"


CACHE = CacheView("/state/caches", ("/tmp/hub/blobs",))


def test_the_owners_jobs_have_a_cache_that_the_job_itself_may_choose(tmp_path: Path) -> None:
    names = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME")
    want = ("/trainmaster/cache", "/trainmaster/cache/huggingface", "/trainmaster/cache/torch")
    spec, _ = build(tmp_path, {}, level=FULL, cache=CACHE)
    assert tuple(spec.env[name] for name in names) == want
    assert [mount for mount in spec.mounts if mount.source in ("/state/caches", "/tmp/hub/blobs")] == [
        Mount("/trainmaster/cache", "/state/caches"),
        Mount("/tmp/hub/blobs", "/tmp/hub/blobs", read_only=True),
    ]
    own = {"env": [{"name": "HF_HOME", "value": "/data/hf"}]}
    spec, _ = build(tmp_path, own, level=FULL, cache=CACHE)
    assert (spec.env["HF_HOME"], spec.env["TORCH_HOME"]) == ("/data/hf", want[2])
    spec, _ = build(tmp_path, {"env": [{"name": "XDG_CACHE_HOME", "value": "/c"}]}, level=FULL, cache=CACHE)
    assert [spec.env.get(name) for name in names] == ["/c", None, None]
    assert build(tmp_path, {}, cache=CACHE)[0].env["TORCH_HOME"] == "/state/caches/torch", "at the plain level"
    assert "XDG_CACHE_HOME" not in build(tmp_path, {}, level=FULL)[0].env


@pytest.mark.parametrize(("level", "has_cache"), [(FULL, False), (USER, True)])
def test_a_program_of_another_user_has_no_cache_that_it_could_not_write_to(
    tmp_path: Path, level: str, has_cache: bool
) -> None:
    spec, _ = build(tmp_path, {"securityContext": {"runAsUser": 4242}}, level=level, cache=CACHE)
    assert ("XDG_CACHE_HOME" in spec.env) is has_cache
    assert any(mount.source == CACHE.root for mount in spec.mounts) is has_cache


def test_a_sub_path_cannot_lead_out_of_its_volume(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "link").symlink_to("/etc")
    container = {"volumeMounts": [{"name": "v", "mountPath": "/data", "subPath": "link/x"}]}
    with pytest.raises(LaunchError, match="leads out of the volume"):
        build(tmp_path, container, directories={"v": tmp_path / "v"}, level=FULL)


def test_a_working_directory_of_the_image_is_made_in_a_sandbox(tmp_path: Path) -> None:
    spec, _ = build(tmp_path, {"workingDir": "/no/such/app"}, level=FULL)
    assert spec.directory == "/no/such/app"
    assert Mount("/no/such/app", str(tmp_path / "made" / "node")) in spec.mounts


@pytest.mark.parametrize(
    ("own", "shared", "want"),
    [
        pytest.param({"runAsUser": 7}, {"runAsUser": 8, "runAsGroup": 9}, (7, 9, ()), id="the container's goes first"),
        pytest.param({}, {"fsGroup": 5, "supplementalGroups": [6, 5]}, (None, None, (6, 5)), id="groups"),
    ],
)
def test_users_and_groups_reach_the_sandbox(tmp_path: Path, own: Object, shared: Object, want: tuple[Any, ...]) -> None:
    spec, _ = build(tmp_path, {"securityContext": own}, spec={"securityContext": shared}, level=FULL)
    assert (spec.run_as_user, spec.run_as_group, spec.groups) == want


def test_privileges_are_kept_off_unless_asked_for(tmp_path: Path) -> None:
    assert not build(tmp_path, {}, level=FULL)[0].new_privileges
    context = {"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": True}
    spec, _ = build(tmp_path, {"securityContext": context}, level=FULL)
    assert (spec.new_privileges, spec.read_only_root) == (True, True)


def test_the_plain_level_says_what_it_cannot_do_about_users(tmp_path: Path) -> None:
    context = {"runAsUser": 123456, "readOnlyRootFilesystem": True}
    spec, notes = build(tmp_path, {"securityContext": context})
    assert (spec.run_as_user, spec.read_only_root) == (None, False)
    assert "runAsUser 123456 became" in notes
    assert "readOnlyRootFilesystem has no effect" in notes


@pytest.mark.parametrize(
    ("own", "want"),
    [
        pytest.param({"privileged": True}, "privileged", id="privileged"),
        pytest.param({"capabilities": {"add": ["SYS_ADMIN"]}}, "capabilities.add", id="capabilities"),
        pytest.param(
            {"seccompProfile": {"type": "Localhost"}}, "seccompProfile Localhost", id="a profile of the machine"
        ),
    ],
)
def test_what_would_weaken_the_machine_is_refused_by_name(tmp_path: Path, own: Object, want: str) -> None:
    with pytest.raises(LaunchError, match=want) as caught:
        build(tmp_path, {"securityContext": own})
    assert caught.value.reason == "Unsupported"


def test_a_pod_that_must_not_be_root_is_not(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"container's runAsUser breaks non-root policy \(pod: .*container: node\)"):
        build(tmp_path, {"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}, level=FULL)
    assert build(tmp_path, {"securityContext": {"runAsNonRoot": True, "runAsUser": 5}}, level=FULL)[0].run_as_user == 5


def test_resources_become_limits(tmp_path: Path) -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    spec, _ = build(tmp_path, {"resources": resources}, level=FULL)
    assert spec.limits == ResourceLimits(memory=1 << 30, cpu_millis=1500, cpu_shares_millis=1000)


@pytest.mark.parametrize(("requests", "shares"), [({"cpu": "0"}, 1), ({}, 2000), ({"cpu": "500m"}, 500)])
def test_a_container_that_requests_no_cpu_has_the_least_weight(
    tmp_path: Path, requests: dict[str, str], shares: int
) -> None:
    spec, _ = build(tmp_path, {"resources": {"limits": {"cpu": "2"}, "requests": requests}}, level=FULL)
    assert (spec.limits.cpu_millis, spec.limits.cpu_shares_millis) == (2000, shares)


def test_termination_messages_and_terminals_are_passed_on(tmp_path: Path) -> None:
    container = {"terminationMessagePath": "/tmp/m", "terminationMessagePolicy": "FallbackToLogsOnError"}
    spec, _ = build(tmp_path, {**container, "stdin": True, "stdinOnce": True, "tty": True})
    assert (spec.message_path, spec.message_from_logs) == ("/tmp/m", True)
    assert (spec.stdin, spec.stdin_once, spec.tty) == (True, True, True)


def test_members_of_jobsets_leave_the_end_of_their_log_with_every_policy(tmp_path: Path) -> None:
    pod = make_pod({"terminationMessagePolicy": "File"})
    assert not build_container(Pod(pod), "node", 0, make_prepared(tmp_path))[0].message_from_logs
    pod["metadata"]["labels"] = {JOBSET_UID: "u"}
    assert build_container(Pod(pod), "node", 0, make_prepared(tmp_path))[0].message_from_logs
    pod = make_pod({"terminationMessagePolicy": "File"})
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "a", "uid": "u", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    assert build_container(Pod(pod), "node", 0, make_prepared(tmp_path))[0].message_from_logs


def test_the_sandbox_has_names_hosts_and_the_sum_of_limits(tmp_path: Path) -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    pod = make_pod({"resources": resources}, hostAliases=[{"ip": "10.1.1.1", "hostnames": ["db", "cache"]}])
    pod["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {"cpu": "3", "memory": "1Mi"}}}]
    spec = build_sandbox(
        Pod(pod), make_prepared(tmp_path, level=FULL, site={"address": "10.0.0.9"}), hosts=[("10.0.0.9", "me")]
    )
    assert (spec.hostname, spec.domain) == ("job-node-0-1", "job.ns.svc.cluster.local")
    assert (spec.address, spec.network) == ("10.0.0.9", OWN_NETWORK)
    assert spec.hosts == (("10.0.0.9", "me"), ("10.1.1.1", "db", "cache"))
    assert spec.limits == ResourceLimits(memory=1 << 30, cpu_millis=3000, cpu_shares_millis=3000)


def test_the_request_of_an_init_container_does_not_lower_the_share_of_the_program(tmp_path: Path) -> None:
    pod = make_pod({})
    pod["spec"]["initContainers"] = [build_wait("job-master-0")]
    assert build_sandbox(Pod(pod), make_prepared(tmp_path, level=FULL)).limits == ResourceLimits()


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"hostNetwork": True}, ("job-node-0-1", HOST_NETWORK), id="the machine's network"),
        pytest.param(
            {"setHostnameAsFQDN": True}, ("job-node-0-1.job.ns.svc.cluster.local", OWN_NETWORK), id="whole name"
        ),
        pytest.param({"hostname": ""}, ("job-node-0-1-abcde", OWN_NETWORK), id="the Pod's name by default"),
    ],
)
def test_names_and_networks_follow_the_spec(tmp_path: Path, spec: Object, want: tuple[str, str]) -> None:
    made = build_sandbox(Pod(make_pod({}, **spec)), make_prepared(tmp_path, level=FULL))
    assert (made.hostname, made.network) == want


def test_memory_at_dev_shm_is_the_sandboxs_own(tmp_path: Path) -> None:
    container = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    volumes = {"shm": Volume("shm", str(tmp_path / "shm"), memory=True, size_limit=1 << 20)}
    spec, _ = build(tmp_path, container, volumes=volumes, level=FULL)
    assert not any(mount.target == "/dev/shm" for mount in spec.mounts)
    prepared = make_prepared(tmp_path, volumes=volumes, level=FULL)
    assert build_sandbox(Pod(make_pod(container)), prepared).shm_bytes == 1 << 20
