"""Wire tests that one of the two servers cannot pass, by name, each with its reason. Everything else runs on both."""

from __future__ import annotations

_NO_NODE = "needs a node that runs processes; the real control plane of the tests has none"
_SMALL = "needs a server that keeps little history; a real one forgets after five minutes and has no such setting"

ONLY_OURS: dict[str, str] = {
    "test_clients_that_vanish_leave_no_watch_behind": "reads our metric; controllers of a cluster watch too",
    "test_logs_are_those_of_the_process": _NO_NODE,
    "test_kubectl_prints_that_the_revision_is_too_old": _SMALL,
    "test_a_python_watch_with_a_time_limit_raises_410": _SMALL,
    "test_a_python_watch_goes_on_after_a_new_list": _SMALL,
    "test_a_quiet_kind_is_not_forgotten_because_another_is_busy": _SMALL,
    "test_a_continue_token_of_forgotten_history_expires": _SMALL,
}
"""Test or scenario title -> why it runs on our server only."""

ONLY_KUBE: dict[str, str] = {}
"""Test or scenario title -> why it runs on a real kube-apiserver only."""
