-- Every statement that the store runs but those of `commit.sql`, by name. `@` is the store's schema; `{session_row}` is what a
-- session is read as.

-- name: session_by_id
select {session_row} from @sessions s join @heads h on h.n = s.n where s.id = %s

-- name: session_by_n
select {session_row} from @sessions s join @heads h on h.n = s.n where s.n = %s

-- name: lock_sessions
select h.n from @heads h where h.n = any (array(select s.n from @sessions s where s.id = any (%s))) order by h.n for update

-- name: sessions_by_id
select {session_row} from @sessions s join @heads h on h.n = s.n where s.id = any (%s)

-- name: drafts_by_id
select session, started, kind, start, crc, text from @drafts
where session = any (array(select s.n from @sessions s where s.id = any (%s))) order by session, started, kind, start

-- name: forks_of
select {session_row} from @sessions s join @heads h on h.n = s.n where s.parent = %s order by s.n

-- name: changed_before
select {session_row} from @sessions s join @heads h on h.n = s.n where s.touched < %s order by s.touched desc limit %s

-- name: changed_before_owes
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.owes in (1, 3) and s.touched < %s order by s.touched desc limit %s

-- name: changed_before_unfinished
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.owes in (2, 3) and s.touched < %s order by s.touched desc limit %s

-- name: changed_before_due
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.memory in (1, 3) and s.touched < %s order by s.touched desc limit %s

-- name: changed_before_remembers
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.memory in (2, 3) and s.touched < %s order by s.touched desc limit %s

-- name: numbered_after
select {session_row} from @sessions s join @heads h on h.n = s.n where s.n > %s order by s.n limit %s

-- name: numbered_after_owes
select {session_row} from @sessions s join @heads h on h.n = s.n where s.owes in (1, 3) and s.n > %s order by s.n limit %s

-- name: numbered_after_unfinished
select {session_row} from @sessions s join @heads h on h.n = s.n where s.owes in (2, 3) and s.n > %s order by s.n limit %s

-- name: numbered_after_due
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.memory in (1, 3) and s.n > %s order by s.n limit %s

-- name: numbered_after_remembers
select {session_row} from @sessions s join @heads h on h.n = s.n
where s.memory in (2, 3) and s.n > %s order by s.n limit %s

-- name: session_by_name
select id from @sessions where name = %s

-- name: sessions_named
select id from @sessions where starts_with(name, %s) and name collate "C" > %s
order by name collate "C" limit %s

-- name: sessions_by_name
select name, id from @sessions where name = any (%s)

-- name: behind
select h.n, s.id, h.place from @heads h join @sessions s on s.n = h.n where h.owner is not null and h.head > s.listed

-- name: behind_with
select h.n, s.id, h.place from @heads h join @sessions s on s.n = h.n
where h.owner is not null and h.head > s.listed and exists (
    select 1 from @facts f where f.session = h.n and f.seq > s.listed
        and split_part(substr(f.body, 10, 40), '"', 1) = any (%s))

-- name: given
select case when is_called then last_value else 0 end from @places

-- name: snapshot
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint

-- name: facts_after
select f.place, f.session, f.seq, f.at_ms, f.crc, s.id, case when s.n is null or f.seq <= i.head then null else f.body end
from @facts f left join @sessions s on s.n = f.session left join @imports i on i.n = f.session
where f.place > %s and f.place <= %s order by f.place limit %s

-- name: changes_after
select c.place, c.session, c.kind, c.seq, c.crc, coalesce(s.id, d.id)
from @changes c left join @sessions s on s.n = c.session left join @deletions d on d.n = c.session
where c.place > %s and c.place <= %s order by c.place limit %s

-- name: changes_of_facts
select c.place from @changes c join @facts f on f.place = c.place limit 100

-- name: imports_untold
select i.id from @imports i join @sessions s on s.n = i.n
where i.owner is null and not exists (select 1 from @changes c where c.session = i.n and c.kind = 'imported') limit 100

-- name: heads_of
select s.id, h.head, case when h.owner is null then null else h.token end
from @sessions s join @heads h on h.n = s.n where s.id = any (%s)

-- name: next_numbers
select nextval('@numbers') from generate_series(1, %s)

