"""False alarms of campaigns on equal things, and how often they find a true change.

    python -m benchmarks.campaigns [--trials N] [--minutes M] --record FOLDER [--write FILE]

A trial is a campaign of its own on one board. What is done is kept in the folder, from which the
same command goes on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev

from benchmarks.campaigns.power import simulate
from benchmarks.campaigns.trials import CELLS, REPETITIONS, SUBJECTS, Bench, Subject, Trial
from benchmarks.machine import program_version, release
from benchmarks.pages import Page, Table
from benchmarks.publish import command_line, publish, report_progress
from campaigns.comparing.comparison import CampaignComparison
from campaigns.comparing.shifts import Shift

_MARGIN = 0.02
_NO_SCATTER = 1e-6
_SIMULATED, _CHANGES = 4000, (0.0, 0.01, 0.02, 0.03, 0.05, 0.10, 0.15)
_TEXT = f"""
Every trial is a campaign (`campaign run`, then `campaign compare`) with {REPETITIONS} repetitions
of two schedules of one training step, and a control: one of the schedules, which runs twice in
every repetition. Between these two runs nothing differs, so that *slower* or *faster* is a false
alarm (A/A). The other schedule has less RAM and recomputes, so that its step takes longer: a true
change (A/B), which is found if the verdict is *slower*. Schedules, profile and build are the same
in all trials of a board; the seed, and so the order of replays and the schedule that is the
control, is another in each. Verdicts are those of the command, with its margin of {_MARGIN:.0%}.

On this computer, times scatter with everything else that it does. The emulated microcontroller
counts instructions, and takes the same time for the same step.

