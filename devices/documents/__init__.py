"""Strict YAML and JSON documents, atomic writes, and errors in plain English."""
