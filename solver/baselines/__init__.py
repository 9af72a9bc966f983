"""The schedules that users and papers compare with, each in a module of its own.

Those that need no search are exported here. The others are reached by name through
``solver.baselines.registry``, which this package must not import: two of them are this project's
own solver, which itself begins with the schedules of this module.
"""

from solver.baselines.unsearched import keep_everything, page_everything

__all__ = ["keep_everything", "page_everything"]
