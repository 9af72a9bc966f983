"""Memory is addresses: an offset in one arena for everything that a schedule has in RAM, and
schedules changed until they pack."""
