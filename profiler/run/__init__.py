"""A profile: measured block by block, evaluated and assembled."""
