-- The whole truth about what a steno store looks like in PostgreSQL. Version 4 (store.version). `@` stands for the schema
-- that the store has to itself, so that several stores can share a database.
--
-- The journal is `facts` and `payloads`, as in a file: nothing but an explicit delete or a redaction ever changes a row
-- there. What differs serves many writers at once: what every append changes is in `heads`, a narrow row with no index that
-- an append touches; who may write is in `owners`, one row a worker; and `batches` tells afterwards what became of a commit.

create table @store (
    version  integer not null,                     -- of these tables
    journal  integer not null,                     -- of the facts and their bytes
    identity text    not null,                     -- the server and the database that it was last opened in
    restored bigint  not null,                     -- marks begin above this: it grows when a copy takes the store's place
    secret   uuid    not null default gen_random_uuid()  -- what workers tell each other is signed with it
);

create sequence @numbers;                          -- of sessions: never used twice
create sequence @places;                           -- of changes: taken once the transaction has a number

create table @sessions (
    n       bigint   primary key,
    id      text     not null unique,              -- its name for the world, for ever
    name    text     unique,                       -- the external name it is bound to, if any
    parent  bigint   references @sessions (n),     -- a fork's parent
    base    bigint   not null,                     -- a fork's facts up to here are its parent's; 0 if it is no fork
    touched bigint   not null,                     -- place of its last fact, as of `listed`: the order of lists
    listing text     not null,                     -- the row for lists, as JSON: derived, can be rebuilt from the facts
    listed  bigint   not null,                     -- the last seq that is in `listing`; readers take in the facts after it
    crc     bigint   not null,                     -- over the other columns but `touched`
    owes    smallint not null,                     -- as of `listed`: 1 if something is owed to somebody outside, 2 if there is something to run, 3 both
    memory  smallint not null                      -- as of `listed`: 1 if a distillate is due, 2 if it has some, 3 both
);

create index sessions_by_touch on @sessions (touched);
create index sessions_by_parent on @sessions (parent) where parent is not null;
create index sessions_owing on @sessions (n) where owes in (1, 3);
create index sessions_due on @sessions (touched) where memory in (1, 3);
create index sessions_remembered on @sessions (touched) where memory in (2, 3);
create index sessions_unfinished on @sessions (touched) where owes in (2, 3);

-- What an append looks at and changes. Locked first, in order of n: so batches cannot lock each other out.
create table @heads (
    n     bigint primary key,
    head  bigint not null,                         -- seq of its last fact
    token bigint not null,                         -- grows with every lease; a writer with an older one is refused
    owner text,                                    -- who holds the lease; null if nobody does
    stamp bigint not null,                         -- grows when anything but the end of the facts is changed
    place bigint not null                          -- of its last fact
) with (fillfactor = 50);

create index heads_held on @heads (owner) where owner is not null;

create table @facts (
    session bigint not null,
    seq     bigint not null,                       -- 1, 2, 3, ... in each session, without a gap
    place   bigint not null,                       -- its place among all changes of the store
    at_ms   bigint not null,
    crc     bigint not null,                       -- over session, seq, time and body
    body    text   not null,
    primary key (session, seq)
);

create index facts_by_place on @facts (place);

-- To read the journal by hand:
create view @journal as
select s.id as session, f.seq, to_timestamp(f.at_ms / 1000.0) as at, f.body as fact
from @facts f join @sessions s on s.n = f.session;

-- Changes that are no new facts, in one order with `facts.place`.
create table @changes (
    place   bigint primary key,
    session bigint not null,
    kind    text   not null,                       -- redacted, imported, deleted
    seq     bigint not null,
    crc     bigint not null
);

create index changes_by_session on @changes (session);

-- Streamed text, a row per commit. Gone when its sealing fact is stored, in the same transaction.
create table @drafts (
    session bigint not null,
    started bigint not null,
    kind    text   not null,
    start   bigint not null,                       -- offset of the first character, in code points
    crc     bigint not null,
    text    text   not null,
    primary key (session, started, kind, start)
);

create table @payloads (
    n    bigint generated always as identity,
    hash text   primary key,                       -- SHA-256 in hex
    size bigint not null
);

create index payloads_by_n on @payloads (n);

-- In pieces of a size that a server handles easily; already compressed as a rule, so it does not try.
create table @chunks (
    hash text    not null references @payloads (hash) on delete cascade,
    i    integer not null,
    body bytea   not null,
    primary key (hash, i)
);

alter table @chunks alter column body set storage external;

create table @payload_owners (
    hash    text   not null references @payloads (hash),
    session bigint not null,
    refs    bigint not null,
    primary key (hash, session)
);

create index payload_owners_by_session on @payload_owners (session);

create table @keys (
    source  text   not null,
    key     text   not null,
    session bigint not null,
    seq     bigint not null,
    count   bigint not null,
    primary key (source, key)
);

create index keys_by_session on @keys (session);

create table @deletions (
    n     bigint  primary key,
    id    text    not null,
    at_ms bigint  not null,
    base  bigint  not null,
    head  bigint  not null,
    swept boolean not null
);

create index deletions_unswept on @deletions (n) where not swept;
create index deletions_by_id on @deletions (id);

create table @imports (
    n     bigint primary key,
    id    text   not null,
    at_ms bigint not null,
    owner text,                                    -- who brings it; '' if it failed; null once the session is there
    head  bigint not null
);

create index imports_open on @imports (n) where owner is not null;

-- One row for each open store that has written. Each batch locks it `for key share`; whoever declares it dead locks it
-- `for update`: that waits for the batches under way, and none comes after it. Only its beat updates it, so batches wait
-- for nobody. All times are the database's.
create table @owners (
    owner  text        primary key,
    host   text        not null,
    pid    bigint      not null,
    role   text        not null,                   -- what it says it is: gateway, or ''
    began  timestamptz not null default clock_timestamp(),
    beat   timestamptz not null default clock_timestamp(),
    direct boolean     not null,                   -- its connections can be seen in pg_stat_activity
    dead   boolean     not null default false
) with (fillfactor = 50);

-- One row a batch, stored with it. Whoever does not know what became of a batch burns its number: if the row is there, the
-- batch was stored; if it is not, it never will be. Old ones are deleted by the beat.
create table @batches (
    owner text    not null,
    k     bigint  not null,
    burnt boolean not null,
    primary key (owner, k)
);

-- The ready queue: a row for each session in which there is something to run, or whose lease is held. Owners are served in
-- turn: a row's rank is one above the last that waits for its tenant, or above what was served last, whichever is more. So a
-- claim reads the lowest ranks from there on, and never the dead rows of what was claimed before.
create sequence @served;

create table @work (
    n      bigint primary key,
    tenant text   not null,                        -- for whom it is done
    rank   bigint not null,
    owner  text                                    -- who runs it or has it in hand; '' if it waits for a change; null if it is ready
) with (fillfactor = 50);

create index work_ready on @work (rank) where owner is null;
create index work_waiting on @work (tenant, rank) where owner is null;
create index work_held on @work (owner) where owner is not null and owner <> '';

-- Why the runner of an open turn let go of it without storing its end.
create table @left_words (
    session text   primary key,
    turn    bigint not null,
    cause   text   not null
);
