-- Version 3: a commit of one session has a function of its own, which `commit.sql` makes, as it does the other one. (Where
-- version 2 was made just before, that one is gone already; and the first version 2 had no secret.)
alter table @store add column if not exists secret uuid not null default gen_random_uuid();

drop function if exists @commit_batch;
