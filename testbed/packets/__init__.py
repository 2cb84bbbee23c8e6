"""What a run's captures say by themselves: ``python -m testbed.packets RUN``."""
