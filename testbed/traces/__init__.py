"""Traces of links: importers of what others recorded, our own seeded models, statistics, and a command line."""
