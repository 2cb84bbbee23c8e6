"""How exact an emulated link is on this machine: ``python -m testbed.selftest``."""
