"""Whether NEW is worse than BASE: a verdict for each scenario and method, out of the files of run directories alone."""
