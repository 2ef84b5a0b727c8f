"""E-mail, by the standard library: a mailbox read by IMAP with IDLE, answers by SMTP.

receive    what is not \\Seen in INBOX; \\Seen is set when it is stored. Nothing is ever deleted
send       a reply in the thread. A server that took a message and lost its answer leaves it unknown
           whether it was sent: there is no id that would make a second one the same

A sender counts only if our own server vouches for the address: `Authentication-Results` by the
configured `authserv_id`, with a pass of DMARC, or of DKIM by the address's domain. What programs
send (auto-replies, lists, bounces, our own) is never answered, and our answers say that they are
automatic: two programs cannot keep each other busy. A thread is a chat.
"""

import asyncio
import contextlib
import email.policy
import hashlib
import imaplib
import logging
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from email.headerregistry import Address
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import formatdate, getaddresses
from functools import partial
from html.parser import HTMLParser
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from steno.config import LOOPBACK
from steno.gateway.channels.protocol import (
    Batch,
    Channel,
    ChannelError,
    ChannelLost,
    ChannelRefused,
    ChannelSetup,
    Limits,
    Message,
    No,
    NotNow,
    Outgoing,
    Quiet,
    RemoteFile,
    Result,
    Sent,
    Unsure,
)

LIMITS = Limits(
    text_max=500_000, chat_per_s=0.5, all_per_s=2.0, burst=10, pairing=False
)
ANSWER_S = 60.0
IDLE_S = 290.0
"""Servers may end what is silent for half an hour; networks, sooner."""
POLL_S = 30.0
BATCH = 20
MAIL_BYTES_MAX = 30 << 20
THREADS_MAX = 10_000
CHAT_CHARS_MAX = 160
UNVERIFIED = "unverified"
_POLICY = email.policy.SMTP.clone(max_line_length=200)
_ADDRESS = re.compile(r"[^\s@<>\"',;:()\[\]]{1,100}@[a-z0-9.-]{1,100}")
_ID = re.compile(r"<[^<>\s]{1,250}>")
_QUOTE = re.compile(
    r"(?:\A|\n)(?:[^\n>]{0,200}:[ \t]*\n+)?(?:>[^\n]*(?:\n|\Z)|[ \t]*\n)*>[^\n]*\s*\Z"
)
_NO_REPLY = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?)([+-].*)?@"
)
_LOST = (OSError, imaplib.IMAP4.error, EOFError)
_log = logging.getLogger("steno.channels")
T = TypeVar("T")


class Server(Struct, frozen=True):
    host: str
    port: int
    tls: bool
    plain: bool


class _Thread(Struct, frozen=True):
    """What a reply needs of a thread."""

    subject: str
    last: str
    references: tuple[str, ...]


