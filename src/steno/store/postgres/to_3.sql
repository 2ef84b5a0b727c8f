-- Version 3: a commit of one session has a function of its own, which `commit.sql` makes, as it does the other one. (Where
-- version 2 was made just before, that one is gone already.)
drop function if exists @commit_batch;
