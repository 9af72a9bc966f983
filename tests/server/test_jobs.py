"""What a job of the server ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from devices.errors import ExitCode
from server.jobs import Job, Jobs, JobState
from server.limits import Limits


@pytest.mark.parametrize(
    ("status", "code"),
    [("optimal", 0), ("feasible", 0), ("infeasible", 5), ("exhausted", 7), ("no_solution", 6)],
)
def test_the_exit_code_of_an_answer_is_that_of_the_command(
    status: str, code: int, tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path, tmp_path, Limits())
    job = Job("job", tmp_path, JobState(state="running", kept_s=1.0), most_s=1.0)
    jobs._hear(job, {"answer": ["no schedule"], "status": status})
    jobs._end(job, "the process has ended", ExitCode.INTERNAL_ERROR)
    assert (job.seen.state, job.seen.exit_code) == ("done", code)
