-- Every statement that the store runs, by name. `{rows}` is a list of value rows, made by the loader in a few sizes;
-- `{session_row}` is what a session is read as.

-- name: session_by_id
select {session_row} from sessions where id = ?

-- name: session_by_n
select {session_row} from sessions where n = ?

-- name: forks_of
select {session_row} from sessions where parent = ? order by n

-- name: changed_before
select {session_row} from sessions
where touched < ? order by touched desc limit ?

-- name: changed_before_owes
select {session_row} from sessions
where owes in (1, 3) and touched < ? order by touched desc limit ?

-- name: changed_before_unfinished
select {session_row} from sessions
where owes in (2, 3) and touched < ? order by touched desc limit ?

-- name: changed_before_due
select {session_row} from sessions indexed by sessions_due
where memory in (1, 3) and touched < ? order by touched desc limit ?

-- name: changed_before_remembers
select {session_row} from sessions indexed by sessions_remembered
where memory in (2, 3) and touched < ? order by touched desc limit ?

-- name: numbered_after
select {session_row} from sessions where n > ? order by n limit ?

-- name: numbered_after_owes
select {session_row} from sessions indexed by sessions_owing
where owes in (1, 3) and n > ? order by n limit ?

-- name: numbered_after_unfinished
select {session_row} from sessions indexed by sessions_unfinished
where owes in (2, 3) and n > ? order by n limit ?

-- name: numbered_after_due
select {session_row} from sessions where memory in (1, 3) and n > ? order by n limit ?

-- name: numbered_after_remembers
select {session_row} from sessions where memory in (2, 3) and n > ? order by n limit ?

-- name: session_without_index
select 1 from sessions not indexed where id = ?

-- name: session_by_name
select id from sessions where name = ?

-- name: sessions_named
select id from sessions where name >= ? and name < ? and name > ? order by name limit ?

-- name: tops
select max((select coalesce(max(id), 0) from facts), given), upto from lists

-- name: places_given
update lists set given = ?

-- name: insert_change
insert into changes (id, session, kind, seq, crc) values (?, ?, ?, ?, ?)

-- name: forget_changes
delete from changes where session = ?

-- name: facts_after
select f.id, f.session, f.seq, f.at_ms, f.crc, s.id, iif(s.n is null or f.seq <= i.head, null, cast(f.body as blob))
from facts f not indexed left join sessions s on s.n = f.session left join imports i on i.n = f.session
where f.id > ? order by f.id limit ?

-- name: changes_after
select c.id, c.session, c.kind, c.seq, c.crc, coalesce(s.id, d.id)
from changes c left join sessions s on s.n = c.session left join deletions d on d.n = c.session
where c.id > ? order by c.id limit ?

-- name: changes_of_facts
select c.id from changes c join facts f on f.id = c.id limit 100

-- name: imports_untold
select i.id from imports i join sessions s on s.n = i.n
where i.owner is null and not exists (select 1 from changes c where c.session = i.n and c.kind = 'imported') limit 100

-- name: behind
select s.n, s.id, max(f.id) from facts f not indexed cross join sessions s on s.n = f.session
where f.id > (select upto from lists)
    and f.seq > coalesce((select i.head from imports i where i.n = s.n), 0) group by f.session

-- name: behind_with
select s.n, s.id, max(f.id) from facts f not indexed cross join sessions s on s.n = f.session
where f.id > (select upto from lists) and f.body ->> 'type' in (select value from json_each(?))
    and f.seq > coalesce((select i.head from imports i where i.n = s.n), 0)
group by f.session

-- name: lists_upto
update lists set upto = ?

-- name: insert_session
insert into sessions (id, name, parent, base, token, owner, expires_ms, touched, listing, listed, crc)
values (?, ?, ?, ?, 0, null, 0, ?, ?, ?, 0)
returning n

-- name: save_sessions
insert into sessions (n, id, base, token, owner, expires_ms, touched, listing, listed, crc, owes, memory)
values {rows}
on conflict (n) do update set
    token = excluded.token, owner = excluded.owner, expires_ms = excluded.expires_ms,
    listing = excluded.listing, listed = excluded.listed, crc = excluded.crc,
    owes = excluded.owes, memory = excluded.memory

-- name: move_sessions
insert into sessions (n, id, base, token, owner, expires_ms, touched, listing, listed, crc, owes, memory)
values {rows}
on conflict (n) do update set
    token = excluded.token, owner = excluded.owner, expires_ms = excluded.expires_ms,
    listing = excluded.listing, listed = excluded.listed, touched = excluded.touched, crc = excluded.crc,
    owes = excluded.owes, memory = excluded.memory

-- name: relist
update sessions set listing = ?, listed = ?, crc = ?, owes = ?, memory = ? where n = ?

-- name: sessions_told
select id from sessions where instr(listing, '"from_sessions"') and instr(listing, ?)

-- name: session_ids
select n, id from sessions where n > ? order by n limit ?

-- name: delete_session
delete from sessions where n = ?

-- name: insert_facts
insert into facts (id, session, seq, at_ms, crc, body) values {rows}

-- name: facts_between
select seq, at_ms, crc, cast(body as blob) from facts where session = ? and seq > ? and seq <= ? order by seq limit ?

-- name: facts_with
select seq, at_ms, crc, cast(body as blob) from facts where session = ?1 and seq > ?2 and seq <= ?3
    and substr(body, 10, instr(substr(body, 10, 40), '"') - 1) in (select value from json_each(?4))
