"""Measures of speed; each a module to be run."""