-- name: insert_session
insert into @sessions (n, id, name, parent, base, touched, listing, listed, crc, owes, memory)
values (%s, %s, %s, %s, %s, 0, %s, %s, %s, 0, 0)

-- name: insert_head
insert into @heads (n, head, token, owner, stamp, place) values (%s, %s, 0, null, 0, %s)

-- name: session_ids
select n, id from @sessions where n > %s order by n limit %s

-- name: sessions_told
select id from @sessions where position('"from_sessions"' in listing) > 0 and position(%s in listing) > 0

-- name: delete_session
delete from @sessions where n = %s

-- name: delete_head
delete from @heads where n = %s

-- name: insert_facts
insert into @facts (session, seq, place, at_ms, crc, body)
select f.session, f.seq, nextval('@places'), f.at_ms, f.crc, f.body
from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[]) as f (session, seq, at_ms, crc, body)

-- name: facts_between
select seq, at_ms, crc, body from @facts where session = %s and seq > %s and seq <= %s order by seq limit %s

-- name: facts_with
select seq, at_ms, crc, body from @facts where session = %s and seq > %s and seq <= %s
    and split_part(substr(body, 10, 40), '"', 1) = any (%s) order by seq limit %s

-- name: streaming
select s.id from @sessions s where s.n in (select distinct d.session from @drafts d) order by s.n

-- name: facts_at
select s.id, f.session, f.seq, f.at_ms, f.crc, f.body
from unnest(%s::text[], %s::bigint[]) as w (id, seq)
    join @sessions s on s.id = w.id join @facts f on f.session = s.n and f.seq = w.seq

-- name: replace_fact
update @facts set crc = %s, body = %s where session = %s and seq = %s

-- name: restamp
update @heads set stamp = stamp + 1 where n = %s

-- name: delete_facts
delete from @facts where session = %s and seq between %s and %s

-- name: insert_change
insert into @changes (place, session, kind, seq, crc) values (%s, %s, %s, %s, %s)

-- name: next_place
select nextval('@places')

-- name: forget_changes
delete from @changes where session = %s

-- name: insert_draft
insert into @drafts (session, started, kind, start, crc, text) values (%s, %s, %s, %s, %s, %s)

-- name: drafts_of
select started, kind, start, crc, text from @drafts where session = %s order by started, kind, start

-- name: drafts_of_stream
select started, kind, start, crc, text from @drafts where session = %s and started = %s order by kind, start

-- name: streams_of
select distinct started, kind from @drafts where session = %s order by started, kind

-- name: draft_from
select started, kind, start, crc, text from @drafts d
where d.session = %(n)s and d.started = %(started)s and d.kind = %(kind)s and d.start >= coalesce(
    (select max(e.start) from @drafts e
     where e.session = %(n)s and e.started = %(started)s and e.kind = %(kind)s and e.start <= %(offset)s), 0)
order by d.start

-- name: delete_all_drafts
delete from @drafts where session = %s

-- name: insert_payload
insert into @payloads (hash, size) values (%s, %s) on conflict (hash) do nothing

-- name: insert_chunk
insert into @chunks (hash, i, body) values (%s, %s, %s) on conflict (hash, i) do nothing

-- name: payload_size
select size from @payloads where hash = %s

-- name: chunks
select body from @chunks where hash = %s order by i limit %s

-- name: payload_owned
select 1 from @payload_owners where hash = %s limit 1

-- name: payloads_after
select n, hash from @payloads where n > %s order by n limit 1

-- name: own_payload
insert into @payload_owners as o (hash, session, refs) values (%s, %s, %s)
on conflict (hash, session) do update set refs = o.refs + excluded.refs where excluded.refs <> 0

-- name: disown_payload
delete from @payload_owners where hash = %s and session = %s and refs <= 0

-- name: disown_payload_at_once
delete from @payload_owners where hash = %s and session = %s

-- name: payloads_owned
select hash from @payload_owners where session = %s limit %s

-- name: delete_payload_unowned
delete from @payloads p where p.hash = %s and not exists (select 1 from @payload_owners o where o.hash = p.hash)

-- name: key
select s.id, k.seq, k.count from @keys k join @sessions s on s.n = k.session where k.source = %s and k.key = %s

