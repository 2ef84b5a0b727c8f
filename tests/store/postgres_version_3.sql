-- A store of format version 3 in PostgreSQL, as the program of that time left it when it was killed: a fork, a draft
-- under way, a payload, keys, a redaction and a deletion; then its tables and its functions.

-- The whole truth about what a steno store looks like in PostgreSQL. Version 3 (store.version). `@` stands for the schema
-- that the store has to itself, so that several stores can share a database.
--
-- The journal is `facts` and `payloads`, as in a file: nothing but an explicit delete or a redaction ever changes a row
-- there. What differs serves many writers at once: what every append changes is in `heads`, a narrow row with no index that
-- an append touches; who may write is in `owners`, one row a worker; and `batches` tells afterwards what became of a commit.

create table @store (
    version  integer not null,                     -- of these tables
    journal  integer not null,                     -- of the facts and their bytes
    identity text    not null,                     -- the server and the database that it was last opened in
    restored bigint  not null,                     -- marks begin above this: it grows when a copy takes the store's place
    secret   uuid    not null default gen_random_uuid()  -- what workers tell each other is signed with it
);

create sequence @numbers;                          -- of sessions: never used twice
create sequence @places;                           -- of changes: taken while the rows that change are locked

create table @sessions (
    n       bigint   primary key,
    id      text     not null unique,              -- its name for the world, for ever
    name    text     unique,                       -- the external name it is bound to, if any
    parent  bigint   references @sessions (n),     -- a fork's parent
    base    bigint   not null,                     -- a fork's facts up to here are its parent's; 0 if it is no fork
    touched bigint   not null,                     -- place of its last fact, as of `listed`: the order of lists
    listing text     not null,                     -- the row for lists, as JSON: derived, can be rebuilt from the facts
    listed  bigint   not null,                     -- the last seq that is in `listing`; readers take in the facts after it
    crc     bigint   not null,                     -- over the other columns but `touched`
    owes    smallint not null,                     -- as of `listed`: 1 if something is owed to somebody outside, 2 if there is something to run, 3 both
    memory  smallint not null                      -- as of `listed`: 1 if a distillate is due, 2 if it has some, 3 both
);

create index sessions_by_touch on @sessions (touched);
create index sessions_by_parent on @sessions (parent) where parent is not null;
create index sessions_owing on @sessions (n) where owes in (1, 3);
create index sessions_due on @sessions (touched) where memory in (1, 3);
create index sessions_remembered on @sessions (touched) where memory in (2, 3);
create index sessions_unfinished on @sessions (touched) where owes in (2, 3);

-- What an append looks at and changes. Locked first, in order of n: so batches cannot lock each other out.
create table @heads (
    n     bigint primary key,
    head  bigint not null,                         -- seq of its last fact
    token bigint not null,                         -- grows with every lease; a writer with an older one is refused
    owner text,                                    -- who holds the lease; null if nobody does
    stamp bigint not null,                         -- grows when anything but the end of the facts is changed
    place bigint not null                          -- of its last fact
) with (fillfactor = 50);

create index heads_held on @heads (owner) where owner is not null;

create table @facts (
    session bigint not null,
    seq     bigint not null,                       -- 1, 2, 3, ... in each session, without a gap
    place   bigint not null,                       -- its place among all changes of the store
    at_ms   bigint not null,
    crc     bigint not null,                       -- over session, seq, time and body
    body    text   not null,
    primary key (session, seq)
);

create index facts_by_place on @facts (place);

-- To read the journal by hand:
create view @journal as
select s.id as session, f.seq, to_timestamp(f.at_ms / 1000.0) as at, f.body as fact
from @facts f join @sessions s on s.n = f.session;

-- Changes that are no new facts, in one order with `facts.place`.
create table @changes (
    place   bigint primary key,
    session bigint not null,
    kind    text   not null,                       -- redacted, imported, deleted
    seq     bigint not null,
    crc     bigint not null
);

