"""Command ``run``: run a schedule on its board and compare it with the prediction."""
