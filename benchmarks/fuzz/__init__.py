"""Hostile input: mutations of valid files and records, and random ones, for everything that reads.

An input is made from its format and a seed. It must end in success, or in a refusal of one short
sentence a problem, within limits of time and memory.
"""
