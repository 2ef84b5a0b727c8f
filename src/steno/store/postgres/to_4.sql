-- Version 4: `commit_batch` compares where it changes. `commit.sql` makes both functions anew. (Coming from version 1 or 2,
-- there is none here.)
drop function if exists @commit_batch;
drop function if exists @commit_one;
