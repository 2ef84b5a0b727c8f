"""Hypothesis profiles: `suite` for every run, `torture` through HYPOTHESIS_PROFILE=torture."""

import os

from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=False, print_blob=True, max_examples=50)
settings.register_profile("torture", settings.get_profile("suite"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