-- name: key_if_any
select k.source, k.key, k.session, s.id, k.seq, k.count
from @keys k left join @sessions s on s.n = k.session where k.source = %s and k.key = %s

-- name: keys_given
select k.source, k.key, k.session, s.id, k.seq, k.count
from unnest(%s::text[], %s::text[]) as w (source, key)
    join @keys k on k.source = w.source and k.key = w.key left join @sessions s on s.n = k.session

-- name: insert_key
insert into @keys (source, key, session, seq, count) values (%s, %s, %s, %s, %s)

-- name: take_key
update @keys k set session = %s, seq = %s, count = %s where k.source = %s and k.key = %s and k.session = %s
    and not exists (select 1 from @sessions s where s.n = k.session)

-- name: lock_import
select 1 from @imports where n = %s for update

-- name: delete_keys
delete from @keys where (source, key) in (select source, key from @keys where session = %s limit %s)

-- name: key_of
select 1 from @keys where session = %s limit 1

-- name: keys_added
select key, seq, count from @keys where session = %s and source = %s order by seq, key

-- name: insert_deletion
insert into @deletions (n, id, at_ms, base, head, swept) values (%s, %s, %s, %s, %s, false)

-- name: unswept
(select n, base, head from @deletions where not swept limit 1)
union all
(select n, 0, 4294967295 from @imports where owner = '' limit 1)
limit 1

-- name: deleted_unswept
select id from @deletions where not swept order by n

-- name: deletion_swept
update @deletions set swept = true where n = %s

-- name: deletion
select at_ms from @deletions where id = %s limit 1

-- name: insert_import
insert into @imports (n, id, at_ms, owner, head) values (%s, %s, %s, %s, 0)

-- name: imports_open
select n, at_ms, owner from @imports where owner is not null order by n

-- name: import_of
select owner, (select count(*) from @keys k where k.session = i.n) from @imports i where i.n = %s

-- name: imported
select i.head from @imports i join @sessions s on s.n = i.n where s.id = %s

-- name: import_done
update @imports set owner = null, head = %s where n = %s

-- name: place_taken
select 1 from @sessions where touched = %s

-- name: import_failed
update @imports set owner = '' where n = %s and owner is not null

-- name: import_swept
delete from @imports where n = %s and owner = ''

-- name: keys_dangling
select k.source, k.key from @keys k left join @facts f on f.session = k.session and f.seq = k.seq
where f.seq is null and k.session not in (select n from @deletions where not swept)
    and k.session not in (select n from @imports where owner is not null) limit 100

-- name: drafts_dangling
select distinct d.session, d.started from @drafts d left join @facts f on f.session = d.session and f.seq = d.started
where f.seq is null and d.session not in (select n from @imports where owner is not null) limit 100

-- name: facts_dangling
select f.session from (select distinct session from @facts) f left join @sessions s on s.n = f.session
where s.n is null and f.session not in (select n from @deletions where not swept)
    and f.session not in (select n from @imports where owner is not null) limit 100

-- name: heads_dangling
select h.n from @heads h left join @sessions s on s.n = h.n where s.n is null limit 100

-- name: heads_wrong
select s.id from @heads h join @sessions s on s.n = h.n
where h.head <> coalesce((select max(f.seq) from @facts f where f.session = h.n), s.base) limit 100

-- name: register
insert into @owners (owner, host, pid, role, direct) values (%s, %s, %s, %s, %s) on conflict (owner) do nothing

-- name: fence
select 1 from @owners where owner = %s and not dead for key share

-- name: insert_batch
insert into @batches (owner, k, burnt) values (%s, %s, false)

-- name: settle
insert into @batches as b (owner, k, burnt) values (%s, %s, true)
on conflict (owner, k) do update set burnt = b.burnt returning burnt

-- name: batch_before
select 1 from @batches where owner = %s and k = %s

-- name: beat
update @owners set beat = clock_timestamp() where owner = %s and not dead returning 1

-- name: forget_batches
delete from @batches where owner = %s and k < %s

-- name: sign_off
delete from @owners where owner = %s

-- name: forget_owner
delete from @batches where owner = %s

