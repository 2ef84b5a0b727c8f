-- Everything that a batch writes to sessions that are there, in one round trip: the fence, the comparison of what the writer
-- remembered, facts, pieces, seals and rows. It is refused whole. What is read by key or by index is read so whatever the
-- tables' statistics say: `drafts` is empty when it is analysed and full a moment later.
create function @commit_batch(
    me text, batch bigint, fenced boolean,
    ns bigint[], heads_were bigint[], tokens_were bigint[], stamps_were bigint[],
    heads_are bigint[], tokens_are bigint[], owners_are text[], stamps_are bigint[],
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
        perform 1 from heads h where h.n = any (ns) order by h.n for update;
        select count(*) into same
        from unnest(ns, heads_were, tokens_were, stamps_were) as w (n, head, token, stamp)
            join heads h on h.n = w.n and h.head = w.head and h.token = w.token and h.stamp = w.stamp;
        if same <> cardinality(ns) then
            raise exception 'stale' using errcode = 'STS01';
        end if;
    end if;
    if cardinality(k_seq) > 0 then
        insert into keys (source, key, session, seq, count)
        select * from unnest(k_source, k_key, k_session, k_seq, k_count);
    end if;
    if cardinality(f_seq) > 0 then
        insert into facts (session, seq, place, at_ms, crc, body)
        select f.session, f.seq, nextval('places'), f.at_ms, f.crc, f.body
        from unnest(f_session, f_seq, f_at_ms, f_crc, f_body) as f (session, seq, at_ms, crc, body);
        update heads h
        set head = w.head, token = w.token, owner = w.owner, stamp = w.stamp,
            place = greatest(h.place, (select f.place from facts f where f.session = h.n and f.seq = w.head))
        from unnest(ns, heads_are, tokens_are, owners_are, stamps_are) as w (n, head, token, owner, stamp)
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
