"""What is done, for people who look for a mistake: on stderr with --verbose, and as JSON, an object
a line, in the file that STENO_LOG_FILE names. No prompt, no answer and no key is ever logged."""

import json
import logging
import logging.handlers
import os
import sys
import time

FILE_BYTES_MAX = 10_000_000
FILES_KEPT = 3


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "at_ms": round(record.created * 1000),
            "level": record.levelname.lower(),
            "from": record.name,
            "process": record.process,
            "said": record.getMessage(),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=True)


def begin(verbose: bool, file: str) -> None:
    """Have what is logged go where it was asked for."""
    log = logging.getLogger()
    log.setLevel(logging.INFO)
    if verbose:
        told = logging.StreamHandler(sys.stderr)
        told.setFormatter(
            logging.Formatter("[%(relativeCreated)d ms %(name)s] %(message)s")
        )
        log.addHandler(told)
    if file:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        kept = logging.handlers.RotatingFileHandler(
            file, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8"
        )
        kept.setFormatter(_Json())
        log.addHandler(kept)
    logging.getLogger("steno").info(
        "steno begins, at %s", time.strftime("%Y-%m-%dT%H:%M:%S%z")
    )
