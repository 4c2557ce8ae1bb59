"""Runs in the environment of the Kubeflow SDK, not in ours: programs that a test names on standard input, one by one.

Each line of JSON names a file, and a session if programs are to share their variables, as the cells of a notebook do;
every session begins with those of the first program. The answer is a line of JSON: what was printed, and the traceback
if it failed. Importing the SDK takes most of a second; this way it is done once.
"""

import contextlib
import io
import json
import sys
import traceback


def main() -> None:
    answers = sys.stdout
    first = {"__name__": "__main__"}
    sessions = {"first": first}
    for line in sys.stdin:
        path, session = json.loads(line)
        variables = sessions.setdefault(session, dict(first)) if session else dict(first)
        out, error = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            try:
                with open(path) as file:
                    exec(compile(file.read(), path, "exec"), variables)
            except BaseException:  # noqa: BLE001  # whatever it is, the test is told
                error = traceback.format_exc()
        answers.write(json.dumps({"out": out.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
