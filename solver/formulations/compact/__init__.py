"""The compact formulation."""
