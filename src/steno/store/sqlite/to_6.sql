-- From version 5 to 6: the version of the facts is stored apart from that of the tables.

alter table lists add column journal integer not null default 1;
