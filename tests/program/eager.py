"""Runs steno with progress that is told from the first moment on, however quick the work is."""

import sys

from steno.cli import main
from steno.cli.keeping import tables

tables.PROGRESS_AFTER_S = tables.PROGRESS_EVERY_S = 0.0
sys.exit(main(sys.argv[1:]))
