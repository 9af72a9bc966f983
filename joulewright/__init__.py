"""Joulewright as a library: the names that scripts use, in one package.

::

    from joulewright import Budget, SolverOptions, build_model, cost_graph
    from joulewright import keep_everything, replay, resolve_profile, solve_graph

    step = build_model("linear", batch=4)
    graph = cost_graph(step, resolve_profile("m4")).graph
    kept = replay(graph, keep_everything(graph))
    budget = Budget(ram_bytes=int(0.9 * kept.peak_bytes), deadline_s=2 * kept.time_s)
    schedule = solve_graph(graph, budget, SolverOptions(gap=0.01))
    checked = replay(graph, schedule.actions)
    print(f"{checked.peak_bytes} bytes, {checked.energy_j} J ({schedule.energy_source})")

Boards, profiles and files:

- ``load_description``: load a ``DeviceDescription`` by name in the catalogue or by path.
- ``resolve_profile``: load a ``DeviceProfile`` by path, or by name among measured and published
  ones.
- ``Results``: the directories in which the commands keep profiles, schedules and other results.
- ``read_solved``: read a schedule and its graph, and check every figure that the schedule states.
- ``read_json``: read and validate a graph or another document.
- ``dump_yaml``: format a profile or a description as the text of its file.
- ``write_atomically``: write a file completely or not at all.
- ``JoulewrightError``: the root of all errors, with an ``exit_code``.

Networks and measuring:

- ``build_model``: build a ``TrainingStep`` of a built-in network.
- ``generated_batches``: generate samples from a seed.
- ``profile_network``: measure what a network's training step costs on a board, in one call.
- ``profile_device``: measure the costs of operations and pages on a board, with
  ``ProfileOptions``.
- ``watch_step``: measure the costs of a ``ProfiledNetwork``'s ops in their places of its step;
  ``with_step_costs`` adds them to a profile.

Solving:

- ``solve``: find a schedule in one call, with the parameters of POET's function.
- ``cost_graph``: combine a training step and a profile into a ``CostedGraph``.
- ``keep_everything``: the actions that recompute and page nothing.
- ``solve_graph``: find the ``Schedule`` of a graph within a ``Budget``, with ``SolverOptions``.
- ``replay``: recompute energy, time and peak of any actions of a graph, with the referee.

Running:

- ``run_schedule``: run a schedule on its board and report measured beside predicted figures, in
  one call.
- ``planned_workspace``: the bytes of workspace that kernels need in a graph.
- ``lower``: make the execution plan of a schedule; ``unscheduled`` makes that of a plain step.
- ``expected_step``: predict what each action of a schedule takes, with intervals.
- ``replay_schedule``: run a ``Subject`` on its board for the steps of a ``Training``.

Pictures, each function returns the paths of the files that it wrote:

- ``draw_profile``: draw the costs of operations and of storage.
- ``draw_schedule``: draw memory, stages and addresses of a schedule.
- ``draw_replay``: draw measured beside predicted times and memory of a report.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from devices.description import DeviceDescription, load_description
    from devices.documents.document import dump_yaml, read_json, write_atomically
    from devices.errors import JoulewrightError
    from devices.library import resolve_profile
    from devices.profile import DeviceProfile, ProfiledNetwork
    from devices.results import Results
    from networks.data import generated_batches
    from networks.models import build_model
    from networks.training import TrainingStep
    from plots.pictures import draw_profile, draw_schedule
    from plots.replay.pictures import draw_replay
    from profiler.run.options import ProfileOptions
    from profiler.run.run import profile_device
    from replay.costs.context import with_step_costs
    from replay.costs.measuring import profile_network
    from replay.costs.watch import watch_step
    from replay.expectation import expected_step
    from replay.lowering.lowering import lower, unscheduled
    from replay.run_report import run_schedule
    from replay.runs import Subject, Training, planned_workspace, replay_schedule
    from solver.constructed import keep_everything
    from solver.costing.costing import cost_graph
    from solver.files.solved import read_solved
    from solver.options import SolverOptions
    from solver.problem.graph import CostedGraph
    from solver.problem.schedule import Budget, Schedule
    from solver.published_call import solve
    from solver.referee.referee import replay
    from solver.solving.solving import solve_graph

__all__ = [
    "Budget",
    "CostedGraph",
    "DeviceDescription",
    "DeviceProfile",
    "JoulewrightError",
    "ProfileOptions",
    "ProfiledNetwork",
    "Results",
    "Schedule",
    "SolverOptions",
    "Subject",
    "Training",
    "TrainingStep",
    "build_model",
    "cost_graph",
    "draw_profile",
    "draw_replay",
    "draw_schedule",
    "dump_yaml",
    "expected_step",
    "generated_batches",
    "keep_everything",
    "load_description",
    "lower",
    "planned_workspace",
    "profile_device",
    "profile_network",
    "read_json",
    "read_solved",
    "replay",
    "replay_schedule",
    "resolve_profile",
    "run_schedule",
    "solve",
    "solve_graph",
    "unscheduled",
    "watch_step",
    "with_step_costs",
    "write_atomically",
]

_MODULES = {
    "devices.description": ("DeviceDescription", "load_description"),
    "devices.documents.document": ("dump_yaml", "read_json", "write_atomically"),
    "devices.errors": ("JoulewrightError",),
    "devices.library": ("resolve_profile",),
    "devices.profile": ("DeviceProfile", "ProfiledNetwork"),
    "devices.results": ("Results",),
    "networks.data": ("generated_batches",),
    "networks.models": ("build_model",),
    "networks.training": ("TrainingStep",),
    "plots.pictures": ("draw_profile", "draw_schedule"),
    "plots.replay.pictures": ("draw_replay",),
    "profiler.run.options": ("ProfileOptions",),
    "profiler.run.run": ("profile_device",),
    "replay.costs.context": ("with_step_costs",),
    "replay.expectation": ("expected_step",),
    "replay.lowering.lowering": ("lower", "unscheduled"),
    "replay.costs.measuring": ("profile_network",),
    "replay.run_report": ("run_schedule",),
    "replay.runs": ("Subject", "Training", "planned_workspace", "replay_schedule"),
    "replay.costs.watch": ("watch_step",),
    "solver.constructed": ("keep_everything",),
    "solver.costing.costing": ("cost_graph",),
    "solver.files.solved": ("read_solved",),
    "solver.options": ("SolverOptions",),
    "solver.problem.graph": ("CostedGraph",),
    "solver.problem.schedule": ("Budget", "Schedule"),
    "solver.published_call": ("solve",),
    "solver.referee.referee": ("replay",),
    "solver.solving.solving": ("solve_graph",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Import lazily: a package takes a while to import, and a script may use only a part.
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'joulewright' has no attribute {name!r}")
