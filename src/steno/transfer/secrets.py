"""Text without what looks like a secret: keys of known providers, tokens in headers, passwords in
addresses and settings, private keys.

    export API_KEY=abcdef123456          export API_KEY=[secret]
    Authorization: Bearer abcdef123456   Authorization: Bearer [secret]
    postgres://me:swordfish@host/db      postgres://me:[secret]@host/db

It goes by the shape alone: a password in a sentence stays. Read what you share.
"""

import re

HIDDEN = "[secret]"

_WHOLE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\b(?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bst_[A-Za-z0-9_-]{30,}"
    r"|\bhf_[A-Za-z0-9]{20,}"
    r"|\bnpm_[A-Za-z0-9]{30,}"
    r"|\bpypi-[A-Za-z0-9_-]{30,}"
    r"|\bya29\.[A-Za-z0-9_-]{20,}"
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    re.DOTALL,
)
_VALUE = re.compile(
    r"(?i)((?:authorization\s*:\s*(?:bearer|basic)\s+)"
    r"|(?:[\w-]*(?:password|passwd|secret|api[_-]?key|access[_-]?token|private[_-]?key)[\w-]*"
    r"[\"']?\s*[:=]\s*[\"']?))([^\s\"',;}]{6,})"
)
_IN_URL = re.compile(r"(\w+://[^\s:/@]+:)([^\s@/]+)(@)")


def without_secrets(text: str) -> str:
    text = _WHOLE.sub(HIDDEN, text)
    text = _VALUE.sub(rf"\g<1>{HIDDEN}", text)
    return _IN_URL.sub(rf"\g<1>{HIDDEN}\g<3>", text)
