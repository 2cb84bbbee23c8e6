"""``cachegen prepare``."""

import argparse
import sys

HELP = "convert the default model and make its codec profile, once"
DESCRIPTION = "Convert the default model and make its codec profile, once; both are kept in the cache folder."


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""


def run(_options: argparse.Namespace) -> int:
    """See ``Command``."""
    from cachegen.calibration import cached_profile
    from cachegen.default_model import default_model_path
    from cachegen.model import load_model

    path = default_model_path()
    sys.stdout.write(f"model: {path}\n")
    profile = cached_profile(load_model(path))
    sys.stdout.write(f"profile: {profile.hash.hex()}\n")
    return 0