create index changes_by_session on @changes (session);

-- Streamed text, a row per commit. Gone when its sealing fact is stored, in the same transaction.
create table @drafts (
    session bigint not null,
    started bigint not null,
    kind    text   not null,
    start   bigint not null,                       -- offset of the first character, in code points
    crc     bigint not null,
    text    text   not null,
    primary key (session, started, kind, start)
);

create table @payloads (
    n    bigint generated always as identity,
    hash text   primary key,                       -- SHA-256 in hex
    size bigint not null
);

create index payloads_by_n on @payloads (n);

-- In pieces of a size that a server handles easily; already compressed as a rule, so it does not try.
create table @chunks (
    hash text    not null references @payloads (hash) on delete cascade,
    i    integer not null,
    body bytea   not null,
    primary key (hash, i)
);

alter table @chunks alter column body set storage external;

create table @payload_owners (
    hash    text   not null references @payloads (hash),
    session bigint not null,
    refs    bigint not null,
    primary key (hash, session)
);

create index payload_owners_by_session on @payload_owners (session);

create table @keys (
    source  text   not null,
    key     text   not null,
    session bigint not null,
    seq     bigint not null,
    count   bigint not null,
    primary key (source, key)
);

create index keys_by_session on @keys (session);

create table @deletions (
    n     bigint  primary key,
    id    text    not null,
    at_ms bigint  not null,
    base  bigint  not null,
    head  bigint  not null,
    swept boolean not null
);

create index deletions_unswept on @deletions (n) where not swept;
create index deletions_by_id on @deletions (id);

create table @imports (
    n     bigint primary key,
    id    text   not null,
    at_ms bigint not null,
    owner text,                                    -- who brings it; '' if it failed; null once the session is there
    head  bigint not null
);

create index imports_open on @imports (n) where owner is not null;

-- One row for each open store that has written. Each batch locks it `for key share`; whoever declares it dead locks it
-- `for update`: that waits for the batches under way, and none comes after it. Only its beat updates it, so batches wait
-- for nobody. All times are the database's.
create table @owners (
    owner  text        primary key,
    host   text        not null,
    pid    bigint      not null,
    role   text        not null,                   -- what it says it is: gateway, or ''
    began  timestamptz not null default clock_timestamp(),
    beat   timestamptz not null default clock_timestamp(),
    direct boolean     not null,                   -- its connections can be seen in pg_stat_activity
    dead   boolean     not null default false
) with (fillfactor = 50);

-- One row a batch, stored with it. Whoever does not know what became of a batch burns its number: if the row is there, the
-- batch was stored; if it is not, it never will be. Old ones are deleted by the beat.
create table @batches (
    owner text    not null,
    k     bigint  not null,
    burnt boolean not null,
    primary key (owner, k)
);

-- The ready queue: a row for each session in which there is something to run, or whose lease is held. Owners are served in
-- turn: a row's rank is one above the last that waits for its tenant, or above what was served last, whichever is more. So a
-- claim reads the lowest ranks from there on, and never the dead rows of what was claimed before.
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

-- Why the runner of an open turn let go of it without storing its end.
create table @left_words (
    session text   primary key,
    turn    bigint not null,
    cause   text   not null
);

-- Everything that a batch writes to sessions that are there, in one round trip: the fence, the comparison of what the writer
-- remembered, facts, pieces, seals and rows. It is refused whole. `lasts` says which of the facts is a session's last. What
-- is read by key or by index is read so whatever the tables' statistics say: `drafts` is empty when it is analysed and full a
-- moment later.
create function @commit_batch(
    me text, batch bigint, fenced boolean,
    ns bigint[], heads_were bigint[], tokens_were bigint[], stamps_were bigint[],
    heads_are bigint[], tokens_are bigint[], owners_are text[], stamps_are bigint[],
    lasts bigint[],
    f_session bigint[], f_seq bigint[], f_at_ms bigint[], f_crc bigint[], f_body text[],
    d_session bigint[], d_started bigint[], d_kind text[], d_start bigint[], d_crc bigint[], d_text text[],
    u_session bigint[], u_started bigint[],
    s_n bigint[], s_listing text[], s_listed bigint[], s_crc bigint[], s_owes bigint[], s_memory bigint[], s_tenant text[],
    k_source text[], k_key text[], k_session bigint[], k_seq bigint[], k_count bigint[]
) returns void language plpgsql
set search_path from current
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
    same bigint;
    upto bigint;
    places bigint[];
