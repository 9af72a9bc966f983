"""Pictures of replays."""
