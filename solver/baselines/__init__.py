"""The schedules that users and papers compare with, each in a module of its own, reached by name
through ``solver.baselines.registry``.
"""
