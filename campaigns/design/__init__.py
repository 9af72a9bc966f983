"""Design of a campaign: its file, and the cells that the file asks for."""
