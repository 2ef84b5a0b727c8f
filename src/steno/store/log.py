"""What the store tells whoever keeps its logs, under the name `steno.store`. Nothing that people
said is in it."""


def warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("steno.store").warning(message, *values)


def note(message: str, *values: object) -> None:
    import logging

    logging.getLogger("steno.store").info(message, *values)
