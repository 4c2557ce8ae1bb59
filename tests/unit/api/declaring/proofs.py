"""Which test proves each honoured field of a Pod: a field classed "honoured" names its test.

Keys are paths in the shared tables of `fidelity_tables`; values are `file::test`. `test_proofs` keeps both sides
honest: every honoured field stands here, nothing else does, and every named test exists.
"""

from __future__ import annotations

_CONTAINERS = "tests/unit/node/launch/test_containers.py"
_VARIABLES = "tests/unit/node/launch/test_environment.py"
_VOLUMES = "tests/unit/node/volumes/test_volumes.py"
_LAUNCHER = "tests/unit/node/launch/test_launcher.py"
_LAUNCH = "tests/node/test_launch.py"
_MACHINE = "tests/unit/node/machine/test_steps.py"
_PROBES = "tests/unit/node/machine/test_probes.py"
_LIFE = "tests/node/test_pod_life.py"
_PODS = "tests/contract/client/test_pods.py"
_SUPERVISOR = "tests/node/test_supervisor.py"
_SCHEDULER = "tests/unit/controllers/scheduler/test_placement.py"
_QUEUE = "tests/unit/controllers/scheduler/test_queue_pass.py"

_COMMAND = f"{_CONTAINERS}::test_command_and_args_are_expanded_with_the_declared_variables"
_PORTS = "tests/node/test_sandbox.py::test_two_jobs_on_the_same_port_meet_only_their_own_ranks"
_PROJECTED = f"{_VOLUMES}::test_a_projected_volume_puts_sources_together"
_NON_ROOT = f"{_CONTAINERS}::test_a_pod_that_must_not_be_root_is_not"
_NAMES = f"{_CONTAINERS}::test_the_sandbox_has_names_hosts_and_the_sum_of_limits"
_NETWORKS = f"{_CONTAINERS}::test_names_and_networks_follow_the_spec"
_ACCOUNT = f"{_PODS}::test_a_new_pod_is_pending_with_account_priority_and_defaults"
_STREAMS = f"{_CONTAINERS}::test_termination_messages_and_terminals_are_passed_on"
_MESSAGE = f"{_LIFE}::test_the_termination_message_is_what_the_program_left_or_the_end_of_its_log"
_MOUNTED = f"{_LAUNCH}::test_volumes_are_where_the_pod_mounts_them_and_nowhere_else"
_MOUNTS = f"{_CONTAINERS}::test_in_a_sandbox_volumes_are_mounted_outer_paths_first"

