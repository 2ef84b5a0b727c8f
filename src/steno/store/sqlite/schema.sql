-- The whole truth about what a steno store looks like on disk. Version 7 (pragma user_version).
--
-- The journal is `facts` and `payloads`: nothing but an explicit delete or a redaction ever changes a row there.
-- Everything else serves it: `sessions` names the journals and fences their writers, `drafts` holds text that is
-- being streamed and becomes part of a fact when it is sealed, `keys` remembers what was admitted.

create table sessions (
    n          integer primary key autoincrement,  -- the session's number, never used twice
    id         text    not null unique,            -- its name for the world, for ever
    name       text    unique,                     -- the external name it is bound to, if any
    parent     integer references sessions (n),    -- a fork's parent
    base       integer not null,                   -- a fork's facts up to here are its parent's; 0 if it is no fork
    token      integer not null,                   -- grows with every lease; a writer with an older one is refused
    owner      text,                               -- who holds the lease; null if nobody does
    expires_ms integer not null,
    touched    integer not null,                   -- id of its last fact, as of `listed`: the order of lists
    listing    text    not null,                   -- the row for lists, as JSON: derived, can be rebuilt from the facts
    listed     integer not null,                   -- the last seq that is in `listing`; readers take in the facts after it
    crc        integer not null,                   -- over all the other columns
    owes       integer not null default 0,         -- as of `listed`: 1 if something is owed to somebody outside, 2 if there is something to run, 3 both
    memory     integer not null default 0          -- as of `listed`: 1 if a distillate is due, 2 if it has some, 3 both
) strict;

create index sessions_by_touch on sessions (touched);
create index sessions_by_parent on sessions (parent) where parent is not null;
create index sessions_owing on sessions (n) where owes in (1, 3);
create index sessions_unfinished on sessions (n) where owes in (2, 3);
create index sessions_due on sessions (touched) where memory in (1, 3);
create index sessions_remembered on sessions (touched) where memory in (2, 3);

-- One row. `upto`: every fact with an id up to here is in the list row of its session. Writing a list row with every fact
-- would cost more than the fact; the writer that finds too many facts beyond this brings the rows up to date. `given`: no
-- id up to here is given again, though the facts that had them may be gone. `journal`: the version of the facts and their
-- bytes.
create table lists (
    upto    integer not null,
    given   integer not null default 0,
    journal integer not null default 1
) strict;

insert into lists (upto) values (0);

-- One row per fact, in commit order; the index finds a session's. `crc` covers session, seq, time and body.
create table facts (
    id      integer primary key,                   -- its place among all changes of the store: it only grows
    session integer not null,
    seq     integer not null,                      -- 1, 2, 3, ... in each session, without a gap
    at_ms   integer not null,
    crc     integer not null,
    body    text    not null
) strict;

create unique index facts_by_session on facts (session, seq);

-- To read the journal by hand:
create view journal as
select s.id as session, f.seq, datetime(f.at_ms / 1000, 'unixepoch') as at, f.body as fact
from facts f join sessions s on s.n = f.session;

-- Changes that are no new facts, in one order with `facts.id`: together they are the feed of changes. What a fact said is
-- not repeated here. When a session is deleted, that is the only row which is left of it.
create table changes (
    id      integer primary key,
    session integer not null,                      -- its n
    kind    text    not null,                      -- redacted, imported, deleted
    seq     integer not null,                      -- redacted: of the fact; imported: of the last fact; deleted: 0
    crc     integer not null                       -- over all the other columns
) strict;

create index changes_by_session on changes (session);

-- Streamed text, a row per commit. Gone when its sealing fact is stored, in the same transaction.
create table drafts (
    session integer not null,
    started integer not null,                      -- seq of the fact that started the stream
    kind    text    not null,
    start   integer not null,                      -- offset of the first character, in code points
    crc     integer not null,
    text    text    not null,
    primary key (session, started, kind, start)
) strict, without rowid;

create table payloads (
    n    integer primary key,
    hash text not null unique,                     -- SHA-256 in hex
    body blob not null
) strict;

-- Which sessions a payload belongs to, and how many of their facts name it: it goes when nobody is left.
create table payload_owners (
    hash    text    not null,
    session integer not null,
    refs    integer not null,
    primary key (hash, session)
) strict, without rowid;

create index payload_owners_by_session on payload_owners (session);

-- What was admitted or added under which key.
create table keys (
    source  text    not null,
    key     text    not null,
    session integer not null,
    seq     integer not null,                      -- of the first fact
    count   integer not null,                      -- how many came together
    primary key (source, key)
) strict, without rowid;

create index keys_by_session on keys (session);

-- Deletes are logged: that it was, when, and how much; not what was in it. A session is gone with the first commit of
-- its deletion; its rows are swept after that in small steps, also by the next process if this one dies.
create table deletions (
    n     integer primary key,                     -- the n the session had
    id    text    not null,
    at_ms integer not null,
    base  integer not null,
    head  integer not null,
    swept integer not null                         -- 1 when nothing of it is left
) strict;

create index deletions_unswept on deletions (n) where swept = 0;

-- Imports are logged: that it was, when, and up to which seq its facts are those of another store. While a session
-- arrives, what belongs to it is stored under `n` in small steps and is nobody's; the last commit makes its row in
-- `sessions`. What an import that failed, or whose process died, has left is swept like a deletion.
create table imports (
    n     integer primary key,                     -- the n that the session has, or will have
    id    text    not null,
    at_ms integer not null,
    owner text,                                    -- who brings it; '' if it failed; null once the session is there
    head  integer not null                         -- the last seq that came with it
) strict;

create index imports_open on imports (n) where owner is not null;
