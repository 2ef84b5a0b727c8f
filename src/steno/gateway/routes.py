"""What a route is: one row says its method, path, scope, body and answers.

The router, the check of scopes and the OpenAPI document are made from the same rows, so none of
them can forget one. A handler takes a `Call` and gives an `Answer`: values of ours, so that the
server under them can be changed and a test needs none.

    Problem   what a handler raises to refuse: a status, a kind, and a sentence for people
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from steno.gateway.tokens import Scope, Token

Method = Literal["GET", "POST", "PATCH", "DELETE"]
_BOUNDARY = re.compile(
    r'^multipart/form-data;\s*boundary=(?:"([^"]{1,99})"|([!-~]{1,99}))$', re.I
)
_PART_NAME = re.compile(
    r'^content-disposition:[^\r\n]*[; ]name="([^"\r\n]*)"', re.I | re.M
)
_PART_FILE = re.compile(
    r'^content-disposition:[^\r\n]*[; ]filename="([^"\r\n]*)"', re.I | re.M
)
_PARTS_MAX = 50


class Problem(Exception):
    """Becomes `application/problem+json`, under /v1 an error of OpenAI's shape. `kind` is a stable
    word for programs, `param` the part of the request that is wrong."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.param = status, kind, detail, param
        self.headers = dict(headers or {})


class Call(Struct):
    """A request that was let in. `token` is who calls; `by_cookie`, whether it is a browser;
    `cookie_name`, under which name a browser at this address keeps its token."""

    method: str
    path: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    token: Token
    by_cookie: bool = False
    cookie_name: str = ""

    def form(self) -> dict[str, str]:
        """The fields of a form; of one that is there twice, the first."""
        try:
            fields = parse_qs(
                self.body.decode(), keep_blank_values=True, max_num_fields=50
            )
        except ValueError as error:
            raise Problem(400, "bad_body", "The form cannot be read.") from error
        return {name: values[0] for name, values in fields.items()}

    def form_with_files(self) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
        """The fields of a form, and the files in it by their names. Only a form that can hold files
        is sent in parts."""
        found = _BOUNDARY.search(self.headers.get("content-type", ""))
        if found is None:
            return self.form(), []
        fields: dict[str, str] = {}
        files: list[tuple[str, bytes]] = []
        between = b"\r\n--" + (found[1] or found[2]).encode()
        for part in (b"\r\n" + self.body).split(between)[1:-1][:_PARTS_MAX]:
            head, _, data = part.partition(b"\r\n\r\n")
            said = head.decode("utf-8", "replace")
            name, file = _PART_NAME.search(said), _PART_FILE.search(said)
            if name is None:
                raise Problem(400, "bad_body", "The form cannot be read.")
            if file is None:
                fields.setdefault(name[1], data.decode("utf-8", "replace"))
            elif file[1] or data:
                files.append((file[1].replace("%22", '"'), data))
        return fields, files

    def read(self, kind: type[Any]) -> Any:
        """The body as a value of this type."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            try:
                return msgspec.convert(
                    _with_ints(msgspec.json.decode(self.body)), kind
                )
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise Problem(
                    400, "bad_body", f"The body cannot be read: {error}"
                ) from error

    def number(
        self, name: str, least: int, most: int, otherwise: int | None
    ) -> int | None:
        """A whole number of the query."""
        text = self.query.get(name)
        if text is None:
            return otherwise
        try:
            number = int(text) if len(text) <= 20 and text.isascii() else least - 1
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise Problem(
                400, "bad_query", f"{name} must be a number from {least} to {most}"
            )
        return number

    def flag(self, name: str) -> bool | None:
        """Yes, no, or not said, of the query."""
        said = self.choice(name, ("true", "false"))
        return None if said is None else said == "true"

    def choice(self, name: str, words: Sequence[str]) -> str | None:
        """One of some words, or not said, of the query."""
        said = self.query.get(name)
        if said is not None and said not in words:
            raise Problem(400, "bad_query", f"{name} must be {' or '.join(words)}")
        return said


class Json(Struct):
    """An answer that is one JSON value."""

    value: object
    status: int = 200
    headers: Mapping[str, str] = {}


class Content(Struct):
    """An answer that is some bytes of another type."""

    body: bytes
    media_type: str
    status: int = 200
    headers: Mapping[str, str] = {}


class Stream(Struct):
    """An answer that comes in pieces. The first piece is awaited before the status is sent, so a
    refusal can still be told by the status. `ping` is sent where nothing else is for a while, `bye`
    when the service stops; the stream is over then."""

    pieces: AsyncIterator[bytes]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}
    ping: bytes = b""
    bye: bytes = b""


Answer = Json | Content | Stream
Handler = Callable[[Any, Call], Awaitable[Answer]]


class Parameter(Struct, frozen=True):
    """A value of the query or of the headers, for the document. `least` and `most` are of a
    number."""

    name: str
    says: str
    place: Literal["query", "header"] = "query"
    kind: Literal["string", "integer", "boolean"] = "string"
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    one_of: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        bounds = {
            "minimum": self.least,
            "maximum": self.most,
            "pattern": self.pattern or None,
            "enum": list(self.one_of) or None,
        }
        return {"type": self.kind} | {
            name: value for name, value in bounds.items() if value is not None
        }


class Route(Struct, frozen=True):
    """`scope` None: open to everyone. `answers`: by status, the type of the JSON, or media types; a
    tuple of them: either. `body_bytes_max` is for routes that take attachments. `form`: its
    body is a form of a page; `files`: one that may hold files, too. `binds`: a token
    that is for one session may call it with the `id` of that session alone; else the handler looks
    at that."""

    method: Method
    path: str
    scope: Scope | None
    says: str
    handler: Handler
    answers: Mapping[int, Any]
    body: Any = None
    parameters: tuple[Parameter, ...] = ()
    body_bytes_max: int = 1 << 20
    form: bool = False
    files: bool = False
    binds: bool = True

    def name(self) -> str:
        """The id of the operation: `post_api_sessions_id_inputs`."""
        return "_".join([self.method.lower(), *_words(self.path)])


class ProblemBody(Struct):
    """What went wrong (RFC 9457). `type` is a stable word."""

    type: str
    title: str
    status: int
    detail: str


_PLACES: dict[str, dict[str, Any]] = {
    "seq": {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1},
    "turn": {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1},
    "hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "model": {"type": "string", "pattern": "^[A-Za-z0-9_.:/-]{1,200}$"},
}
_ANY_PLACE = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"}


class OpenAIErrorDetail(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Struct):
    """What went wrong, as clients of OpenAI's API expect it."""

    error: OpenAIErrorDetail


