"""People who write e-mail: into a mailbox of a real dovecot, and out through an SMTP server."""

import email.policy
import imaplib
import os
from email.message import EmailMessage
from email.parser import BytesParser
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope

from tests.channels.contract import OWNER, Subject
from tests.channels.servers import port_of

AUTHSERV = "mx.steno.test"
_numbers = count(1)


class Posted:
    """What was sent. `refuse` may answer in place of taking a mail, or lose the answer."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, EmailMessage]] = []
        self.texts: list[tuple[str, str]] = []
        self.answers: list[str] = []
        self.lose = False

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.pop(0)
        raw = envelope.content if isinstance(envelope.content, bytes) else b""
        made = BytesParser(policy=email.policy.default).parsebytes(raw)
        assert isinstance(made, EmailMessage)
        self.mails.append((envelope.rcpt_tos[0], made))
        self.texts.append((envelope.rcpt_tos[0], text_of(made)))
        if self.lose:
            assert server.transport is not None
            server.transport.close()
        return "250 taken"


class Smtp(Controller):
    """On a port that the system chooses."""

    def _trigger_server(self) -> None:
        server: Any = self.server
        self.port = server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


class MailSubject(Subject):
    edits = False
    buttons = False
    changes = deletes = False
    secret = "test"

    def __init__(self, folder: Path) -> None:
        self.address = f"steno-{os.getpid()}-{next(_numbers)}@steno.test"
        self.posted = Posted()
        self._smtp = Smtp(self.posted, hostname="127.0.0.1", port=0, ready_timeout=30)
        self.first: dict[str, str] = {}

    def open(self) -> None:
        self._smtp.start()

    def close(self) -> None:
        self._smtp.stop(no_assert=True)
        if "_mailbox" in self.__dict__:
            self._mailbox.logout()

    def id(self, person: str) -> str:
        return f"p{person}@people.test"

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "email",
            "url": f"imap://127.0.0.1:{port_of('dovecot')}",
            "options": {
                "address": self.address,
                "smtp": f"smtp://127.0.0.1:{self._smtp.port}",
                "authserv_id": AUTHSERV,
                "chat_per_s": 1_000,
                "all_per_s": 1_000,
                "text_max": 4_000,
            },
        }

    def write(self, text: str, person: str = OWNER, **fields: str) -> EmailMessage:
        """A mail of a person, in the thread that they began; `fields` change its headers."""
        mail = EmailMessage(policy=email.policy.SMTP)
        own = f"<m{next(_numbers)}.{os.getpid()}@people.test>"
        headers = {
            "Authentication-Results": f"{AUTHSERV}; dmarc=pass header.from=people.test",
            "From": f"Ann <{self.id(person)}>",
            "To": self.address,
            "Subject": "A question",
            "Message-ID": own,
        }
        if person in self.first:
            headers |= {"References": self.first[person], "In-Reply-To": self.first[person]}
        for name, value in (headers | fields).items():
            if value:
                mail[name] = value
        mail.set_content(text)
        return mail

    @cached_property
    def _mailbox(self) -> imaplib.IMAP4:
        imap = imaplib.IMAP4("127.0.0.1", port_of("dovecot"), timeout=30)
        imap.login(self.address, "test")
        return imap

    def deliver(self, mail: EmailMessage) -> None:
        done, said = self._mailbox.append("INBOX", "", "", mail.as_bytes())
        assert done == "OK", said

    def unseen(self) -> int:
        told = self._mailbox.status("INBOX", "(UNSEEN)")[1][0]
        return int(told.split()[-1].rstrip(b")"))

    def say(self, text: str, person: str = OWNER) -> Any:
        mail = self.write(text, person)
        self.first.setdefault(person, str(mail["Message-ID"]))
        self.deliver(mail)
        return mail

    def active(self) -> bool:
        return self.unseen() == 0

    def attach(self, text: str, name: str, body: bytes) -> None:
        mail = self.write(text)
        mail.add_attachment(body, maintype="text", subtype="plain", filename=name)
        self.deliver(mail)

    def again(self, said: Any) -> None:
        self.deliver(said)

    def mails(self, person: str = OWNER) -> list[EmailMessage]:
        return [mail for to, mail in self.posted.mails if to == self.id(person)]

    def texts(self, person: str = OWNER) -> list[str]:
        return [text for to, text in self.posted.texts if to == self.id(person)]


def text_of(mail: EmailMessage) -> str:
    text: str = mail.get_content()
    return text.replace("\r\n", "\n").removesuffix("\n")
