-- From version 1 to 2: facts in commit order with an index by session instead of clustered by session, and list rows
-- that may be some facts behind. Version 1 kept no commit order between sessions, so its facts are numbered session
-- by session; lists keep the order they had.

drop view journal;
drop index sessions_by_touch;
drop index sessions_by_parent;
alter table sessions rename to sessions_1;
alter table facts rename to facts_1;

create table sessions (
    n          integer primary key autoincrement,
    id         text    not null unique,
    name       text    unique,
    parent     integer references sessions (n),
    base       integer not null,
    token      integer not null,
    owner      text,
    expires_ms integer not null,
    touched    integer not null,
    listing    text    not null,
    listed     integer not null,
    crc        integer not null
) strict;

insert into sessions
select n, id, name, parent, base, token, owner, expires_ms, touched, listing, head, crc32(
    n || ' ' || id || ' ' || coalesce(name, 'None') || ' ' || coalesce(parent, 'None') || ' ' || base || ' ' || head
    || ' ' || token || ' ' || coalesce(owner, 'None') || ' ' || expires_ms || ' ' || touched, listing)
from sessions_1;

update sqlite_sequence set seq = (select seq from sqlite_sequence where name = 'sessions_1') where name = 'sessions';

create index sessions_by_touch on sessions (touched);
create index sessions_by_parent on sessions (parent) where parent is not null;

create table facts (
    id      integer primary key,
    session integer not null,
    seq     integer not null,
    at_ms   integer not null,
    crc     integer not null,
    body    text    not null
) strict;

insert into facts (session, seq, at_ms, crc, body)
select id >> 32, id & 0xffffffff, at_ms, crc, body from facts_1 order by id;

create unique index facts_by_session on facts (session, seq);

create table lists (
    upto integer not null
) strict;

insert into lists (upto)
select max((select coalesce(max(id), 0) from facts), (select coalesce(max(touched), 0) from sessions));

create view journal as
select s.id as session, f.seq, datetime(f.at_ms / 1000, 'unixepoch') as at, f.body as fact
from facts f join sessions s on s.n = f.session;

drop table facts_1;
drop table sessions_1;
