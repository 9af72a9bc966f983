"""Shared vocabulary: boards, operations, profiles, plans and their file formats."""
