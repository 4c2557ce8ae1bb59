"""Runs in the environment of the Kubeflow SDK, not in ours: programs that a test names on standard input, one by one.

Each line is a path; the answer is a line of JSON: what the program printed, and its traceback if it failed. Programs
share one namespace, as the cells of a notebook do. Importing the SDK takes most of a second; this way it is done once.
"""

import contextlib
import io
import json
import sys
import traceback


def main() -> None:
    answers = sys.stdout
    shared = {"__name__": "__main__"}
    for line in sys.stdin:
        path = line.strip()
        out, error = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            try:
                with open(path) as file:
                    exec(compile(file.read(), path, "exec"), shared)
            except BaseException:  # noqa: BLE001  # whatever it is, the test is told
                error = traceback.format_exc()
        answers.write(json.dumps({"out": out.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
