"""Programs of other people that speak a protocol on standard input and output: editors (the Agent
Client Protocol) and clients of tools (the Model Context Protocol). Each needs a package of its own,
which is loaded when it is served."""

from importlib.util import find_spec
from typing import Literal

from msgspec.structs import replace

from steno.compose import Setup
from steno.journal.facts import Mode
from steno.model_choice import Terms
from steno.service import Misused


async def serve_acp(setup: Setup, terms: Terms, mode: Mode | None) -> None:
    """Answer the editor that started this process, until it closes the input."""
    _check_package("acp")
    from steno.clients.acp_agent import Editors

    asking = terms if terms.approval == "allow" else replace(terms, approval="ask")
    async with setup.open(role="acp") as program:
        await Editors(program, setup, asking, mode).serve()


async def serve_mcp(setup: Setup, terms: Terms, allow_write: bool) -> None:
    """Answer the client that started this process, until it closes the input."""
    _check_package("mcp")
    from steno.clients import mcp_server

    async with setup.open(
        visiting=False, only_reads=not allow_write, role="mcp"
    ) as program:
        service = program.service(mcp_server.PLATFORM, terms)
        await mcp_server.serve(service, program.agents(terms), allow_write)


def _check_package(name: Literal["acp", "mcp"]) -> None:
    if find_spec(name) is None:
        raise Misused(
            f"steno {name} needs a package: pip install 'steno-agent[{name}]'"
        )
