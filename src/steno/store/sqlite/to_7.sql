-- From version 6 to 7: sessions in which something is to be run are found without looking at all. Which they are is known
-- when the rows for lists are made anew, after this.

drop index if exists sessions_owing;
drop index if exists sessions_unfinished;
create index sessions_owing on sessions (n) where owes in (1, 3);
create index sessions_unfinished on sessions (n) where owes in (2, 3);