OPENAI = "/v1/"
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


_EVENT = {name: {"type": "string"} for name in ("id", "event", "data")}
_MEDIA: dict[str, dict[str, Any]] = {
    "text/event-stream": {
        "type": "object",
        "properties": _EVENT,
        "description": "Of each event",
    }
}
"""What answers of a media type look like that are more than a text."""


def _with_ints(value: Any) -> Any:
    """JSON knows numbers, not integers: 3.0 is 3."""
    if isinstance(value, dict):
        return {name: _with_ints(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_ints(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _may_be_empty(body: Any) -> bool:
    """Whether a body may be left out: each of its fields may."""
    try:
        msgspec.json.decode(b"{}", type=body)
    except msgspec.ValidationError:
        return False
    return True


def _words(path: str) -> list[str]:
    return [word.strip("{}").replace(".", "_") for word in path.split("/") if word]


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    types = [kind for route in routes for kind in _types(route)] + [
        ProblemBody,
        OpenAIError,
    ]
    _, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "steno gateway", "version": version},
        "paths": paths,
        "components": {
            "schemas": msgspec.json.decode(msgspec.json.encode(components)),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(route: Route) -> list[Any]:
    bodies = [] if route.body is None else [route.body]
    kinds = [kind for either in route.answers.values() for kind in _either(either)]
    return bodies + [kind for kind in kinds if not isinstance(kind, str | None)]


def _either(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name(),
        "summary": route.says,
        "parameters": _parameters(route),
        "responses": {
            str(status): _response(kind)
            for status, kind in sorted(route.answers.items())
        }
        | {"default": _problem(route.path)},
    }
    if route.scope is None:
        operation["security"] = []
    else:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs a token with the scope `{route.scope}`."
    if route.body is not None:
        operation["requestBody"] = {
            "required": not _may_be_empty(route.body),
            "content": {"application/json": {"schema": _schema(route.body)}},
        }
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    places = [word[1:-1] for word in route.path.split("/") if word.startswith("{")]
    in_path: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _PLACES.get(name, _ANY_PLACE),
        }
        for name in places
    ]
    return in_path + [
        {
            "name": one.name,
            "in": one.place,
            "required": False,
            "description": one.says,
            "schema": one.schema(),
        }
        for one in route.parameters
    ]


def _response(kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"description": "done"}
    if isinstance(kind, tuple):
        contents = [_response(one)["content"] for one in kind]
        return {
            "description": "done",
            "content": {
                media: schema for one in contents for media, schema in one.items()
            },
        }
    if isinstance(kind, str):
        kinds = [one.strip() for one in kind.split(",")]
        content = {
            one: {"schema": _MEDIA.get(one, {"type": "string"})} for one in kinds
        }
        return {"description": kind, "content": content}
    return {
        "description": "done",
        "content": {"application/json": {"schema": _schema(kind)}},
    }


def _problem(path: str) -> dict[str, Any]:
    if path.startswith(OPENAI):
        media_type, schema = "application/json", _schema(OpenAIError)
    else:
        media_type, schema = "application/problem+json", _schema(ProblemBody)
    return {"description": "refused", "content": {media_type: {"schema": schema}}}


def refusal(path: str, problem: Problem) -> tuple[int, str, Struct]:
    """The status, media type and body that a client of this path understands."""
    if not path.startswith(OPENAI):
        word = f"urn:steno:{problem.kind}"
        body = ProblemBody(word, problem.kind, problem.status, problem.detail)
        return problem.status, "application/problem+json", body
    status = 400 if problem.status == 422 else problem.status
    kind = _OPENAI_TYPES.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    code = "invalid_api_key" if status == 401 else problem.kind
    error = OpenAIErrorDetail(problem.detail, kind, problem.param, code)
    return status, "application/json", OpenAIError(error)


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components(
        [kind], ref_template="#/components/schemas/{name}"
    )
    return schema