begin
    if fenced then
        perform 1 from owners where owner = me and not dead for key share;
        if not found then
            raise exception 'buried' using errcode = 'STF01';
        end if;
        insert into batches (owner, k, burnt) values (me, batch, false);
    end if;
    if cardinality(ns) = 1 then
        perform 1 from heads h where h.n = ns[1] and h.head = heads_were[1] and h.token = tokens_were[1]
            and h.stamp = stamps_were[1] for update;
        if not found then
            raise exception 'stale' using errcode = 'STS01';
        end if;
    else
        select count(*) into same from (
            select 1 from unnest(ns, heads_were, tokens_were, stamps_were) as w (n, head, token, stamp)
                join heads h on h.n = w.n and h.head = w.head and h.token = w.token and h.stamp = w.stamp
            order by h.n for update of h
        ) as locked;
        if same <> cardinality(ns) then
            raise exception 'stale' using errcode = 'STS01';
        end if;
    end if;
    if cardinality(k_seq) > 0 then
        insert into keys (source, key, session, seq, count)
        select * from unnest(k_source, k_key, k_session, k_seq, k_count);
    end if;
    if cardinality(f_seq) > 0 then
        for i in 1 .. cardinality(f_seq) loop
            places[i] := nextval('places');
        end loop;
        insert into facts (session, seq, place, at_ms, crc, body)
        select * from unnest(f_session, f_seq, places, f_at_ms, f_crc, f_body);
        update heads h
        set head = w.head, token = w.token, owner = w.owner, stamp = w.stamp,
            place = greatest(h.place, places[w.last])
        from unnest(ns, heads_are, tokens_are, owners_are, stamps_are, lasts) as w (n, head, token, owner, stamp, last)
        where h.n = w.n and (h.head, h.token, h.stamp) is distinct from (w.head, w.token, w.stamp);
    elsif cardinality(s_n) > 0 then
        update heads h set token = w.token, owner = w.owner, stamp = w.stamp
        from unnest(ns, tokens_are, owners_are, stamps_are) as w (n, token, owner, stamp)
        where h.n = w.n and (h.token, h.stamp) is distinct from (w.token, w.stamp);
    end if;
    if cardinality(d_start) > 0 then
        insert into drafts (session, started, kind, start, crc, text)
        select * from unnest(d_session, d_started, d_kind, d_start, d_crc, d_text);
    end if;
    if cardinality(u_session) > 0 then
        delete from drafts d using unnest(u_session, u_started) as u (session, started)
        where d.session = u.session and d.started = u.started;
    end if;
    if cardinality(s_n) > 0 then
        update sessions s
        set listing = w.listing, listed = w.listed, crc = w.crc, owes = w.owes, memory = w.memory,
            touched = (select h.place from heads h where h.n = w.n)
        from unnest(s_n, s_listing, s_listed, s_crc, s_owes, s_memory)
            as w (n, listing, listed, crc, owes, memory)
        where s.n = w.n;
        delete from work k using unnest(s_n, s_owes) as w (n, owes)
        where k.n = w.n and w.owes not in (2, 3) and not exists (
            select 1 from heads h where h.n = w.n and h.owner is not null);
        select last_value into upto from served;
        insert into work as k (n, tenant, rank, owner)
        select w.n, w.tenant, coalesce((
                select o.rank from work o where o.tenant = w.tenant and o.owner is null and o.rank > upto
                order by o.rank desc limit 1), upto) + row_number() over (partition by w.tenant),
            h.owner
        from unnest(s_n, s_owes, s_tenant) as w (n, owes, tenant) join heads h on h.n = w.n
        where w.owes in (2, 3) or h.owner is not null
        on conflict (n) do update
        set owner = excluded.owner, rank = case when excluded.owner is null then excluded.rank else k.rank end
        where case when excluded.owner is null then k.owner in ('', me) else k.owner is distinct from excluded.owner end;
    end if;
