"""What of our environment a child process gets: everything but what looks like a secret.

By name only. It keeps a secret from getting into a transcript by accident; it does not confine a
command.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

_SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(_|$)"
    r"|_(PASS|PWD|PAT|DSN)$"
    r"|^(AWS|AZURE|OPENAI|ANTHROPIC)_",
    re.IGNORECASE,
)


class Scrub(Struct, frozen=True):
    """Names that count as secrets beside those that look like one, and names that do not though
    they do."""

    secret: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def clean(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environment.items() if not self._hides(name)}

    def _hides(self, name: str) -> bool:
        if name in self.kept:
            return False
        return name in self.secret or _SECRET_NAME.search(name) is not None
