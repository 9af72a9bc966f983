"""Report of a campaign: one HTML file that opens from disk, without a network."""
