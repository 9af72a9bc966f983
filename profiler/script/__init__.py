"""Write the harness's plan for a block, and read its records."""
