-- Everything that a batch writes to sessions that are there, in one round trip: the fence, the comparison of what the writer
-- remembered, facts, pieces, seals and rows. It is refused whole. `lasts` says which of the facts is a session's last.
-- Where each session only gets facts, what stands in `heads` is compared where it is changed; else it is locked first.
-- `tokens_are`, `owners_are` and `stamps_are` are empty where no row is stored. What is read by key or by index is read so
-- whatever the tables' statistics say: `drafts` is empty when it is analysed and full a moment later.
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
    for i in 1 .. cardinality(f_seq) loop
        places[i] := nextval('places');
    end loop;
    if cardinality(s_n) = 0 and array_position(lasts, 0) is null then
        update heads h set head = w.head_is, place = places[w.last]
        from unnest(ns, heads_were, tokens_were, stamps_were, heads_are, lasts) as w (n, head, token, stamp, head_is, last)
        where h.n = w.n and h.head = w.head and h.token = w.token and h.stamp = w.stamp;
        get diagnostics same = row_count;
    else
        select count(*) into same from (
            select 1 from unnest(ns, heads_were, tokens_were, stamps_were) as w (n, head, token, stamp)
                join heads h on h.n = w.n and h.head = w.head and h.token = w.token and h.stamp = w.stamp
            order by h.n for update of h
        ) as locked;
        if cardinality(s_n) > 0 then
            update heads h
            set head = w.head, token = w.token, owner = w.owner, stamp = w.stamp,
                place = greatest(h.place, places[nullif(w.last, 0)])
            from unnest(ns, heads_are, tokens_are, owners_are, stamps_are, lasts) as w (n, head, token, owner, stamp, last)
            where h.n = w.n and (h.head, h.token, h.stamp) is distinct from (w.head, w.token, w.stamp);
        elsif cardinality(f_seq) > 0 then
            update heads h set head = w.head, place = places[w.last]
            from unnest(ns, heads_are, lasts) as w (n, head, last) where h.n = w.n and w.last > 0;
        end if;
    end if;
    if same <> cardinality(ns) then
        raise exception 'stale' using errcode = 'STS01';
    end if;
    if cardinality(k_seq) > 0 then
        insert into keys (source, key, session, seq, count)
        select * from unnest(k_source, k_key, k_session, k_seq, k_count);
    end if;
    if cardinality(f_seq) > 0 then
        insert into facts (session, seq, place, at_ms, crc, body)
        select * from unnest(f_session, f_seq, places, f_at_ms, f_crc, f_body);
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
