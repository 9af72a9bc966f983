"""The referee: replays any schedule independently of the formulations and checks its figures."""
