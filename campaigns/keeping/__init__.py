"""Files of a campaign: what is kept of each cell, and how it is read."""
