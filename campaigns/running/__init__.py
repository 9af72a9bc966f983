"""Running a campaign: profiles, schedules and replays, in processes that may fail."""
