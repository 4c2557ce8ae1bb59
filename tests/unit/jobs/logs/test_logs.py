"""One stream of all that a TrainJob prints: merged, followed across restarts, nothing twice and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from tests.support.logworld import NAMESPACE, LogWorld
from trainmaster.api.resources import JOB_SETS
from trainmaster.api.status import NotFound
from trainmaster.client.contract import LogOptions, PatchType
from trainmaster.jobs.logs.contract import Entry, JobLogOptions, Line
from trainmaster.jobs.logs.lines import sort_key
from trainmaster.jobs.logs.places import LogSource, find_absent, list_log_sources
from trainmaster.jobs.logs.stream import watch_lines
from trainmaster.jobs.lookups import get_training_job
from trainmaster.testing.cluster import running_cluster
from trainmaster.testing.virtual import run_virtual

pytestmark = pytest.mark.unit

Act = Callable[[LogWorld], Awaitable[None]]
FOLLOW = JobLogOptions(follow=True)


def show(entry: Entry) -> str:
    return f"{entry.attempt}.{entry.rank} {entry.text}" if isinstance(entry, Line) else f"{entry.kind}: {entry.text}"


async def collect(world: LogWorld, wanted: JobLogOptions, *, kept: bool = True) -> list[str]:
    lines = watch_lines(world, world._cluster.clock, NAMESPACE, world.name, wanted, world if kept else None)
    async with aclosing(lines):
        return [show(entry) async for entry in lines]


def read(
    *acts: Act,
    wanted: JobLogOptions = JobLogOptions(),  # noqa: B008 - frozen
    kept: bool = True,
    make: type[LogWorld] = LogWorld,
) -> list[str]:
    """What is read after all acts."""

    async def main() -> list[str]:
        async with running_cluster() as cluster:
            world = make(cluster)
            await world.submit()
            for act in acts:
                await act(world)
            return await collect(world, wanted, kept=kept)

    return run_virtual(main())


def follow(*acts: Act, wanted: JobLogOptions = FOLLOW, kept: bool = True, make: type[LogWorld] = LogWorld) -> list[str]:
    """What a follower reads that was there from the first act on; the acts are a second apart."""

    async def main() -> list[str]:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = make(cluster)
            await world.submit()
            reading = group.create_task(collect(world, wanted, kept=kept))
            for act in acts:
                await asyncio.sleep(1)
                await act(world)
            return await reading

    return run_virtual(main())


def start(pod: str, *, rank: int = 0, attempt: int = 0) -> Act:
    return lambda world: world.start(pod, rank=rank, attempt=attempt)


def say(pod: str, *texts: str, time: str = "") -> Act:
    async def act(world: LogWorld) -> None:
        world.print(pod, *texts, time=time)

    return act


def end(pod: str, code: int = 0) -> Act:
    return lambda world: world.end(pod, code)


def remove(pod: str, *, keep: bool = True) -> Act:
    return lambda world: world.remove(pod, keep=keep)


def finish(world: LogWorld) -> Awaitable[None]:
    return world.finish()


TWO_RANKS = (start("a"), start("b", rank=1), say("a", "one"), say("b", "two"), say("a", "three"))


def test_lines_of_all_ranks_come_merged_by_time() -> None:
    assert read(*TWO_RANKS) == ["0.0 one", "0.1 two", "0.0 three"]


def test_one_rank_can_be_asked_for_and_only_the_last_lines() -> None:
    assert read(*TWO_RANKS, wanted=JobLogOptions(rank=1)) == ["0.1 two"]
    assert read(*TWO_RANKS, wanted=JobLogOptions(tail=1)) == ["0.1 two", "0.0 three"]
    assert read(*TWO_RANKS, wanted=JobLogOptions(since_time="2026-01-01T00:00:02Z")) == ["0.1 two", "0.0 three"]


def test_the_last_lines_are_those_of_a_rank_whichever_of_its_pods_printed_them() -> None:
    """After suspend and resume, a rank has another Pod in the same attempt."""
    before = (start("a"), start("b", rank=1), say("a", "1", "2", "3"), say("b", "x", "y", "z"))
    after = (remove("a"), remove("b"), start("a2"), start("b2", rank=1), say("a2", "4", "5"))
    for wanted in (JobLogOptions(tail=3), JobLogOptions(tail=3, last_attempt=True)):
        assert read(*before, *after, wanted=wanted) == ["0.0 3", "0.1 x", "0.1 y", "0.1 z", "0.0 4", "0.0 5"]
    assert read(*before, *after, wanted=JobLogOptions(tail=0)) == []
    again = (start("a"), say("a", "1", "2"), lambda world: world.restart_container("a"), say("a", "3"))
    assert read(*again, wanted=JobLogOptions(tail=2)) == ["0.0 2", "0.0 3"]
    followed = follow(*before, *after, end("a2"), end("b2"), finish, wanted=JobLogOptions(follow=True, tail=3))
    assert len(followed) == 8, "what is printed from now on is not counted"


def test_what_a_job_does_not_have_is_told_with_what_it_has() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            world = LogWorld(cluster)
            await world.submit()
            job = await get_training_job(world, NAMESPACE, world.name)
            assert await list_log_sources(world, job, world) == {LogSource(0, "node", 0, "node")}
            for act in (start("a"), start("b", rank=1), start("c", rank=2), remove("a")):
                await act(world)
            sources = await list_log_sources(world, job, world)
            assert {source.rank for source in sources} == {0, 1, 2}

    run_virtual(main())


SOURCES = [LogSource(0, "node", rank, "node") for rank in range(3)] + [LogSource(1, "launcher", 0, "mpi")]


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        (JobLogOptions(rank=2), ""),
        (JobLogOptions(rank=7), "j has no rank 7: it has ranks 0 to 2"),
        (JobLogOptions(rank=-1), "j has no rank -1: it has ranks 0 to 2"),
        (JobLogOptions(attempt=9), "j has no attempt 9: it has attempts 0 and 1"),
        (JobLogOptions(attempt=9, follow=True), ""),
        (JobLogOptions(attempt=1, rank=2), "j has no rank 2: it has only rank 0"),
        (JobLogOptions(job="zzz"), "j has no step zzz: it has steps launcher and node"),
        (JobLogOptions(job="node", container="zzz"), "j has no container zzz: it has only container node"),
    ],
)
def test_the_first_thing_that_is_not_there_is_named(wanted: JobLogOptions, want: str) -> None:
    assert find_absent("j", wanted, SOURCES) == want
    assert find_absent("j", wanted, []) == "", "nothing is known yet"


def test_attempts_whose_pods_are_gone_come_from_what_was_kept() -> None:
    acts = (start("a"), say("a", "first try"), remove("a"), start("b", attempt=1), say("b", "second try"))
    assert read(*acts) == ["attempt: attempt 0", "0.0 first try", "attempt: attempt 1", "1.0 second try"]
    assert read(*acts, wanted=JobLogOptions(last_attempt=True)) == ["attempt: attempt 1", "1.0 second try"]
    assert read(*acts, wanted=JobLogOptions(attempt=0)) == ["0.0 first try"]
    assert read(*acts, kept=False) == ["1.0 second try"]


def test_a_container_that_was_restarted_shows_the_run_before_too() -> None:
    acts = (start("a"), say("a", "crash"), lambda world: world.restart_container("a"), say("a", "again"))
    assert read(*acts) == ["0.0 crash", "0.0 again"]


def test_following_waits_for_the_start_and_ends_with_the_job() -> None:
    assert follow(start("a"), say("a", "x"), say("a", "y"), end("a"), finish) == ["0.0 x", "0.0 y"]


def test_following_begins_with_what_there_is_and_repeats_none_of_it() -> None:
    async def main() -> list[str]:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = LogWorld(cluster)
            await world.submit()
            await world.start("a")
            world.print("a", "old", "same", "same", time="2026-01-01T00:00:09.5Z")
            reading = group.create_task(collect(world, FOLLOW))
            await asyncio.sleep(1)
            world.print("a", "same", "new", time="2026-01-01T00:00:09.5Z")
            await world.end("a")
            await world.finish()
            return await reading

    assert run_virtual(main()) == ["0.0 old", "0.0 same", "0.0 same", "0.0 same", "0.0 new"]


def test_following_crosses_a_restart_of_the_gang_and_says_why() -> None:
    async def fail(world: LogWorld) -> None:
        await world.end("a", 3)
        failure = {"attempt": 0, "rank": 0, "replicatedJob": "node", "exitCode": 3, "job": "j", "pod": "a"}
        await world.set_status({"failure": failure})

    acts = (start("a"), say("a", "x"), fail, remove("a"), start("b", attempt=1), say("b", "y"), end("b"), finish)
    assert follow(*acts) == ["0.0 x", "attempt: attempt 1, after node 0 ended with exit code 3", "1.0 y"]


def test_following_crosses_a_restart_of_a_container() -> None:
    acts = (start("a"), say("a", "x"), lambda world: world.restart_container("a"), say("a", "y"), end("a"), finish)
    assert follow(*acts) == ["0.0 x", "0.0 y"]


def test_an_attempt_that_came_and_went_unseen_is_told_before_the_next() -> None:
    async def flash(world: LogWorld) -> None:
        await world.start("a")
        world.print("a", "flash")
        await world.remove("a")
        await world.start("b", attempt=1)

    assert follow(flash, say("b", "y"), end("b"), finish) == ["0.0 flash", "attempt: attempt 1", "1.0 y"]


def test_without_a_history_what_is_lost_is_marked() -> None:
    async def flash(world: LogWorld) -> None:
        """The Pod is seen, and gone when its log is asked for."""
        await world.start("a")
        del world.runs["a"]

    assert follow(flash, finish, kept=False) == [
        "gap: something is missing of node 0: the Pod went before its log could be read"
    ]


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_cut_connection_loses_and_repeats_nothing(cuts: int) -> None:
    async def cut(world: LogWorld) -> None:
        world.cuts = cuts

    acts = (cut, start("a"), say("a", "1", "2", "2", "3", time="2026-01-01T00:00:01Z"), say("a", "4"), end("a"), finish)
    assert follow(*acts) == ["0.0 1", "0.0 2", "0.0 2", "0.0 3", "0.0 4"]


@pytest.mark.parametrize("tail", [None, 9])
@pytest.mark.parametrize("cuts", [1, 2, 5])
def test_a_connection_that_is_cut_at_the_beginning_loses_nothing_of_a_follower(cuts: int, tail: int | None) -> None:
    async def main() -> list[str]:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = LogWorld(cluster)
            await world.submit()
            await world.start("gone", rank=2)
            world.print("gone", "early", "late", time="2026-01-01T00:00:05Z")
            await world.remove("gone")
            await world.start("suspended")
            world.print("suspended", "0")
            await world.remove("suspended")
            await world.start("a")
            await world.start("b", rank=1)
            world.print("a", "1", "2", "3")
            world.print("b", "4", "5")
            world.cuts = cuts
            reading = group.create_task(collect(world, JobLogOptions(follow=True, tail=tail)))
            await asyncio.sleep(60)
            await world.end("a")
            await world.end("b")
            await world.finish()
            return await reading

    lines = run_virtual(main())
    assert sorted(lines) == ["0.0 0", "0.0 1", "0.0 2", "0.0 3", "0.1 4", "0.1 5", "0.2 early", "0.2 late"]
    assert [line for line in lines if line.startswith("0.0")] == ["0.0 0", "0.0 1", "0.0 2", "0.0 3"]


def test_a_line_after_a_stream_that_ended_too_early_is_not_lost_when_the_container_ends_next() -> None:
    """A server that stops ends its streams in good order. The news that the container has ended, which come next, do
    not say that its log was read to the end."""

    async def restart_server(world: LogWorld) -> None:
        world.drain()
        await asyncio.sleep(0.2)
        world.print("a", "last")
        await world.end("a")

    assert follow(start("a"), say("a", "x"), restart_server, finish) == ["0.0 x", "0.0 last"]


def test_a_line_after_a_stream_that_ended_too_early_is_not_lost_when_the_container_is_restarted() -> None:
    async def restart_server(world: LogWorld) -> None:
        world.drain()
        await asyncio.sleep(0.2)
        world.print("a", "last")
        await world.restart_container("a")

    acts = (start("a"), say("a", "x"), restart_server, say("a", "again"), end("a"), finish)
    assert follow(*acts) == ["0.0 x", "0.0 last", "0.0 again"]


def test_a_connection_that_is_cut_in_the_run_before_loses_nothing_of_it() -> None:
    async def restart_twice(world: LogWorld) -> None:
        """While nobody looks: run 0 was read, run 1 comes and goes, run 2 is there when somebody looks again."""
        world.sight.clear()
        await world.restart_container("a")
        world.print("a", "1a", "1b")
        world.cuts = 1
        await world.restart_container("a")
        world.print("a", "2")
        world.sight.set()

    acts = (start("a"), say("a", "0"), restart_twice, end("a"), finish)
    assert follow(*acts) == ["0.0 0", "0.0 1a", "0.0 1b", "0.0 2"]


def test_runs_that_nobody_can_hand_out_any_more_are_marked() -> None:
    async def restart_thrice(world: LogWorld) -> None:
        world.sight.clear()
        for text in ("1", "2", "3"):
            await world.restart_container("a")
            world.print("a", text)
        world.sight.set()

    acts = (start("a"), say("a", "0"), restart_thrice, end("a"), finish)
    gap = "gap: something is missing of node 0: runs 1 to 1 of node are gone"
    assert follow(*acts) == ["0.0 0", gap, "0.0 2", "0.0 3"]


def test_a_run_that_nobody_was_told_of_is_not_taken_for_the_one_before() -> None:
    async def restart_unseen(world: LogWorld) -> None:
        world.sight.clear()
        await world.restart_container("a")
        world.print("a", "1")

    async def see(world: LogWorld) -> None:
        world.sight.set()

    acts = (start("a"), say("a", "0"), restart_unseen, say("a", "2"), say("a", "3"), see, end("a"), finish)
    assert follow(*acts) == ["0.0 0", "0.0 1", "0.0 2", "0.0 3"]


def test_a_job_that_is_over_before_its_pod_was_seen_to_start_is_read_whole() -> None:
    """Each kind has a watch of its own, and that of the TrainJob may be ahead."""

    async def flash(world: LogWorld) -> None:
        world.sight.clear()
        await world.begin("a")
        world.print("a", "x")
        await world.end("a")
        await world.finish()

    assert follow(lambda world: world.bind("a"), flash) == ["0.0 x"]


def test_why_nothing_runs_yet_is_said_once_while_following() -> None:
    async def wait(world: LogWorld) -> None:
        waiting = {"reason": "Queued", "message": "no room", "since": "2026-01-01T00:00:00Z"}
        await world.set_status({"waiting": waiting})
        await world.set_status({"jobsStatus": []})

    async def go(world: LogWorld) -> None:
        await world.set_status({"waiting": None})
        await world.start("a")

    assert follow(wait, go, say("a", "x"), end("a"), finish) == ["waiting: Queued: no room", "0.0 x"]


def test_a_stream_that_is_given_up_leaves_no_task_behind() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            world = LogWorld(cluster)
            await world.submit()
            await world.start("a")
            world.print("a", "x")
            lines = watch_lines(world, cluster.clock, NAMESPACE, "job", FOLLOW)
            before = len(asyncio.all_tasks())
            async with aclosing(lines):
                assert [show(await anext(lines))] == ["0.0 x"]
                world.print("a", "y")
                assert show(await anext(lines)) == "0.0 y"
            assert len(asyncio.all_tasks()) == before

    run_virtual(main())


def test_a_job_that_does_not_exist_is_not_waited_for() -> None:
    async def main() -> None:
        async with running_cluster() as cluster:
            with pytest.raises(NotFound):
                await anext(watch_lines(cluster.client, cluster.clock, NAMESPACE, "nobody", FOLLOW))

    run_virtual(main())


def test_pods_of_an_older_job_of_that_name_are_not_taken_for_its_own() -> None:
    async def main() -> list[str]:
        async with running_cluster() as cluster:
            world = LogWorld(cluster)
            await world.submit()
            world.jobset = "of-another"
            await world.start("old")
            world.print("old", "not mine")
            return await collect(world, JobLogOptions())

    assert run_virtual(main()) == []


def test_times_sort_whatever_their_precision() -> None:
    assert sort_key("2026-01-01T00:00:00.5Z") < sort_key("2026-01-01T00:00:00.51Z")
    assert sort_key("2026-01-01T00:00:00Z") < sort_key("2026-01-01T00:00:00.000000001Z")


def test_what_is_kept_a_moment_after_the_pod_went_is_waited_for() -> None:
    """A node keeps logs just after the Pod's object has gone."""

    async def main() -> list[str]:
        async with running_cluster() as cluster, asyncio.TaskGroup() as group:
            world = LogWorld(cluster)
            await world.submit()
            await world.start("a")
            world.print("a", "x")
            await world.remove("a")
            late, world.kept = world.kept, []
            await world.start("b", attempt=1)
            world.print("b", "y")
            reading = group.create_task(collect(world, JobLogOptions()))
            await asyncio.sleep(1)
            world.kept = late
            return await reading

    assert run_virtual(main()) == ["attempt: attempt 0", "0.0 x", "attempt: attempt 1", "1.0 y"]


