"""Lower schedules to execution plans, run them on boards, compare predicted with measured."""
