"""What the rest of steno needs of plugins."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class Told(Struct, frozen=True):
    """It was told. `error` is what it raised, if it did."""

    error: str = ""


class Untold(Struct, frozen=True):
    """It did not answer in time, or died; or it was not `asked`, because it is not there or cannot
    be loaded."""

    why: str
    asked: bool = False


class Plugins(Protocol):
    @property
    def names(self) -> tuple[str, ...]:
        """Those that are installed."""
        ...

    def having(self, hook: str) -> tuple[str, ...]:
        """Those that have a hook, or of which that is not known yet."""
        ...

    async def ready(self, name: str) -> bool:
        """Whether a plugin is installed and has started, once that is known."""
        ...

    async def call(
        self, name: str, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> Told | Untold:
        """Tell one plugin and wait for its answer. One without that hook has heard it."""
        ...

    def tell(self, hook: str, arguments: Mapping[str, object]) -> None:
        """Tell all of them, whenever they come to it."""
        ...

    async def consult(
        self, hook: str, arguments: Mapping[str, object]
    ) -> list[tuple[str, str]]:
        """What they have to say before something happens, each with its name. Waits for a bounded
        time."""
        ...


class NoPlugins:
    names: tuple[str, ...] = ()

    def having(self, hook: str) -> tuple[str, ...]:
        return ()

    async def ready(self, name: str) -> bool:
        return False

    async def call(
        self, name: str, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> Told | Untold:
        return Untold(f"there is no plugin {name!r}")

    def tell(self, hook: str, arguments: Mapping[str, object]) -> None:
        return

    async def consult(
        self, hook: str, arguments: Mapping[str, object]
    ) -> list[tuple[str, str]]:
        return []
