"""Campaigns under random faults, compared with an undisturbed one."""
