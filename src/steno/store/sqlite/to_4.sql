-- From version 3 to 4: sessions can arrive from another store. The rows for lists say which deliveries are open, and the
-- facts about deliveries say who tries and until when, which the steno of version 3 cannot read. The rows are made anew
-- after this.

create table imports (
    n     integer primary key,
    id    text    not null,
    at_ms integer not null,
    owner text,
    head  integer not null
) strict;

create index imports_open on imports (n) where owner is not null;