class Mail(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        options = setup.options
        self._address = str(options.get("address", "")).lower()
        if _ADDRESS.fullmatch(self._address) is None:
            raise ChannelRefused("options.address must be the address that steno has")
        self._authserv = str(options.get("authserv_id", "")).lower()
        if not self._authserv:
            raise ChannelRefused(
                "options.authserv_id must be the name under which your mail server says in "
                "Authentication-Results who it vouches for"
            )
        self._imap = _server("url", setup.config.url, "imap", 993, 143)
        self._smtp = _server(
            "options.smtp", str(options.get("smtp", "")), "smtp", 465, 587
        )
        self._user = str(options.get("user", "")) or self._address
        self._secret = setup.secret
        self._threads: dict[str, _Thread] = {}
        self._box: _Mailbox | None = None
        self.limits = setup.limits(LIMITS)

    @property
    def account(self) -> str:
        return f"email:{self._address}"

    async def open(self) -> None:
        await self.close()
        self._box = await self._connect()

    async def close(self) -> None:
        if self._box is not None:
            self._box.drop()
            self._box = None

    async def _connect(self) -> "_Mailbox":
        return await _in_thread(
            lambda: _Mailbox(self._imap, self._user, self._secret)
        )

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        while True:
            if self._box is None:
                self._box = await self._connect()
            box = self._box
            try:
                while uids := await _in_thread(box.unseen):
                    raws = await _in_thread(partial(box.fetch, uids[:BATCH]))
                    read = [
                        self._read(box.validity, uid, raw)
                        for uid, raw in raws.items()
                    ]
                    found = tuple(one for one in read if one is not None)
                    if found:
                        yield Batch(found)
                    await _in_thread(partial(box.mark_seen, list(raws)))
                    if not raws:
                        raise ChannelLost(
                            "the mailbox lists messages that it does not give"
                        )
                if not await _in_thread(box.wait):
                    box.drop()
                    self._box = None
            except BaseException:
                box.drop()
                self._box = None
                raise

    def _read(self, validity: str, uid: str, raw: bytes) -> Message | None:
        """A mail as ours. One that Python's parser stumbles over must not stop those behind it."""
        try:
            return self._said(validity, uid, raw)
        except (
            LookupError,
            TypeError,
            AttributeError,
            ValueError,
            RecursionError,
        ) as error:
            _log.warning(
                "channel %s: a mail cannot be read: %r", self._address, error
            )
            return None

    def _said(self, validity: str, uid: str, raw: bytes) -> Message | None:
        mail = _parsed(raw)
        if why := automatic(mail, self._address):
            _log.info("channel %s: left unanswered: %s", self._address, why)
            return None
        person, name = sender(mail)
        if not person or not vouched(mail, self._authserv, person):
            return Message(
                id=f"{validity}.{uid}",
                chat=UNVERIFIED,
                person=UNVERIFIED,
                text="-",
                name=person,
            )
        own = _own_id(mail, raw)
        root, references = _root(mail, own)
        chat = _chat(person, root)
        self._remember(chat, _Thread(str(mail.get("Subject", "")), own, references))
        text, quoted = said(mail)
        files = _files(mail, f"{validity}.{uid}")
        subject = " ".join(str(mail.get("Subject", "")).split())[:300]
        if not text and not files:
            text = subject
        about = f"Subject: {subject}" if subject else ""
        digest = hashlib.sha256(own.encode("utf-8", "replace")).hexdigest()[:40]
        return Message(
            id=f"{person[:120]}:{digest}",
            chat=chat,
            person=person,
            text=text,
            message=own,
            name=name,
            quoted="\n".join(one for one in (about, quoted) if one)[:4_000],
            files=files,
        )

    def _remember(self, chat: str, thread: _Thread) -> None:
        self._threads.pop(chat, None)
        while len(self._threads) >= THREADS_MAX:
            del self._threads[next(iter(self._threads))]
        self._threads[chat] = thread

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        person, _, root = chat.partition(" ")
        if _ADDRESS.fullmatch(person) is None:
            return No("there is no address to send to")
        try:
            thread = self._threads.get(chat) or await self._look_up(chat, root)
        except ChannelError as error:
            return NotNow(f"the thread cannot be read: {error}")
        mail = reply(self._address, person, key, what.text, thread)
        return await asyncio.to_thread(self._post, person, mail)

    async def _look_up(self, chat: str, root: str) -> _Thread:
        """A thread that was not written in since the start, as the mailbox has it."""
        thread = _Thread("", root, ())
        if _ID.fullmatch(root):
            box = await self._connect()
            try:
                raw = await _in_thread(lambda: box.header_of(root))
            finally:
                box.drop()
            if raw is not None:
                mail = _parsed(raw)
                thread = _Thread(str(mail.get("Subject", "")), root, ())
        self._remember(chat, thread)
        return thread

    def _post(self, person: str, mail: EmailMessage) -> Result:
        """What came of sending. Nothing is tried again here."""
        server = self._smtp
        given = False
        try:
            with contextlib.closing(_smtp(server)) as smtp:
                smtp.ehlo()
                if not server.tls and not server.plain:
                    smtp.starttls(context=ssl.create_default_context())
                    smtp.ehlo()
                if smtp.has_extn("auth"):
                    smtp.login(self._user, self._secret)
                _expect(smtp.mail(self._address))
                _expect(smtp.rcpt(person))
                given = True
                _expect(smtp.data(mail.as_bytes(policy=_POLICY)))
        except smtplib.SMTPAuthenticationError:
            return NotNow("the mail server does not take the password")
        except smtplib.SMTPResponseException as error:
            cause = f"the mail server says {error.smtp_code}"
            return No(cause) if error.smtp_code >= 500 else NotNow(cause)
        except (OSError, smtplib.SMTPException) as error:
            cause = type(error).__name__
            return (
                Unsure(f"no answer ({cause})")
                if given
                else NotNow(f"unreachable ({cause})")
            )
        return Sent(str(mail["Message-ID"]))

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        validity, _, rest = file.id.partition(".")
        uid, _, index = rest.partition(".")
        if not (validity.isdecimal() and uid.isdecimal() and index.isdecimal()):
            raise ChannelRefused("the file has no place in the mailbox")
        box = await self._connect()
        try:
            if box.validity != validity:
                raise ChannelRefused("the mailbox was made anew")
            raws = await _in_thread(lambda: box.fetch([uid]))
        finally:
            box.drop()
        parts = list(_parsed(raws[uid]).iter_attachments()) if uid in raws else []
        if int(index) >= len(parts):
            raise ChannelRefused("the message is gone")
        body = _bytes(parts[int(index)])
        if len(body) > bytes_max:
            raise ChannelRefused("the file is too large")
        return body

    def check_id(self, id: str) -> str:
        return (
            ""
            if _ADDRESS.fullmatch(id)
            else "an id is an address in lower case: ann@example.org"
        )


def channel(setup: ChannelSetup) -> Channel:
    return Mail(setup)


# --- the wire -------------------------------------------------------------------------------------


def _server(option: str, url: str, scheme: str, tls_port: int, port: int) -> Server:
    """Where a server is. Without TLS from the start it must offer STARTTLS, but on this machine."""
    parts = urlsplit(url)
    if (
        parts.scheme not in (scheme, f"{scheme}s")
        or not parts.hostname
        or "@" in parts.netloc
    ):
        raise ChannelRefused(
            f"{option} must be {scheme}s://HOST, or {scheme}://HOST with STARTTLS"
        )
    tls = parts.scheme == f"{scheme}s"
    number = parts.port or (tls_port if tls else port)
    return Server(parts.hostname, number, tls, parts.hostname in LOOPBACK and not tls)


async def _in_thread(act: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(act)
    except imaplib.IMAP4.abort as error:
        raise ChannelLost(f"the mailbox ended the connection: {error}") from None
    except _LOST as error:
        raise ChannelLost(
            f"the mailbox cannot be read: {type(error).__name__}"
        ) from None


class _Mailbox:
    """INBOX, by one connection. Its verbs block; `drop` ends the one that is under way."""

    def __init__(self, server: Server, user: str, secret: str) -> None:
        self._left = threading.Event()
        context = ssl.create_default_context()
        if server.tls:
            self._imap: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                server.host, server.port, ssl_context=context, timeout=ANSWER_S
            )
        else:
            self._imap = imaplib.IMAP4(server.host, server.port, timeout=ANSWER_S)
            if not server.plain:
                self._imap.starttls(context)
        try:
            self._imap.login(user, secret)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error:
            self.drop()
            raise ChannelRefused(
                "the mailbox does not take the user or the password"
            ) from None
        self._imap.select("INBOX")
        [validity] = self._imap.response("UIDVALIDITY")[1][-1:]
        self.validity = validity.decode() if isinstance(validity, bytes) else "0"
        self._idles = "IDLE" in self._imap.capabilities

    def unseen(self) -> list[str]:
        """What was not read, oldest first. A message that came while we looked is looked for."""
        while True:
            self._imap.response("EXISTS")
            _, found = self._imap.uid("search", "UNSEEN")
            uids = (found[0] or b"").decode().split()
            if uids or self._imap.response("EXISTS")[1] == [None]:
                return uids

    def fetch(self, uids: list[str]) -> dict[str, bytes]:
        got: dict[str, bytes] = {}
        for uid in uids:
            _, parts = self._imap.uid(
                "fetch", uid, f"(BODY.PEEK[]<0.{MAIL_BYTES_MAX}>)"
            )
            for part in parts:
                if isinstance(part, tuple):
                    got[uid] = part[1]
        return got

    def header_of(self, id: str) -> bytes | None:
        quoted = id.replace("\\", "").replace('"', "")
        _, found = self._imap.uid("search", "HEADER", "Message-ID", f'"{quoted}"')
        for uid in (found[0] or b"").decode().split()[-1:]:
            _, parts = self._imap.uid("fetch", uid, "(BODY.PEEK[HEADER]<0.65536>)")
            for part in parts:
                if isinstance(part, tuple):
                    return bytes(part[1])
        return None

    def mark_seen(self, uids: list[str]) -> None:
        if uids:
            self._imap.uid("store", ",".join(uids), "+FLAGS", "(\\Seen)")

    def wait(self) -> bool:
        """Until something may have come; False if the connection is to be made anew."""
        imap = self._imap
        sock = imap.socket()
        if not self._idles:
            sock.settimeout(ANSWER_S)
            self._left.wait(POLL_S)
            imap.noop()
            return True
        tag = imap._new_tag()
        imap.send(tag + b" IDLE\r\n")
        if not imap.readline().startswith(b"+"):
            raise imaplib.IMAP4.abort("IDLE was refused")
        sock.settimeout(IDLE_S)
        try:
            while True:
                line = imap.readline()
                if not line:
                    raise imaplib.IMAP4.abort("closed")
                if b"EXISTS" in line or b"RECENT" in line:
                    break
        except TimeoutError:
            return False
        sock.settimeout(ANSWER_S)
        imap.send(b"DONE\r\n")
        while line := imap.readline():
            if line.startswith(tag):
                return True
        raise imaplib.IMAP4.abort("closed")

    def drop(self) -> None:
        self._left.set()
        with contextlib.suppress(OSError):
            self._imap.socket().shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._imap.socket().close()


def _smtp(server: Server) -> smtplib.SMTP:
    if server.tls:
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(
            server.host, server.port, timeout=ANSWER_S, context=context
        )
    return smtplib.SMTP(server.host, server.port, timeout=ANSWER_S)


def _expect(told: tuple[int, bytes]) -> None:
    if not 200 <= told[0] < 300:
        raise smtplib.SMTPResponseException(told[0], told[1])


# --- mail as ours, and ours as mail: no I/O -------------------------------------------------------


def _parsed(raw: bytes) -> EmailMessage:
    made = BytesParser(policy=email.policy.default).parsebytes(raw)
    if not isinstance(made, EmailMessage):
        raise ChannelLost("the message cannot be read")
    return made


def sender(mail: EmailMessage) -> tuple[str, str]:
    """The address and the name of who wrote it; "" if there is not exactly one."""
    fields = [str(one) for one in mail.get_all("From", [])]
    found = getaddresses(fields)
    if len(fields) != 1 or len(found) != 1:
        return "", ""
    name, address = found[0]
    address = address.lower()
    return (address, name) if _ADDRESS.fullmatch(address) else ("", "")


def automatic(mail: EmailMessage, own: str) -> str:
    """Why a message is none of a person; "" if it may be one."""
    said_auto = str(mail.get("Auto-Submitted", "no")).split(";")[0].strip().lower()
    if said_auto != "no":
        return "Auto-Submitted"
    if any(name.lower().startswith("list-") for name in mail.keys()):  # noqa: SIM118
        return "a mailing list"
    if str(mail.get("Precedence", "")).strip().lower() in ("bulk", "junk", "list"):
        return "Precedence"
    if str(mail.get("Return-Path", "x")).strip() == "<>" or "X-Autoreply" in mail:
        return "a bounce"
    if mail.get_content_type() == "multipart/report":
        return "a report"
    address, _ = sender(mail)
    if address == own or _NO_REPLY.match(address):
        return "no person's address"
    return ""


def vouched(mail: EmailMessage, authserv: str, person: str) -> bool:
    """Whether our own server says that the address is its sender's. Of headers in its name the
    first counts: servers add theirs on top, and one that came along stands below."""
    domain = person.rpartition("@")[2]
    for header in mail.get_all("Authentication-Results", []):
        plain = re.sub(r"\([^()]*\)", " ", str(header))
        server, *results = (one.strip().lower() for one in plain.split(";"))
        if server.split()[:1] == [authserv]:
            return any(_passes(one, domain) for one in results)
    return False


def _passes(result: str, domain: str) -> bool:
    words = re.sub(r"\s*=\s*", "=", result).split()
    if not words:
        return False
    told = {
        name: value.strip('"')
        for name, _, value in (word.partition("=") for word in words[1:])
    }
    if words[0] == "dmarc=pass":
        return told.get("header.from", "") == domain
    if words[0] == "dkim=pass":
        signer = told.get("header.d") or told.get("header.i", "").rpartition("@")[2]
        return bool(signer) and (domain == signer or domain.endswith(f".{signer}"))
    return False


def _own_id(mail: EmailMessage, raw: bytes) -> str:
    found = _ID.search(str(mail.get("Message-ID", "")))
    return found[0] if found else f"<{hashlib.sha256(raw).hexdigest()[:32]}@no.id>"


def _root(mail: EmailMessage, own: str) -> tuple[str, tuple[str, ...]]:
    """What a thread began with, and all that a message refers to."""
    references = _ID.findall(str(mail.get("References", "")))
    if not references:
        references = _ID.findall(str(mail.get("In-Reply-To", "")))
    return (references[0] if references else own), tuple(
        references[:1] + references[1:][-20:]
    )


def _chat(person: str, root: str) -> str:
    """A thread of a person. No other person can have it, whatever they refer to."""
    if len(person) + len(root) < CHAT_CHARS_MAX and root.isprintable():
        return f"{person} {root}"
    return f"{person} #{hashlib.sha256(root.encode('utf-8', 'replace')).hexdigest()[:32]}"


def said(mail: EmailMessage) -> tuple[str, str]:
    """What was written, and what was quoted below it."""
    body = mail.get_body(("plain", "html"))
    if body is None:
        return "", ""
    text = _bytes(body).decode(_charset(body), "replace")
    if body.get_content_type() == "text/html":
        text = _Text.of(text)
    text = text.replace("\r\n", "\n")
    if found := _QUOTE.search(text):
        return text[: found.start()].strip(), found[0].strip()[:2_000]
    return text.strip(), ""


def _charset(part: Any) -> str:
    named = str(part.get_content_charset() or "utf-8")
    try:
        "".encode(named)
    except LookupError:
        return "utf-8"
    return named


def _bytes(part: Any) -> bytes:
    body = part.get_payload(decode=True)
    return body if isinstance(body, bytes) else b""


def _files(mail: EmailMessage, place: str) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            f"{place}.{index}",
            str(part.get_filename() or "file").rpartition("/")[2][:200],
            part.get_content_type()[:100],
            len(_bytes(part)),
        )
        for index, part in enumerate(mail.iter_attachments())
    )[:50]


