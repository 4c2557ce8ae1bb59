"""Wire tests that one of the two servers cannot pass, by name, each with its reason. Everything else runs on both."""

from __future__ import annotations

_NO_NODE = "needs a node that runs processes; the real control plane of the tests has none"
_SMALL = "needs a server that keeps little history; a real one forgets after five minutes and has no such setting"

ONLY_OURS: dict[str, str] = {
    "test_clients_that_vanish_leave_no_watch_behind": "reads our metric; controllers of a cluster watch too",
    "test_logs_are_those_of_the_process": _NO_NODE,
    "test_exec_tells_output_errors_and_exit_code": _NO_NODE,
    "test_exec_passes_megabytes_of_input_and_sees_its_end": _NO_NODE,
    "test_exec_says_what_cannot_be_executed": _NO_NODE,
    "test_exec_at_a_terminal_follows_its_size": _NO_NODE,
    "test_a_client_that_is_killed_takes_its_program_with_it": _NO_NODE,
    "test_attach_reads_and_writes_the_running_program": _NO_NODE,
    "test_cp_copies_files_and_trees_both_ways": _NO_NODE,
    "test_port_forward_carries_several_connections": _NO_NODE,
    "test_port_forward_says_that_nobody_listens": _NO_NODE,
    "test_a_shipped_runtime_is_applied_without_a_conflict": "needs a runtime that we shipped",
    "test_fields_that_pages_read_exist": _NO_NODE,
    "test_top_shows_pods_containers_and_the_node": _NO_NODE,
    "test_the_python_client_executes_with_exit_code": _NO_NODE,
    "test_the_python_client_forwards_ports": _NO_NODE,
    "test_a_running_pod_is_entered_read_and_reached": _NO_NODE,
    "test_the_log_of_a_running_pod_is_followed": _NO_NODE,
    "test_sessions_are_in_the_audit_log_and_need_the_right_to_create": _NO_NODE,
    "Deployments show the parts of the control plane and cannot be written": "a cluster's Deployments can be written",
    "test_kubectl_prints_that_the_revision_is_too_old": _SMALL,
    "test_a_python_watch_with_a_time_limit_raises_410": _SMALL,
    "test_a_python_watch_goes_on_after_a_new_list": _SMALL,
    "test_a_quiet_kind_is_not_forgotten_because_another_is_busy": _SMALL,
    "test_a_continue_token_of_forgotten_history_expires": _SMALL,
}
"""Test or scenario title -> why it runs on our server only."""

ONLY_KUBE: dict[str, str] = {}
"""Test or scenario title -> why it runs on a real kube-apiserver only."""