end
$$;

-- The same for a batch that changes one session, without a join, and with plans that the connection pins. Its places are taken
-- once the transaction has a number, so whoever sees a later one can tell that this one has not ended. What stands in
-- `heads` is compared where it is changed: a row version the less for an old snapshot to keep.
create function @commit_one(
    me text, batch bigint,
    it bigint, head_was bigint, token_was bigint, stamp_was bigint,
    head_is bigint, token_is bigint, stamp_is bigint, owner_is text,
    f_at_ms bigint[], f_crc bigint[], f_body text[],
    d_started bigint[], d_kind text[], d_start bigint[], d_crc bigint[], d_text text[],
    u_started bigint[],
    s_listing text, s_listed bigint, s_crc bigint, s_owes bigint, s_memory bigint, s_tenant text,
    k_source text[], k_key text[], k_seq bigint[], k_count bigint[]
) returns void language plpgsql
as $$
declare
    last bigint := 0;
    places bigint[];
    upto bigint;
    above bigint;
begin
    insert into @batches (owner, k, burnt)
    select o.owner, batch, false from @owners o where o.owner = me and not o.dead for key share;
    if not found then
        raise exception 'buried' using errcode = 'STF01';
    end if;
    for i in 1 .. cardinality(f_crc) loop
        last := nextval('@places');
        places[i] := last;
    end loop;
    if last > 0 or s_listing is not null then
        update @heads h
        set head = head_is, token = token_is, stamp = stamp_is, owner = owner_is, place = greatest(h.place, last)
        where h.n = it and h.head = head_was and h.token = token_was and h.stamp = stamp_was
        returning h.place into last;
    else
        perform 1 from @heads h
        where h.n = it and h.head = head_was and h.token = token_was and h.stamp = stamp_was for update;
    end if;
    if not found then
        raise exception 'stale' using errcode = 'STS01';
    end if;
    for i in 1 .. cardinality(k_seq) loop
        insert into @keys (source, key, session, seq, count) values (k_source[i], k_key[i], it, k_seq[i], k_count[i]);
    end loop;
    for i in 1 .. cardinality(f_crc) loop
        insert into @facts (session, seq, place, at_ms, crc, body)
        values (it, head_was + i, places[i], f_at_ms[i], f_crc[i], f_body[i]);
    end loop;
    for i in 1 .. cardinality(d_start) loop
        insert into @drafts (session, started, kind, start, crc, text)
        values (it, d_started[i], d_kind[i], d_start[i], d_crc[i], d_text[i]);
    end loop;
    for i in 1 .. cardinality(u_started) loop
        delete from @drafts d where d.session = it and d.started = u_started[i];
    end loop;
    if s_listing is null then
        return;
    end if;
    update @sessions s
    set listing = s_listing, listed = s_listed, crc = s_crc, owes = s_owes, memory = s_memory, touched = last
    where s.n = it;
    if owner_is is null and s_owes not in (2, 3) then
        delete from @work k where k.n = it;
        return;
    end if;
    select last_value into upto from @served;
    if owner_is is null then
        select o.rank into above from @work o
        where o.tenant = s_tenant and o.owner is null and o.rank > upto order by o.rank desc limit 1;
    end if;
    insert into @work as k (n, tenant, rank, owner) values (it, s_tenant, coalesce(above, upto) + 1, owner_is)
    on conflict (n) do update
    set owner = excluded.owner, rank = case when excluded.owner is null then excluded.rank else k.rank end
    where case when excluded.owner is null then k.owner in ('', me) else k.owner is distinct from excluded.owner end;
