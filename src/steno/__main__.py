"""python -m steno"""

import sys

from steno.cli import main

sys.exit(main())
