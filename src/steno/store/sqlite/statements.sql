-- Every statement that the store runs, by name. `{rows}` is a list of value rows, made by the loader in a few sizes.

-- name: session_by_id
select n, id, name, parent, base, head, token, owner, expires_ms, touched, cast(listing as blob), crc
from sessions where id = ?

-- name: session_by_n
select n, id, name, parent, base, head, token, owner, expires_ms, touched, cast(listing as blob), crc
from sessions where n = ?

-- name: session_without_index
select 1 from sessions not indexed where id = ?

-- name: session_by_name
select id from sessions where name = ?

-- name: top_touched
select coalesce(max(touched), 0) from sessions

-- name: insert_session
insert into sessions (id, name, parent, base, head, token, owner, expires_ms, touched, listing, crc)
values (?, ?, ?, ?, ?, 0, null, 0, ?, ?, 0)
returning n

-- name: save_sessions
insert into sessions (n, id, base, head, token, owner, expires_ms, touched, listing, crc) values {rows}
on conflict (n) do update set
    head = excluded.head, token = excluded.token, owner = excluded.owner, expires_ms = excluded.expires_ms,
    listing = excluded.listing, crc = excluded.crc

-- name: move_sessions
insert into sessions (n, id, base, head, token, owner, expires_ms, touched, listing, crc) values {rows}
on conflict (n) do update set
    head = excluded.head, token = excluded.token, owner = excluded.owner, expires_ms = excluded.expires_ms,
    listing = excluded.listing, touched = excluded.touched, crc = excluded.crc

-- name: sessions_before
select n, id, name, parent, base, head, token, owner, expires_ms, touched, cast(listing as blob), crc from sessions
where touched < ? order by touched desc limit ?

-- name: children_of
select id from sessions where parent = ?

-- name: session_ids
select n, id from sessions where n > ? order by n limit ?

-- name: delete_session
delete from sessions where n = ?

-- name: insert_facts
insert into facts (id, at_ms, crc, body) values {rows}

-- name: facts_between
select id, at_ms, crc, cast(body as blob) from facts where id > ? and id <= ? order by id limit ?

-- name: replace_fact
update facts set crc = ?, body = ? where id = ?

-- name: delete_facts
delete from facts where id between ? and ?

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
select id, head from sessions where id in (select value from json_each(?))

-- name: drafts_of_stream
select started, kind, start, crc, cast(text as blob) from drafts
where session = ? and started = ? order by kind, start

-- name: draft_tail
select started, kind, start, crc, cast(text as blob) from drafts
where session = ? and started = ? and kind = ? order by start desc limit 1

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
select k.seq, s.id, k.count from keys k join sessions s on s.n = k.session where k.source = ? and k.key = ?

-- name: insert_key
insert into keys (source, key, session, seq, count) values (?, ?, ?, ?, ?) on conflict (source, key) do update set
    session = excluded.session, seq = excluded.seq, count = excluded.count

-- name: delete_keys
delete from keys where (source, key) in (select source, key from keys where session = ? limit ?)

-- name: key_of
select 1 from keys where session = ? limit 1

-- name: fact_beyond
select 1 from facts where id > ? and id < ? limit 1

-- name: insert_deletion
insert into deletions (n, id, at_ms, base, head, swept) values (?, ?, ?, ?, ?, 0)

-- name: deletions_unswept
select n, base, head from deletions where swept = 0 order by n limit 1

-- name: deletion_swept
update deletions set swept = 1 where n = ?

-- name: deletion
select at_ms from deletions where id = ? limit 1

-- name: keys_dangling
select k.source, k.key from keys k left join sessions s on s.n = k.session
where (s.n is null or k.seq > s.head) and k.session not in (select n from deletions where swept = 0) limit 100

-- name: drafts_dangling
select distinct d.session, d.started from drafts d left join sessions s on s.n = d.session
where s.n is null or d.started > s.head limit 100

-- name: facts_dangling
select distinct f.id >> 32 from facts f left join sessions s on s.n = f.id >> 32
where s.n is null and f.id >> 32 not in (select n from deletions where swept = 0) limit 100

-- name: payloads_dangling
select hash from payload_owners o where not exists (select 1 from payloads p where p.hash = o.hash) limit 100
