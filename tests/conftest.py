"""Set-up for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Time is the deadline of the whole test (pytest-timeout), never of one example: machines are noisy.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
