-- The whole truth about the index of a store. It is expendable: without it, or with another one, search finds the same.
--
-- A part holds all texts that a range of the feed of changes tells of; what no part covers is scanned. A place in the feed
-- is (mark, seq): a change, and, in an imported session that is told as one change, how far into it.

create table about (                       -- one row
    format  integer not null,
    folding text    not null,              -- the rules of folding: an index that was folded otherwise is made anew
    store   text    not null,              -- of which store it is
    cleared integer not null,              -- what was removed up to this mark is in no part any more
    dirty   integer not null,              -- 1 while removed text may still be in the log of this file
    parts   integer not null,              -- the number of the last part that was made
    counted integer not null               -- how many texts there were when `common` was counted
) strict;

create table parts (
    n        integer primary key,
    after    integer not null,             -- it covers the feed from after (after, after_seq) to (upto, upto_seq)
    after_seq integer not null,
    upto     integer not null,
    upto_seq integer not null,
    as_of    integer not null,             -- the last mark of the feed when it was begun
    texts    integer not null,
    at_min   integer not null,
    at_max   integer not null,
    state    text    not null              -- open, full, merging, sealed
) strict;

create table sessions (
    n        integer primary key,
    id       text not null unique,
    platform text,                         -- null until its first fact is met
    parent   text                          -- the session that delegated to it, if one did
) strict;

create table holds (                       -- which parts have texts of a session
    session integer not null,
    part    integer not null,
    primary key (session, part)
) strict, without rowid;

create table hidden (                      -- the last word on whether a message is hidden
    session integer not null,
    target  integer not null,
    seq     integer not null,
    hidden  integer not null,
    primary key (session, target)
) strict, without rowid;

create table common (                      -- grams that more than one text of a thousand has
    gram  text primary key,
    share real not null
) strict, without rowid;

create table payloads (                    -- the text of each payload is in one part
    n    integer primary key,
    hash text    not null unique,
    part integer                           -- null: in none
) strict;

create table carries (                     -- which facts name a payload
    payload integer not null,
    part    integer not null,
    session integer not null,
    seq     integer not null,
    mark    integer not null,
    primary key (payload, part, session, seq)
) strict, without rowid;

-- For each part n, three tables. No text is ever taken out of one: it is filled, merged, dropped.
--
--   d<n>  which text a row is of: session and seq of its fact, its role, the mark of its place
--   g<n>  FTS5 over the narrow letters, three at a time
--   w<n>  FTS5 over the wide letters, one and two at a time

-- Parts that are used no more and not overwritten yet.
create table dropped (n integer primary key) strict;
