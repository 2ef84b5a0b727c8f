"""Runs steno with its clock moved: python shifted.py SECONDS …"""

import sys
import time

shift_s, words = float(sys.argv[1]), sys.argv[2:]
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + shift_s
time.time_ns = lambda: _time_ns() + int(shift_s * 1e9)

from steno.cli import main  # noqa: E402 - the clock is moved before anything looks at it

sys.exit(main(words))
