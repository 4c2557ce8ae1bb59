"""About a hundred questions and programs, warm and cold, in an environment with everything that installers do.

The answers must be the same. What may differ is in docs/warm-start.md: modules that are already imported, `hash()`, and
one more frame below the program.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import warm_probes
from tests.node.warm_pairs import IMPORTS, Pair, run, sort_lines
from trainmaster.shim.protocol import FULL

pytestmark = pytest.mark.node

_PRELOADED = (*IMPORTS, "pure", "pure.inner")


async def compare(it: Pair, form: str, *arguments: str) -> list[str]:
    """The questions with different answers."""
    texts = await it.both(*arguments, env={"OWN": "välue", "OMP_NUM_THREADS": "2"})
    cold, warm = (warm_probes.read_answers(*seen) for seen in zip(texts, (it.count - 1, it.count), strict=True))
    bad = [name for name, answer in cold.items() if str(answer).startswith(("NameError", "SyntaxError"))]
    assert not bad, "these questions are wrong themselves"
    assert warm.pop("FIRST") - cold.pop("FIRST") <= {"pure", "__mp_main__"}, "only what was imported in advance"
    return [f"{form}, {name}:\n  cold {cold[name]}\n  warm {warm[name]}" for name in cold if warm[name] != cold[name]]


def test_every_question_has_the_same_answer_in_every_form_of_a_program(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        forms = warm_probes.write_forms(it.work)
        differences = [line for form, words in forms.items() for line in await compare(it, form, *words)]
        assert not differences, "\n".join(differences)

    run(tmp_path, test, imports=_PRELOADED, prefix=warm_probes.make_environment(tmp_path))


def test_every_question_has_the_same_answer_in_a_sandbox(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        forms = warm_probes.write_forms(it.work)
        assert not await compare(it, "sandbox", *forms["script"])
        assert not await compare(it, "sandbox", *forms["code"])

    run(tmp_path, test, FULL)


def test_programs_write_and_end_alike(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        it.write("beside.py", "")
        (it.work / "elsewhere").mkdir()
        it.write("elsewhere/other.py", "")
        differences = []
        for name, text in warm_probes.PROGRAMS.items():
            (it.work / "program.py").write_bytes(text.encode() if isinstance(text, str) else text)
            cold, warm = map(sort_lines, await it.both("program.py"))
            if warm != cold:
                differences.append(f"{name}:\n  cold {cold}\n  warm {warm}")
        assert not differences, "\n".join(differences)

    run(tmp_path, test, imports=_PRELOADED, prefix=warm_probes.make_environment(tmp_path))


def test_a_program_that_is_not_source_starts_cold(tmp_path: Path) -> None:
    async def test(it: Pair) -> None:
        warm_probes.write_archive(it.work / "app.pyz")
        (it.work / "folder").mkdir()
        it.write("folder/__main__.py", "print(__file__)\n")
        both = "'program.pyc', 'no_suffix'"
        compiling = f"import py_compile\nfor name in {both}: py_compile.compile('folder/__main__.py', name)"
        await it.run(it.make_spec("-c", compiling), warm=False)
        for name in ("app.pyz", "folder", "program.pyc", "no_suffix"):
            spec = it.make_spec(name)
            cold, cold_log, _ = await it.run(spec, warm=False)
            warm, warm_log, began = await it.run(spec, warm=True)
            assert (cold.exited.code, cold_log) == (warm.exited.code, warm_log), name
            assert warm.exited.code == 0, warm_log
            assert began.started.note.startswith("started cold: "), began.started.note

    run(tmp_path, test, prefix=warm_probes.make_environment(tmp_path))