order by seq limit ?5

-- name: streaming
select id from sessions where n in (select distinct session from drafts) order by n

-- name: facts_at
select s.id, f.session, f.seq, f.at_ms, f.crc, cast(f.body as blob)
from json_each(?) a cross join sessions s on s.id = a.value ->> 0
    cross join json_each(a.value -> 1) b cross join facts f on f.session = s.n and f.seq = b.value

-- name: replace_fact
update facts set crc = ?, body = ? where session = ? and seq = ?

-- name: delete_facts
delete from facts where session = ? and seq between ? and ?

-- name: insert_drafts
insert into drafts (session, started, kind, start, crc, text) values {rows}

-- name: drafts_of
select started, kind, start, crc, cast(text as blob) from drafts where session = ? order by started, kind, start

-- name: stream_after
select started, kind from drafts
where session = ? and (started, kind) > (?, ?) order by started, kind limit 1

-- name: draft_from
select started, kind, start, crc, cast(text as blob) from drafts
where session = ?1 and started = ?2 and kind = ?3 and start >= coalesce(
    (select max(start) from drafts where session = ?1 and started = ?2 and kind = ?3 and start <= ?4), 0)
order by start

-- name: heads_of
select json_group_object(
    id, json_array(coalesce((select max(seq) from facts where session = n), base), iif(owner is null, null, token))
)
from sessions where id in (select value from json_each(?))

-- name: drafts_of_stream
select started, kind, start, crc, cast(text as blob) from drafts
where session = ? and started = ? order by kind, start

-- name: delete_drafts
delete from drafts where session = ? and started = ?

-- name: delete_all_drafts
delete from drafts where session = ?

-- name: insert_payload
insert into payloads (hash, body) values (?, ?) on conflict (hash) do nothing

-- name: payload
select body from payloads where hash = ?

-- name: payload_owned
select 1 from payload_owners where hash = ? limit 1

-- name: payload_head
select substr(body, 1, ?) from payloads where hash = ?

-- name: payload_exists
select 1 from payloads where hash = ?

-- name: payloads_after
select n, hash, body from payloads where n > ? order by n limit 1

-- name: own_payload
insert into payload_owners (hash, session, refs) values (?, ?, ?)
on conflict (hash, session) do update set refs = refs + excluded.refs

-- name: disown_payload
delete from payload_owners where hash = ? and session = ? and refs <= 0

-- name: payloads_owned
select hash from payload_owners where session = ? limit ?

-- name: disown_payload_at_once
delete from payload_owners where hash = ? and session = ?

-- name: delete_payload_unowned
delete from payloads where hash = ? and not exists (select 1 from payload_owners o where o.hash = payloads.hash)

-- name: key
select s.id, k.seq, k.count from keys k join sessions s on s.n = k.session where k.source = ? and k.key = ?

-- name: insert_key
insert into keys (source, key, session, seq, count) values (?, ?, ?, ?, ?) on conflict (source, key) do update set
    session = excluded.session, seq = excluded.seq, count = excluded.count

-- name: delete_keys
delete from keys where (source, key) in (select source, key from keys where session = ? limit ?)

-- name: key_of
select 1 from keys where session = ? limit 1

-- name: insert_deletion
insert into deletions (n, id, at_ms, base, head, swept) values (?, ?, ?, ?, ?, 0)

-- name: unswept
select n, base, head from deletions where swept = 0
union all
select n, 0, 4294967295 from imports where owner = ''
limit 1

-- name: deleted_unswept
select id from deletions where swept = 0 order by n

-- name: deletion_swept
update deletions set swept = 1 where n = ?

-- name: deletion
select at_ms from deletions where id = ? limit 1

-- name: insert_import
insert into imports (n, id, at_ms, owner, head) values (?, ?, ?, ?, 0)

-- name: imports_open
select n, at_ms, owner from imports where owner is not null order by n

-- name: import_of
select owner, (select count(*) from keys where session = ?1) from imports where n = ?1

-- name: imported
select i.head from imports i join sessions s on s.n = i.n where s.id = ?

-- name: import_done
update imports set owner = null, head = ? where n = ?

-- name: place_taken
select 1 from sessions where touched = ?

-- name: place_session
insert into sessions (n, id, name, parent, base, token, owner, expires_ms, touched, listing, listed, crc)
values (?, ?, ?, null, 0, 0, null, 0, ?, '', 0, 0)

-- name: import_failed
update imports set owner = '' where n = ? and owner is not null

-- name: import_swept
delete from imports where n = ? and owner = ''

-- name: keys_added
select key, seq, count from keys where session = ? and source = ? order by seq, key

-- name: keys_dangling
select k.source, k.key from keys k left join facts f on f.session = k.session and f.seq = k.seq
where f.id is null and k.session not in (select n from deletions where swept = 0)
    and k.session not in (select n from imports where owner is not null) limit 100

-- name: drafts_dangling
select distinct d.session, d.started from drafts d left join facts f on f.session = d.session and f.seq = d.started
where f.id is null and d.session not in (select n from imports where owner is not null) limit 100

-- name: facts_dangling
select f.session from (select distinct session from facts) f left join sessions s on s.n = f.session
where s.n is null and f.session not in (select n from deletions where swept = 0)
    and f.session not in (select n from imports where owner is not null) limit 100

-- name: payloads_dangling
select hash from payload_owners o where not exists (select 1 from payloads p where p.hash = o.hash) limit 100