def test_without_a_history_earlier_attempts_and_ended_pods_are_missed() -> None:
    async def restart(world: LogWorld) -> None:
        patch = {"status": {"restarts": 1}}
        await world.patch(JOB_SETS, world.name, PatchType.MERGE, patch, NAMESPACE, subresource="status")

    acts = (restart, start("b", attempt=1), say("b", "two"))
    gap = "gap: the Pod of node 0 is gone, and its log with it"
    assert read(*acts, kept=False) == ["attempt: attempt 0", gap, "attempt: attempt 1", "1.0 two"]
    assert read(*acts, kept=False, wanted=JobLogOptions(last_attempt=True)) == ["1.0 two"]
    assert read(*acts, kept=True) == ["1.0 two"], "a history that has no log of it had nothing to keep"
    assert read(*acts, remove("b"), finish, kept=False, wanted=JobLogOptions(last_attempt=True)) == [gap]


class ForgetfulNode(LogWorld):
    """A kubelet that has removed the container, but not the Pod: it says so in place of the log."""

    async def logs(self, name: str, namespace: str, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:  # noqa: B008 - frozen
        yield b"unable to retrieve container logs for containerd://" + b"0a" * 32


def test_what_a_kubelet_says_in_place_of_a_log_is_a_gap_and_no_output() -> None:
    gone = "its container has been removed, and its log with it"
    acts = (start("a"), end("a"))
    assert read(*acts, make=ForgetfulNode) == [f"gap: no log of node 0: {gone}"]
    assert follow(*acts, finish, make=ForgetfulNode) == [f"gap: something is missing of node 0: {gone}"]


def test_a_program_may_print_the_same_text() -> None:
    text = "unable to retrieve container logs for containerd://" + "0a" * 32
    assert read(start("a"), say("a", text)) == [f"0.0 {text}"]
