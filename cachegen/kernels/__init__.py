"""Compute kernels of the codecs."""
