"""Which failures of pip end a job, and which are tried again. The texts are those of pip 22 to 26."""

from __future__ import annotations

import pytest

from trainmaster.node.images.failures import find_index_problem, has_skipped_sources, is_lasting, list_fetch_failures

pytestmark = pytest.mark.unit

NONE = """ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)
ERROR: No matching distribution found for nosuch
"""
RETRYING = """WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection \
broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f3b>: Failed to establish a \
new connection: [Errno 111] Connection refused')': /nosuch/
"""
LOG = "2026-11-16T13:48:03,802 Could not fetch URL https://example.com/nosuch/: {} - skipping\n"
MISSING = "404 Client Error: Not Found for url: https://example.com/nosuch/"
FORBIDDEN = "403 Client Error: Forbidden for url: https://example.com/nosuch/"
BUSY = "429 Client Error: Too Many Requests for url: https://example.com/nosuch/"
GATEWAY = "502 Server Error: Bad Gateway for url: https://example.com/nosuch/"
TOO_MANY = (
    "HTTPConnectionPool(host='example.com', port=80): Max retries exceeded (Caused by ResponseError('too many 503'))"
)


@pytest.mark.parametrize(
    ("output", "fetches"),
    [
        (NONE, [MISSING]),
        (NONE, []),
        (NONE, [FORBIDDEN]),
        ("ERROR: Could not find a version that satisfies numpy==99 (from versions: 1.0, 2.0)\n" + NONE, []),
        ("ERROR: Invalid requirement: 'torch==='\n", []),
        ("ERROR: Cannot install a==1 and b==2 because these package versions have conflicting dependencies.\n", []),
        ("ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n", []),
        ("ERROR: old.whl is not a supported wheel on this platform.\n", []),
        ("error: metadata-generation-failed\n", [MISSING]),
        ("ERROR: Failed building wheel for x\nERROR: Could not build wheels for x\n", []),
    ],
)
def test_what_the_requirements_cause_lasts(output: str, fetches: list[str]) -> None:
    assert is_lasting(output, fetches)


@pytest.mark.parametrize(
    ("output", "fetches"),
    [
        (RETRYING + NONE, [MISSING]),
        (NONE, [GATEWAY]),
        (NONE, [TOO_MANY]),
        (NONE, [MISSING, GATEWAY]),
        (NONE, [BUSY]),
        ("ERROR: HTTP error 500 while getting https://example.com/x.whl\n", []),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", []),
        ("error: subprocess-exited-with-error\n" + RETRYING, []),
        ("", []),
        ("Killed", []),
    ],
)
def test_what_the_network_or_the_machine_causes_is_tried_again(output: str, fetches: list[str]) -> None:
    assert not is_lasting(output, fetches)


def test_the_log_says_what_the_index_answered() -> None:
    found = list_fetch_failures("Looking in indexes\n" + LOG.format(MISSING) + LOG.format(FORBIDDEN))
    assert found == [MISSING, FORBIDDEN]
    assert find_index_problem(found) == FORBIDDEN
    assert find_index_problem([MISSING]) == ""
    assert has_skipped_sources("  Skipping link: No sources permitted for x: https://example.com/x-1.tar.gz\n")
    assert not has_skipped_sources(LOG.format(MISSING))
