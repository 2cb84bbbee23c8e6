"""Settings of the whole suite; its place here lets tests import ``checks``."""