-- name: pulse
select o.dead, extract(epoch from clock_timestamp() - o.beat)::float8, o.direct and not exists (
    select 1 from pg_stat_activity a where a.datname = current_database() and a.application_name = %s)
from @owners o where o.owner = %s

-- name: end_connections
select pg_terminate_backend(a.pid) from pg_stat_activity a
where a.datname = current_database() and a.application_name = %s and a.pid <> pg_backend_pid()

-- name: bury
update @owners set dead = true where owner in (
    select o.owner from @owners o
    where o.owner = %s and not o.dead and o.beat < clock_timestamp() - make_interval(secs => %s) for update)
returning 1

-- name: owners
select o.owner, o.host, o.pid, o.role, extract(epoch from clock_timestamp() - o.began)::float8,
    extract(epoch from clock_timestamp() - o.beat)::float8, o.dead,
    (select count(*) from @heads h where h.owner = o.owner)
from @owners o order by o.began

-- name: others
select owner from @owners where owner <> %s and not dead and beat < clock_timestamp() - make_interval(secs => %s)

-- name: forget_dead
delete from @owners where dead and beat < clock_timestamp() - interval '1 day'

-- name: leave
insert into @left_words (session, turn, cause) values (%s, %s, %s)
on conflict (session) do update set turn = excluded.turn, cause = excluded.cause

-- name: drop_left
delete from @left_words where session = %s

-- name: left
select turn, cause from @left_words where session = %s

-- name: claim
with alive as materialized (
    select 1 from @owners where owner = %(me)s and not dead for key share
), found as (
    select n from @work where owner is null
        and rank >= case when %(anew)s then 0 else (select last_value from @served) end and tenant <> all (%(full)s::text[])
        and exists (select 1 from alive)
    order by rank limit %(limit)s for update skip locked
), taken as (
    update @work w set owner = %(me)s from found where w.n = found.n returning w.n, w.rank
), noted as materialized (
    select setval('@served', greatest((select last_value from @served), max(rank))), set_config('synchronous_commit', 'off', true)
    from taken having count(*) > 0
)
select s.id, (select count(*) from noted) from taken t join @sessions s on s.n = t.n order by t.rank

-- That an owner has a name is said where one is given, too: else a plan for any value cannot use the index of what is held.
-- name: held
select s.id, case when h.owner = w.owner then h.token end
from @work w join @heads h on h.n = w.n join @sessions s on s.n = w.n where w.owner = %s and w.owner <> '' limit 10000

-- name: put_back
update @work w set owner = %s, rank = (select last_value from @served) + 1
where w.n = (select s.n from @sessions s where s.id = %s) and w.owner = %s
    and not exists (select 1 from @heads h where h.n = w.n and h.owner is not null)

-- name: look_again
update @work set owner = null, rank = (select last_value from @served) + 1
where n in (select n from @work where owner = '' limit %s for update skip locked)

-- name: free_work
update @work set owner = null, rank = (select last_value from @served) + 1 where owner = %s and owner <> ''

-- name: notify
select pg_notify(%s, %s)

-- name: delete_work
delete from @work where n = %s

-- name: work_dangling
select n from @work w where not exists (select 1 from @sessions s where s.n = w.n) limit 100

-- name: work_missing
select s.id from @sessions s where s.owes in (2, 3) and not exists (select 1 from @work w where w.n = s.n) limit 100

-- name: make_store
insert into @store (version, journal, identity, restored) values (%s, %s, %s, 0)

-- name: about_store
select version, journal, identity, restored from @store

-- name: living
select owner from @owners where not dead and beat > clock_timestamp() - interval '10 seconds' limit 1

-- name: migrated
update @store set version = %s

-- name: secret
select secret::text from @store

-- name: store_moved
update @store set identity = %s, restored = restored + (1::bigint << 40) where identity = %s returning restored

-- name: identity
select (select system_identifier from pg_control_system())::text || ':' || oid::text from pg_namespace where nspname = %s

-- name: store_exists
select to_regclass(%s) is not null

-- name: make_alone
select pg_advisory_xact_lock(hashtext(%s))

-- name: server
select current_setting('server_version'), extract(epoch from clock_timestamp())::float8 * 1000,
    current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
    pg_is_in_recovery(), (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))
