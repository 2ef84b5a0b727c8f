"""All chance in the tests comes from one number.

`make test` takes the same number every day. `make torture` draws one, prints it, and takes it again
with `make torture SEED=n`.
"""

import os
from random import Random

SEED = int(os.environ.get("STENO_TESTS_SEED") or 20)
REPEAT = f"repeat with STENO_TESTS_SEED={SEED}"


def chance_of(*use: object) -> Random:
    """A stream of chance for one use, named: what one test draws does not move another's."""
    return Random("-".join(map(str, (*use, SEED))))