end
$$;

insert into @store values
    (3, 1, 'another server', 0, '20b2ce81-efa1-421e-86e3-37bd9845e1ca');
insert into @sessions values
    (1, 'ada', NULL, NULL, 0, 8, '{"platform":"crash","title":"Tea","named":true,"titled":7,"created_ms":1800000000000,"updated_ms":1800000000000,"messages":3,"turns":1,"last_turn":"done","usage":{"calls":1,"unreported":1},"owed":{},"deliveries":{},"waiting":[[8,8]],"memory":{"answered":1}}', 8, 1931711697, 2, 0),
    (2, 'bob', 'alice/7', NULL, 0, 10, '{"platform":"crash","name":"alice/7","title":"waits","titled":2,"created_ms":1800000000000,"updated_ms":1800000000000,"messages":1,"usage":{},"owed":{},"deliveries":{},"waiting":[[2,2]],"memory":{}}', 2, 2366228977, 2, 0),
    (3, 'new-1', NULL, 1, 6, 12, '{"platform":"crash","forked_from":{"session":"ada","seq":6},"title":"Tee für zwei ﷐d800 and NUL ﷐0000","titled":2,"created_ms":1800000000000,"updated_ms":1800000000000,"messages":3,"turns":1,"last_turn":"done","usage":{},"owed":{},"deliveries":{},"waiting":[[8,8]],"memory":{"upto":7}}', 8, 1768094876, 2, 0),
    (5, 'eve', NULL, NULL, 0, 19, '{"platform":"crash","title":"[redacted]","titled":2,"created_ms":1800000000000,"updated_ms":1800000000000,"messages":1,"usage":{},"owed":{},"deliveries":{},"waiting":[[2,2]],"memory":{}}', 3, 1831552371, 2, 0),
    (6, 'dan', 'bob/1', NULL, 0, 21, '{"platform":"crash","name":"bob/1","title":"begin","titled":2,"created_ms":1800000000000,"updated_ms":1800000000000,"messages":1,"usage":{},"owed":{},"deliveries":{},"waiting":[[2,2]],"memory":{}}', 2, 3264414029, 2, 0);
insert into @heads values
    (1, 8, 1, NULL, 6, 8),
    (2, 2, 0, NULL, 2, 10),
    (3, 8, 0, NULL, 2, 12),
    (5, 3, 0, NULL, 4, 19),
    (6, 4, 1, 'host-1.77.c0ffee00', 3, 23);
