"""The chat, driven as a person drives it, against a model server that does what it is told."""

from tests.program.conftest import server as server
from tests.program.conftest import world as world
