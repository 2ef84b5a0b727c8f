"""An account while this process holds it: what it knows, and how its sessions are reached."""

import time
from collections.abc import Sequence
from typing import Literal

from steno.config import ChannelConfig
from steno.engine.people import Account, Rules
from steno.gateway.channels.protocol import Channel
from steno.gateway.hub import Hub
from steno.journal.facts import ChatBound, DeliveryOwed, FreeFact
from steno.journal.parts import Seq
from steno.service import Service
from steno.service.chats import Chats, new_key

Show = Literal["answer", "text", "question"]


def rules_of(config: ChannelConfig, pairs: bool) -> Rules:
    return Rules(
        frozenset(config.owners),
        frozenset(config.allow),
        frozenset(config.groups),
        frozenset(config.bots),
        config.pairing and pairs,
    )


class HeldAccount:
    """`name` is the channel's in the configuration; `session` is the account's own."""

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        channel: Channel,
        hub: Hub,
        session: str,
    ) -> None:
        self.name, self.config, self.channel, self.hub = name, config, channel, hub
        self.session = session
        self.known = Account()
        self.rules = rules_of(config, channel.limits.pairing)
        self.chats: Chats = self.service().chats

    @property
    def source(self) -> str:
        """Where its inputs come from: keys are unique in it, for ever."""
        return self.channel.account

    def service(self, session: str | None = None) -> Service:
        return self.hub.program.service(self.config.kind, self.hub.terms(session))

    def now_ms(self) -> int:
        return int(time.time() * 1_000)

    async def catch_up(self) -> None:
        await self.chats.catch_up(self.session, self.known)

    async def note(
        self, facts: Sequence[FreeFact], key: str | None = None
    ) -> tuple[Seq, bool]:
        """Add facts to the account's own journal; where, and whether they are new."""
        noted = await self.chats.note(self.session, facts, key)
        await self.catch_up()
        return noted

    def owed(
        self,
        chat: str,
        show: Show = "answer",
        target: Seq = 0,
        reply_to: str = "",
        key: str = "",
    ) -> DeliveryOwed:
        return DeliveryOwed(
            target,
            self.name,
            chat,
            key or new_key(),
            self.config.expires_s,
            show,
            reply_to,
        )

    async def session_of(self, chat: str, group: bool) -> str:
        """The session of a chat, made if absent."""
        if (bound := self.known.chats.get(chat)) is not None:
            return bound
        session = await self.begin(f"chat/{self.source}/{chat}")
        await self.note([ChatBound(chat, session, "first", group)], f"bound:{chat}")
        return self.known.chats[chat]

    async def bind_anew(self, chat: str, group: bool, gone: str) -> str:
        """A session for a chat whose own was deleted."""
        session = await self.begin(f"chat/{self.source}/{chat}/after-{gone}")
        await self.note(
            [ChatBound(chat, session, "deleted", group)], f"bound:{chat}:{gone}"
        )
        return self.known.chats[chat]

    async def begin(self, name: str) -> str:
        agents = self.hub.program.agents(self.hub.terms(None))
        model = self.config.model or agents.model_spec()
        return await self.chats.begin(self.config.kind, model, name)

    async def post(self, chat: str, text: str, key: str, by: str = "gateway") -> None:
        """Have a chat show some text, as part of its session."""
        session = self.known.chats.get(chat)
        if session is not None:
            await self.chats.post(session, text, by, self.owed(chat, "text"), key)