PROOFS = {
    "Container.args": _COMMAND,
    "Container.command": _COMMAND,
    "Container.env": f"{_VARIABLES}::test_values_come_from_fields_resources_and_keys",
    "Container.envFrom": f"{_VARIABLES}::test_env_goes_over_env_from_and_sees_what_came_before",
    "Container.lifecycle.postStart": f"{_LIFE}::test_hooks_run_inside_the_container_before_and_after",
    "Container.lifecycle.preStop": f"{_LIFE}::test_hooks_run_inside_the_container_before_and_after",
    "Container.lifecycle.stopSignal": (
        f"{_MACHINE}::test_the_pre_stop_hook_comes_first_and_uses_up_the_grace_period_but_for_a_moment"
    ),
    "Container.livenessProbe": f"{_LIFE}::test_liveness_restarts_the_container_and_says_so",
    "Container.name": f"{_MACHINE}::test_each_container_is_started_once",
    "Container.ports.containerPort": _PORTS,
    "Container.ports.name": f"{_LIFE}::test_readiness_is_asked_inside_the_pod",
    "Container.ports.protocol": _PORTS,
    "Container.readinessProbe": f"{_LIFE}::test_readiness_is_asked_inside_the_pod",
    "Container.resources.requests": f"{_QUEUE}::test_a_gang_that_fits_is_bound_in_one_plan",
    "Container.startupProbe": f"{_PROBES}::test_the_startup_probe_holds_back_the_others",
    "Container.stdin": _STREAMS,
    "Container.stdinOnce": f"{_SUPERVISOR}::test_attaching_gives_its_input_once_and_a_copy_of_its_output",
    "Container.terminationMessagePolicy": _MESSAGE,
    "Container.tty": _STREAMS,
    "Container.volumeMounts.mountPath": _MOUNTED,
    "Container.volumeMounts.name": _MOUNTED,
    "Container.volumeMounts.readOnly": _MOUNTS,
    "Container.volumeMounts.subPath": f"{_CONTAINERS}::test_a_sub_path_cannot_lead_out_of_its_volume",
    "Container.volumeMounts.subPathExpr": _MOUNTS,
    "Container.workingDir": f"{_CONTAINERS}::test_a_working_directory_of_the_image_is_made_in_a_sandbox",
    "Volume.configMap": f"{_VOLUMES}::test_a_config_map_shows_each_key_as_a_file",
    "Volume.csi.readOnly": "tests/unit/node/volumes/test_code.py"
    "::test_what_is_read_only_in_a_sandbox_is_the_bundle_itself",
    "Volume.csi.volumeAttributes": "tests/node/test_code.py"
    "::test_every_pod_writes_into_a_view_of_its_own_and_finds_what_was_packed",
    "Volume.downwardAPI": f"{_VOLUMES}::test_the_downward_api_shows_fields_and_resources",
    "Volume.emptyDir.medium": f"{_VOLUMES}::test_medium_memory_lies_on_the_memory_file_system",
    "Volume.hostPath": f"{_VOLUMES}::test_host_paths_are_checked_against_their_type",
    "Volume.name": _MOUNTED,
    "Volume.projected.defaultMode": _PROJECTED,
    "Volume.projected.sources.configMap": _PROJECTED,
    "Volume.projected.sources.downwardAPI": _PROJECTED,
    "Volume.projected.sources.secret": _PROJECTED,
    "Volume.projected.sources.serviceAccountToken": (
        f"{_LAUNCHER}::test_every_pod_gets_a_token_bound_to_it_and_renewed_in_time"
    ),
    "Volume.secret": f"{_VOLUMES}::test_a_secret_is_decoded_and_private_where_one_user_runs_all",
    "SecurityContext.runAsNonRoot": _NON_ROOT,
    "PodSecurityContext.runAsNonRoot": _NON_ROOT,
    "PodSpec.activeDeadlineSeconds": f"{_LIFE}::test_a_pod_past_its_deadline_fails_with_the_reason",
    "PodSpec.automountServiceAccountToken": f"{_LAUNCHER}::test_a_pod_or_its_account_may_decline_the_token",
    "PodSpec.hostAliases": _NAMES,
    "PodSpec.hostNetwork": _NETWORKS,
    "PodSpec.hostname": _NAMES,
    "PodSpec.nodeName": f"{_SCHEDULER}::test_a_pod_is_bound_to_the_local_node_once",
    "PodSpec.nodeSelector": f"{_SCHEDULER}::test_a_pod_that_does_not_fit_says_why_once",
    "PodSpec.priority": (f"{_QUEUE}::test_higher_priority_goes_first_and_equals_in_the_order_of_their_coming"),
    "PodSpec.priorityClassName": f"{_PODS}::test_the_priority_comes_from_the_class",
    "PodSpec.readinessGates": f"{_PROBES}::test_a_closed_readiness_gate_keeps_the_pod_unready_but_not_its_containers",
    "PodSpec.restartPolicy": f"{_MACHINE}::test_a_success_is_not_restarted_unless_the_policy_is_always",
    "PodSpec.schedulingGates": f"{_SCHEDULER}::test_a_gated_pod_waits_without_an_event_until_the_gate_is_gone",
    "PodSpec.serviceAccount": _ACCOUNT,
    "PodSpec.serviceAccountName": f"{_LAUNCHER}::test_every_pod_gets_a_token_bound_to_it_and_renewed_in_time",
    "PodSpec.setHostnameAsFQDN": _NETWORKS,
    "PodSpec.subdomain": _NAMES,
    "PodSpec.terminationGracePeriodSeconds": (
        f"{_MACHINE}::test_deletion_tells_the_program_asks_kills_after_the_grace_period_and_confirms_at_the_end"
    ),
    "PodSpec.tolerations": f"{_SCHEDULER}::test_taints_and_tolerations_are_heeded",
}
