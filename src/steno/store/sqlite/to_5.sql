-- From version 4 to 5: a feed of all changes in commit order. Sessions that were imported before this come into it now, each
-- as one change.

alter table lists add column given integer not null default 0;

create table changes (
    id      integer primary key,
    session integer not null,
    kind    text    not null,
    seq     integer not null,
    crc     integer not null
) strict;

create index changes_by_session on changes (session);

insert into changes (id, session, kind, seq, crc)
select id, n, 'imported', head, crc32(id || ' ' || n || ' imported ' || head)
from (
    select (select max((select coalesce(max(id), 0) from facts), upto) from lists) + row_number() over (order by n) as id, n, head
    from imports where owner is null and n in (select n from sessions)
);

update lists set given = max(upto, (select coalesce(max(id), 0) from facts), (select coalesce(max(id), 0) from changes));