class _Text(HTMLParser):
    """The text of HTML: no marks, no scripts."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[str] = []
        self._hidden = 0

    @classmethod
    def of(cls, html: str) -> str:
        parser = cls()
        parser.feed(html)
        parser.close()
        return re.sub(r"\n{3,}", "\n\n", "".join(parser._found))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("script", "style", "head"):
            self._hidden += 1
        elif tag in ("br", "p", "div", "tr", "li", "blockquote"):
            self._found.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "head"):
            self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._found.append(data)


def reply(
    own: str, person: str, key: str, text: str, thread: _Thread
) -> EmailMessage:
    mail = EmailMessage(policy=_POLICY)
    name, domain = own.rpartition("@")[::2]
    mail["From"] = Address("steno", name, domain)
    user, host = person.rpartition("@")[::2]
    mail["To"] = Address("", user, host)
    subject = re.sub(r"[\x00-\x1f\x7f]+", " ", thread.subject).strip()[:300]
    if not re.match(r"re:", subject, re.IGNORECASE):
        subject = f"Re: {subject}" if subject else "Re: your message"
    mail["Subject"] = subject
    mail["Date"] = formatdate(usegmt=True)
    mail["Message-ID"] = f"<{re.sub(r'[^A-Za-z0-9-]', '', key)}@{domain}>"
    if _ID.fullmatch(thread.last):
        mail["In-Reply-To"] = thread.last
        mail["References"] = " ".join((*thread.references, thread.last))
    mail["Auto-Submitted"] = "auto-replied"
    mail.set_content(text.encode("utf-8", "replace").decode(), cte="base64")
    return mail
