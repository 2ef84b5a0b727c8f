-- Version 2: what workers tell each other is signed; and the ready queue. What has something to run, or is held, is in it; the oldest first.
alter table @store add column secret uuid not null default gen_random_uuid();

create sequence @served;

create table @work (
    n      bigint primary key,
    tenant text   not null,                        -- for whom it is done
    rank   bigint not null,
    owner  text                                    -- who runs it or has it in hand; '' if it waits for a change; null if it is ready
) with (fillfactor = 50);

create index work_ready on @work (rank) where owner is null;
create index work_waiting on @work (tenant, rank) where owner is null;
create index work_held on @work (owner) where owner is not null and owner <> '';

insert into @work (n, tenant, rank, owner)
select s.n, coalesce(nullif(substring(s.name from '^(.*)/'), ''), s.listing::json ->> 'platform', ''),
    row_number() over (order by s.touched), null
from @sessions s join @heads h on h.n = s.n where s.owes in (2, 3) or h.owner is not null;

drop function @commit_batch;