insert into @facts values
    (1, 1, 1, 1800000000000, 2285219170, '{"type":"session.started","platform":"crash"}'),
    (1, 2, 2, 1800000000000, 581627821, '{"type":"input.admitted","parts":[{"type":"text","text":"Tee für zwei ﷐d800 and NUL ﷐0000"}],"source":"front-end","key":"k1"}'),
    (1, 3, 3, 1800000000000, 1856211366, '{"type":"turn.started","origin":{"type":"takes","input":2}}'),
    (1, 4, 4, 1800000000000, 76543394, '{"type":"step.started","model":"model-1"}'),
    (1, 5, 5, 1800000000000, 1919430150, '{"type":"step.sealed","step":4,"parts":[{"type":"text","text":"One two."}]}'),
    (1, 6, 6, 1800000000000, 3828832664, '{"type":"turn.ended","turn":3,"outcome":"done"}'),
    (1, 7, 7, 1800000000000, 1177095504, '{"type":"session.renamed","title":"Tea"}'),
    (1, 8, 8, 1800000000000, 1145061605, '{"type":"input.admitted","parts":[{"type":"text","text":"look"},{"type":"file","hash":"df89060115365b69b1321eefcd711c8b025c3ce7173e58af0949948833ffdd09","media_type":"text/plain","size":200}],"source":"front-end","key":"k2"}'),
    (2, 1, 9, 1800000000000, 3756795730, '{"type":"session.started","platform":"crash","name":"alice/7"}'),
    (2, 2, 10, 1800000000000, 2781030050, '{"type":"input.admitted","parts":[{"type":"text","text":"waits"}],"source":"front-end","key":"k3"}'),
    (3, 7, 11, 1800000000000, 4290384628, '{"type":"session.started","platform":"crash","forked_from":{"session":"ada","seq":6}}'),
    (3, 8, 12, 1800000000000, 3848131744, '{"type":"input.admitted","parts":[{"type":"text","text":"in the fork"}],"source":"front-end","key":"k4"}'),
    (5, 1, 16, 1800000000000, 2019071343, '{"type":"session.started","platform":"crash"}'),
    (5, 2, 17, 1800000000000, 1263547050, '{"type":"input.admitted","parts":[{"type":"redacted","chars":9}],"source":"front-end","key":"k6"}'),
    (5, 3, 19, 1800000000000, 3016033095, '{"type":"message.redacted","target":2}'),
    (6, 1, 20, 1800000000000, 1319228065, '{"type":"session.started","platform":"crash","name":"bob/1"}'),
    (6, 2, 21, 1800000000000, 3650152, '{"type":"input.admitted","parts":[{"type":"text","text":"begin"}],"source":"front-end","key":"k7"}'),
    (6, 3, 22, 1800000000000, 2456895432, '{"type":"turn.started","origin":{"type":"takes","input":2}}'),
    (6, 4, 23, 1800000000000, 16230816, '{"type":"step.started","model":"model-1"}');
insert into @changes values
    (15, 4, 'deleted', 0, 1130992204),
    (18, 5, 'redacted', 2, 2181559328);
insert into @drafts values
    (6, 4, 'text', 0, 2220382659, 'under '),
    (6, 4, 'text', 6, 1505970003, 'way ﷐d83d﷐de00');
insert into @payloads overriding system value values
    (1, 'df89060115365b69b1321eefcd711c8b025c3ce7173e58af0949948833ffdd09', 200);
insert into @chunks values
    ('df89060115365b69b1321eefcd711c8b025c3ce7173e58af0949948833ffdd09', 0, '\x61207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f61642061207061796c6f616420');
insert into @payload_owners values
    ('df89060115365b69b1321eefcd711c8b025c3ce7173e58af0949948833ffdd09', 1, 1);
insert into @keys values
    ('front-end', 'k1', 1, 2, 1),
    ('front-end', 'k2', 1, 8, 1),
    ('front-end', 'k3', 2, 2, 1),
    ('front-end', 'k4', 3, 8, 1),
    ('front-end', 'k6', 5, 2, 1),
    ('steno/add/eve', 'redacted:2', 5, 3, 1),
    ('front-end', 'k7', 6, 2, 1);
insert into @deletions values
    (4, 'gone', 1800000000000, 0, 2, true);
insert into @owners values
    ('host-1.77.c0ffee00', 'host-1', 77, '', '2026-11-18 12:00:00+00', '2026-11-18 12:00:00+00', true, false);
insert into @batches values
    ('host-1.77.c0ffee00', 29, false),
    ('host-1.77.c0ffee00', 30, false);
insert into @work values
    (1, 'crash', 2, NULL),
    (2, 'alice', 2, NULL),
    (3, 'crash', 3, NULL),
    (5, 'crash', 4, NULL),
    (6, 'bob', 2, 'host-1.77.c0ffee00');
select setval('@numbers', 6, true);
select setval('@payloads_n_seq', 1, true);
select setval('@places', 23, true);
select setval('@served', 1, false);
