-- From version 2 to 3: a mark on the sessions that owe something to somebody outside them, so that those which a dead
-- process left behind are found without looking at all. No fact of version 2 could owe what is marked, but hooks and
-- deliveries; the rows are made anew after this, and then have their marks.

alter table sessions add column owes integer not null default 0;
alter table sessions add column memory integer not null default 0;

update sessions set crc = crc32(
    n || ' ' || id || ' ' || coalesce(name, 'None') || ' ' || coalesce(parent, 'None') || ' ' || base || ' ' || listed
    || ' ' || token || ' ' || coalesce(owner, 'None') || ' ' || expires_ms || ' ' || touched || ' ' || owes || ' ' || memory, listing);

create index sessions_owing on sessions (n) where owes = 1;
create index sessions_due on sessions (touched) where memory in (1, 3);
create index sessions_remembered on sessions (touched) where memory in (2, 3);