Finished trials are kept: the last section is of the last call, whose duration may be short.
"""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--trials", type=int, default=40, help="on this computer (40)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no trial after that time (no limit)"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", required=True, help="where to go on"
    )
    publish("benchmarks.campaigns", parser, _measure)


def _measure(arguments: argparse.Namespace) -> Page:
    bench, end_s = Bench(arguments.record, release()), time.monotonic() + 60 * arguments.minutes
    for number in range(arguments.trials):
        for subject in SUBJECTS:
            if number % subject.every or time.monotonic() > end_s:
                continue
            if bench.try_once(subject, number):
                trial = bench.trials(subject)[-1]
                report_progress(
                    f"{subject.board}, trial {number}: change {trial.change.shift:+.2%}"
                    f" ({trial.change.verdict}), control {trial.control.verdict}"
                )
    found = [(subject, trials) for subject in SUBJECTS if (trials := bench.trials(subject))]
    if not found:
        raise SystemExit(f"{arguments.record}: no trial is kept here, and no time is left for one")
    made = {subject.board: len(trials) for subject, trials in found}
    return Page(
        title="False alarms and power of campaigns",
        text=_TEXT + "".join(missing(made, arguments.trials)),
        tables=[
            *(_alarms(found), _two_campaigns(bench, found), _changes(bench, found)),
            *(_simulated(found), _overhead(bench, found)),
        ],
        versions=[program_version("qemu-system-arm"), program_version("cc")],
    )


def missing(made: Mapping[str, int], asked: int) -> Iterator[str]:
    """Sentences on the trials for which there was no time, with the number made on each board."""
    for subject in SUBJECTS:
        wanted, count = len(range(0, asked, subject.every)), made.get(subject.board, 0)
        if count < wanted:
            yield (
                f"\n**{count} of {wanted} trials on {subject.board} were made** before the time"
                " ended; the same command with more time makes the others.\n"
            )


def _alarms(found: Sequence[tuple[Subject, Sequence[Trial]]]) -> Table:
    rows = []
    for subject, trials in found:
        verdicts = Counter(trial.control.verdict for trial in trials)
        alarms = verdicts["more"] + verdicts["less"]
        rows.append(
            (
                *(subject.board, str(len(trials)), str(alarms), _share(alarms, len(trials))),
                *(str(verdicts["same"]), str(verdicts["undecided"])),
                f"{_scatter(trials):.2%}",
                f"{max(trial.load for trial in trials):.1f}",
            )
        )
    return Table(
        head=(
            *("board", "A/A comparisons", "false alarms", "share, 95% interval"),
            *("same", "undecided", "scatter", "highest load"),
        ),
        rows=rows,
        title="Equal things",
        text="At most 5 % may raise an alarm. The trials are of"
        f" {' and '.join(sorted({trial.release for _, trials in found for trial in trials}))}.",
        note="*Scatter* is the standard deviation of the ratio of two runs of one schedule in one"
        " repetition. *Load* is the load average of this computer over one minute.",
    )


def _two_campaigns(bench: Bench, found: Sequence[tuple[Subject, Sequence[Trial]]]) -> Table:
    rows = []
    for subject, _ in found:
        comparisons = [_shifts(comparison) for comparison in bench.compared_in_pairs(subject)]
        if not comparisons:
            continue
        alarms = sum(
            any(shift.verdict in ("more", "less") for shift in shifts) for shifts in comparisons
        )
        shifts = [shift for each in comparisons for shift in each]
        verdicts = Counter(shift.verdict for shift in shifts)
        rows.append(
            (
                *(subject.board, str(len(comparisons)), str(alarms)),
                *(_share(alarms, len(comparisons)), str(len(shifts))),
                *(str(verdicts["same"]), str(verdicts["undecided"])),
                f"{max(abs(shift.shift) for shift in shifts):.2%}",
            )
        )
    return Table(
        head=(
            *("board", "pairs of campaigns", "with a false alarm", "share, 95% interval"),
            *("shifts", "same", "undecided", "largest shift"),
        ),
        rows=rows,
        title="Equal campaigns",
        text="Here the campaigns of two trials are compared with each other (`campaign compare A"
        " B`): equal files but for the seed, one after the other. A comparison states a shift for"
        " each schedule and one over both; *slower* or *faster* for any of them is a false alarm."
        " At most 5 % may raise one.",
        note="Every campaign is in one pair. What changes on this computer between two campaigns"
        " is in no interval, which comes from what changes between repetitions of each; levels of"
        " one campaign share it.",
    )


def _shifts(comparison: CampaignComparison) -> list[Shift]:
    """Shifts of the times of all cells, and over all."""
    stated = (*comparison.cells, *comparison.overall)
    return [each.shift for each in stated if each.quantity == "time"]


def _changes(bench: Bench, found: Sequence[tuple[Subject, Sequence[Trial]]]) -> Table:
    rows = []
    for subject, trials in found:
        logs = [log for trial in trials for log in trial.change_logs]
        visible = sorted(trial.change.visible or 0.0 for trial in trials)
        more = sum(trial.change.verdict == "more" for trial in trials)
        error = stdev(logs) / math.sqrt(len(logs))
        rows.append(
            (
                *(subject.board, f"{subject.network}, batch {subject.batch}"),
                f"{bench.predicted_change(subject):+.2%}",
                f"{math.expm1(fmean(logs)):+.2%} ± {1.96 * error:.2%}",
                *(str(len(trials)), str(more), _share(more, len(trials))),
                f"{visible[len(visible) // 2]:.2%}",
            )
        )
    return Table(
        head=(
            *("board", "step", "predicted change", "measured in all trials", "A/B comparisons"),
            *("found", "share, 95% interval", "median visible change"),
        ),
        rows=rows,
        title="A true change",
        text="At least 90 % of the comparisons must find it.",
        note="The change that all trials together measure, with its 95 % interval, stands for the"
        " true one. *Visible* is the change that `campaign compare` states as found with 90 %"
        " probability.",
    )


def _simulated(found: Sequence[tuple[Subject, Sequence[Trial]]]) -> Table:
    rows = []
    for subject, trials in found:
        if _scatter(trials) < _NO_SCATTER:
            continue  # what is found is what exceeds the margin
        scatter = [log for trial in trials for log in trial.control_logs]
        for change in _CHANGES:
            power = simulate(scatter, change, REPETITIONS, _SIMULATED, _MARGIN)
            rows.append(
                (
                    *(subject.board, f"{change:.0%}", str(power.comparisons)),
                    f"{power.more / power.comparisons:.2%}",
                    f"{power.less / power.comparisons:.2%}",
                )
            )
    return Table(
        head=("board", "true change", "simulated comparisons", "slower", "faster"),
        rows=rows,
        title="Simulated, not measured",
        text=f"Ratios of {REPETITIONS} pairs are drawn from those of all controls above, with a"
        " random sign, and multiplied by a change.",
        note="In the rows of 0 %, *slower* and *faster* are false alarms. Within the margin of"
        f" {_MARGIN:.0%} the verdict is *same*.",
    )


def _overhead(bench: Bench, found: Sequence[tuple[Subject, Sequence[Trial]]]) -> Table:
    rows = []
    for subject, trials in found:
        whole = [trial for trial in trials if trial.replays == 3 * REPETITIONS]
        if not whole:
            continue
        call_s = median(trial.call_s for trial in whole)
        replays_s = median(trial.replays_s for trial in whole)
        commands_s = 3 * REPETITIONS * bench.commands_s(subject)
        rows.append(
            (
                *(subject.board, str(len(whole)), f"{call_s / CELLS:.2f} s"),
                *(f"{replays_s / CELLS:.2f} s", f"{commands_s / CELLS:.2f} s"),
                f"{(call_s - commands_s) / CELLS:+.2f} s, {call_s / commands_s - 1:+.1%}",
                f"{max(trial.load for trial in whole):.1f}",
            )
        )
    return Table(
        head=(
            *("board", "calls", "a cell", "of it in replays", "as commands"),
            *("over the commands", "highest load"),
        ),
        rows=rows,
        title="Overhead",
        text="A campaign may take at most 2 % or a second a cell longer than its commands one by"
        " one.",
        note=f"A call of `campaign run` has {CELLS} cells with {REPETITIONS} replays each, and a"
        " control with as many. *A cell* is half of the call, from the start of its process to its"
        " end. *As commands* is what as many calls of `run` take, from the median of 10, which"
        " start a process, open the board and build each time; a campaign does this once. These 10"
        " are timed in one block when a page of the folder is made for the first time, and so at"
        " another time than the campaigns, perhaps of another release. The others are medians of"
        " the calls: one that waits while another program uses the board, or on a loaded computer,"
        " takes longer.",
    )


def _scatter(trials: Sequence[Trial]) -> float:
    logs = [log for trial in trials for log in trial.control_logs]
    return math.sqrt(fmean(log * log for log in logs))


def _share(count: int, of: int) -> str:
    """A share with its exact 95 % interval (Clopper and Pearson)."""
    from scipy.stats import binomtest

    ends = binomtest(count, of).proportion_ci(0.95)
    return f"{count / of:.0%} ({ends.low:.0%} to {ends.high:.0%})"


if __name__ == "__main__":
    main()
