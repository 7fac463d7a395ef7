-- Every statement of the product. Header: `-- name: purpose`. {partition} is doc_chunks_g<id>; {name} of another
-- entry is its text.

-- collection_ensure: make sure a collection has a row, and return its id
with made as (
    insert into collections (name) values (%(name)s) on conflict (name) do nothing returning id
)
select id from made union all select id from collections where name = %(name)s limit 1

-- collection_names: every collection that has a live generation
select name from collections where live_generation_id is not null order by name

-- collection_revision: the number that changes with every committed write
select revision from collections where name = %(name)s and live_generation_id is not null

-- collection_revisions: the same for all collections
select name, revision from collections where live_generation_id is not null order by name

-- revision_leap: more than the writes of any run; a million runs of a million still fit into a JSON number
select setval('revision_seq', last_value + 1000000) from revision_seq

-- collection_finish: what is known after a complete run
update collections
   set last_ingest_at = now(), docs_root = %(docs_root)s, pending_removals = %(pending_removals)s
 where id = %(collection_id)s

-- collection_root: where a collection's files were last found
select docs_root from collections where name = %(name)s

-- collection_summaries: a line of list_collections each
select c.name, g.provider, g.endpoint, g.model, g.dims, g.chunk_size_chars, g.chunk_overlap_chars, g.text_language,
       c.last_ingest_at,
       count(d.id) filter (where d.status <> 'skipped') as documents,
       count(d.id) filter (where d.status = 'skipped') as skipped,
       coalesce(sum(d.chunk_count), 0)::bigint as chunks,
       c.pending_removals, c.revision,
       coalesce(b.is_locked, false) as rebuilding, coalesce(not b.is_locked, false) as rebuild_unfinished
  from collections c
  join generations g on g.id = c.live_generation_id
  left join documents d on d.generation_id = g.id
  -- Who builds holds the collection's write lock (store/writing.py), whose key this is.
  left join lateral (
    select exists (select from pg_locks l where l.locktype = 'advisory' and l.granted and l.objsubid = 2
                    and l.classid = %(write_lock_class)s and l.objid = c.id
                    and l.database = (select oid from pg_database where datname = current_database())) as is_locked
      from generations where collection_id = c.id and state = 'building'
  ) b on true
 group by c.id, g.id, b.is_locked
 order by c.name

-- generation_columns: a generation as recorded, by its state
select g.id, g.collection_id, c.name as collection, g.state, g.provider, g.endpoint, g.model, g.dims,
       g.document_prefix, g.chunk_size_chars, g.chunk_overlap_chars, g.pipeline_version, g.text_language, g.forced
  from generations g join collections c on c.id = g.collection_id
 where c.name = %(name)s and g.state = %(state)s

-- generations_live: the live generation of every collection
select g.id, g.collection_id, c.name as collection, g.state, g.provider, g.endpoint, g.model, g.dims,
       g.document_prefix, g.chunk_size_chars, g.chunk_overlap_chars, g.pipeline_version, g.text_language, g.forced
  from collections c join generations g on g.id = c.live_generation_id
 order by c.name

-- generations_alike: whose vectors are of the same model and dimension
select id from generations
 where provider = %(provider)s and endpoint = %(endpoint)s and model = %(model)s and dims = %(dims)s
   and state <> 'retired'
 order by collection_id <> %(collection_id)s, id

-- generation_insert: a new generation, building until it is made live
insert into generations (collection_id, state, provider, endpoint, model, dims, document_prefix,
                         chunk_size_chars, chunk_overlap_chars, pipeline_version, text_language, forced)
values (%(collection_id)s, 'building', %(provider)s, %(endpoint)s, %(model)s, %(dims)s, %(document_prefix)s,
        %(chunk_size_chars)s, %(chunk_overlap_chars)s, %(pipeline_version)s, %(text_language)s, %(forced)s)
returning id

-- generation_retire: take a collection's generation of one state out of use
update generations set state = 'retired' where collection_id = %(collection_id)s and state = %(state)s

-- generation_make_live: part of the switch, in one transaction with the two around it
update generations set state = 'live' where id = %(generation_id)s

-- collection_switch: the one update after which queries are answered from the new generation
update collections set live_generation_id = %(generation_id)s, revision = nextval('revision_seq')
 where id = %(collection_id)s

-- collection_take_down: from here on it is not there to be asked; its row stays, and its name can be used again
update collections
   set live_generation_id = null, pending_removals = 0, last_ingest_at = null, revision = nextval('revision_seq')
 where id = %(collection_id)s

-- generations_retire: all of a collection
update generations set state = 'retired' where collection_id = %(collection_id)s

-- generations_retired: whose partitions wait to be dropped; one detached half-way comes first, it bars all others
select g.id from generations g left join pg_inherits i on i.inhrelid = to_regclass('doc_chunks_g' || g.id)
 where g.state = 'retired' order by i.inhdetachpending is true desc, g.id

-- generation_delete: after its partition is gone; documents and term statistics go with it
delete from generations where id = %(generation_id)s

-- generation_statistics: totals for list_collections and BM25
update generations
   set chunk_count = t.chunks, char_total = t.chars
  from (select count(*) as chunks, coalesce(sum(char_end - char_start), 0) as chars from {partition}) t
 where id = %(generation_id)s

-- generation_miscounted: whether the totals are of another number of chunks than there are now
select g.chunk_count <> (select coalesce(sum(d.chunk_count), 0) from documents d where d.generation_id = g.id)
  from generations g where g.id = %(generation_id)s

-- term_stats_clear: before they are counted again
delete from term_stats where generation_id = %(generation_id)s

-- term_stats_refresh: in how many chunks each lexeme occurs
insert into term_stats (generation_id, lexeme, chunk_count)
select %(generation_id)s, lexeme, count(*) from {partition}, unnest(tsvector_to_array(tsv)) as lexeme group by lexeme

-- document_states: what is needed to compare the disk with the index
select source, id, status, skip_reason, skip_conditions, content_hash, mtime_ns, size_bytes, series
  from documents where generation_id = %(generation_id)s

-- document_stats: what the staleness check compares with stat()
select source, mtime_ns, size_bytes from documents where generation_id = %(generation_id)s

-- documents_list: a page of list_documents
select c.name as collection, d.source, d.status, d.skip_reason as reason, d.content_hash, d.mtime_ns, d.size_bytes,
       d.title, d.document_date, d.pages, d.chunk_count, d.indexed_at
  from documents d join collections c on c.live_generation_id = d.generation_id
 where %(name)s::text is null or c.name = %(name)s
 order by c.name, d.source
 limit %(limit)s offset %(offset)s

-- documents_count: how many list_documents has in all
select count(*), count(*) filter (where d.status = 'skipped')
  from documents d join collections c on c.live_generation_id = d.generation_id
 where %(name)s::text is null or c.name = %(name)s

-- document_sources: the names in a collection, for near matches
select d.source from documents d join collections c on c.live_generation_id = d.generation_id where c.name = %(name)s

-- document_store: a new version in one statement: row, text, revision, new chunks, and without those that hold no more
with document as (
    insert into documents (generation_id, source, raw_path, status, skip_reason, skip_conditions, content_hash, mtime_ns,
                           size_bytes, title, document_date, tags, pages, series, chunk_count)
    values (%(generation_id)s, %(source)s, %(raw_path)s, %(status)s, %(skip_reason)s, %(skip_conditions)s,
            %(content_hash)s, %(mtime_ns)s, %(size_bytes)s, %(title)s, %(document_date)s, %(tags)s, %(pages)s,
            %(series)s, %(chunk_count)s)
    on conflict (generation_id, source) do update
       set raw_path = excluded.raw_path, status = excluded.status, skip_reason = excluded.skip_reason,
           skip_conditions = excluded.skip_conditions, content_hash = excluded.content_hash,
           mtime_ns = excluded.mtime_ns, size_bytes = excluded.size_bytes, title = excluded.title,
           document_date = excluded.document_date, tags = excluded.tags, pages = excluded.pages,
           series = excluded.series, chunk_count = excluded.chunk_count, indexed_at = now()
    returning id
), filled as (
    insert into document_texts (document_id, text) select id, %(text)s from document where %(text)s::text is not null
    on conflict (document_id) do update set text = excluded.text
), emptied as (
    delete from document_texts where %(text)s::text is null and document_id = %(stored_id)s
), dropped as (
    delete from {partition} where id = any(%(stale)s)
), added as (
    insert into {partition} ({chunk_columns}) select {chunk_values} from document cross join {chunk_rows}
), {revised}
select id from document

-- chunks_add: further chunks of a document, in the transaction that stores it
with added as (
    insert into {partition} ({chunk_columns}) select {chunk_values}
      from documents document cross join {chunk_rows}
     where document.generation_id = %(generation_id)s and document.source = %(source)s
)
select

-- revised: a new revision of the collection, with the write it belongs to; what is built beside the index is none
revised as (
    update collections set revision = nextval('revision_seq')
     where id = %(collection_id)s and live_generation_id = %(generation_id)s
)

-- chunk_columns: of a new chunk
id, generation_id, collection, document_id, source, chunk_index, content, context, embed_key, embedding, char_start,
char_end, line_start, line_end, page_start, page_end, heading_path, also_on

-- chunk_values: of a new chunk; headings and dates stand one after the other, and each row has its slice of them
{chunk_id}, %(generation_id)s, %(collection)s, document.id, %(source)s, n.chunk_index, n.content, n.context, n.embed_key,
n.embedding, n.char_start, n.char_end, n.line_start, n.line_end, n.page_start, n.page_end,
(%(headings)b::text[])[n.headings_from:n.headings_to], (%(dates)b::date[])[n.dates_from:n.dates_to]

-- chunk_id: an id that is never given out twice and carries part of its document's hash, so that a stale one shows
to_hex(nextval('chunk_seq')) || '-' || left(encode(%(content_hash)s, 'hex'), 8)

-- chunk_rows: new chunks, as arrays of one length
unnest(%(chunk_indexes)b::int4[], %(contents)b::text[], %(contexts)b::text[], %(embed_keys)b::bytea[],
       %(embeddings)b::vector[], %(char_starts)b::int4[], %(char_ends)b::int4[], %(line_starts)b::int4[],
       %(line_ends)b::int4[], %(page_starts)b::int4[], %(page_ends)b::int4[], %(headings_from)b::int4[],
       %(headings_to)b::int4[], %(dates_from)b::int4[], %(dates_to)b::int4[])
    as n(chunk_index, content, context, embed_key, embedding, char_start, char_end, line_start, line_end, page_start,
         page_end, headings_from, headings_to, dates_from, dates_to)

-- documents_touch: the same content under new time stamps
update documents d set mtime_ns = n.mtime_ns, size_bytes = n.size_bytes
  from unnest(%(ids)s::bigint[], %(mtimes_ns)s::bigint[], %(sizes_bytes)s::bigint[]) as n(id, mtime_ns, size_bytes)
 where d.id = n.id

-- document_delete: a removed document, its text and its chunks
with gone as (
    delete from documents where generation_id = %(generation_id)s and source = %(source)s returning id, chunk_count
), dropped as (
    delete from {partition} where document_id in (select id from gone)
), {revised}
select chunk_count from gone

-- documents_stored: documents that are there, whether they may share chunks, and the chunks that they hold
select d.source, d.id, d.series is not null, c.id, c.also_on, c.chunk_index, c.embed_key, c.content, c.context,
       c.char_start, c.char_end, c.line_start, c.line_end, c.page_start, c.page_end, c.heading_path
  from documents d left join {partition} c on c.document_id = d.id
 where d.generation_id = %(generation_id)s and d.source = any(%(sources)s)

-- chunk_also_on: a kept row whose dates changed; no index holds them, so the row is updated in place
update {partition} set also_on = %(also_on)s where id = %(id)s

-- repeats_withdraw: forget what documents repeat; the chunks that stood for it no longer hold on their dates
with ended as (
    delete from chunk_repeats where document_id = any(%(document_ids)s) returning chunk_id
)
update {partition} c
   set also_on = array(select distinct d.document_date from chunk_repeats r join documents d on d.id = r.document_id
                        where r.chunk_id = c.id and r.document_id <> all(%(document_ids)s) order by 1)
 where c.id in (select chunk_id from ended)

-- repeats_hand_over: chunks that others repeat pass to the earliest of those, under new ids
with heirs as materialized (
    select distinct on (r.chunk_id) r.*, d.source,
           to_hex(nextval('chunk_seq')) || '-' || left(encode(d.content_hash, 'hex'), 8) as new_id
      from chunk_repeats r join {partition} c on c.id = r.chunk_id join documents d on d.id = r.document_id
     where c.document_id = any(%(document_ids)s)
     order by r.chunk_id, d.document_date, d.source, r.chunk_index
), moved as (
    update {partition} c
       set id = h.new_id, document_id = h.document_id, source = h.source, chunk_index = h.chunk_index,
           char_start = h.char_start, char_end = h.char_end, line_start = h.line_start, line_end = h.line_end,
           page_start = h.page_start, page_end = h.page_end,
           also_on = array(select distinct d.document_date from chunk_repeats r join documents d on d.id = r.document_id
                            where r.chunk_id = h.chunk_id
                              and (r.document_id, r.chunk_index) <> (h.document_id, h.chunk_index) order by 1)
      from heirs h where c.id = h.chunk_id
), ended as (
    delete from chunk_repeats r using heirs h where (r.document_id, r.chunk_index) = (h.document_id, h.chunk_index)
), followed as (
    update chunk_repeats r set chunk_id = h.new_id from heirs h
     where r.chunk_id = h.chunk_id and (r.document_id, r.chunk_index) <> (h.document_id, h.chunk_index)
)
update documents d set chunk_count = d.chunk_count + n.chunks
  from (select document_id, count(*) as chunks from heirs group by document_id) n where d.id = n.document_id

-- repeats_add: chunks that earlier documents of the series hold
insert into chunk_repeats (document_id, chunk_index, chunk_id, char_start, char_end, line_start, line_end,
                           page_start, page_end)
select d.id, n.chunk_index, c.id, n.char_start, n.char_end, n.line_start, n.line_end, n.page_start, n.page_end
  from unnest(%(chunk_indexes)b::int4[], %(char_starts)b::int4[], %(char_ends)b::int4[], %(line_starts)b::int4[],
              %(line_ends)b::int4[], %(page_starts)b::int4[], %(page_ends)b::int4[], %(holders)b::text[],
              %(holder_indexes)b::int4[])
       as n(chunk_index, char_start, char_end, line_start, line_end, page_start, page_end, holder, holder_index)
  join documents h on h.generation_id = %(generation_id)s and h.source = n.holder
  join {partition} c on c.document_id = h.id and c.chunk_index = n.holder_index
  join documents d on d.generation_id = %(generation_id)s and d.source = %(source)s

-- document_in: a document's id, and whether it may share chunks with others
select id, series is not null from documents where generation_id = %(generation_id)s and source = %(source)s

-- embeddings_stored: vectors of stored chunks by key, in one generation's partition
select distinct on (embed_key) embed_key, embedding from {partition} where embed_key = any(%(keys)b::bytea[])

-- embeddings_staged: vectors that an interrupted run paid for; since limits them to one generation's life
select embed_key, embedding from embeddings_staged
 where embed_key = any(%(keys)b::bytea[]) and (%(since)s::timestamptz is null or created_at >= %(since)s)

-- embeddings_stage: keep a vector until its chunk is stored
insert into embeddings_staged (embed_key, embedding)
select * from unnest(%(keys)b::bytea[], %(embeddings)b::vector[])
on conflict (embed_key) do update set embedding = excluded.embedding, created_at = now()

-- embeddings_unstage: those whose chunks are stored; what another run is just staging stays for it
delete from embeddings_staged where embed_key in (
    select embed_key from embeddings_staged where embed_key = any(%(keys)b::bytea[]) for update skip locked)

-- embeddings_expire: staged long ago and never stored
delete from embeddings_staged where embed_key in (
    select embed_key from embeddings_staged where created_at < now() - interval '30 days' for update skip locked)

-- generation_created: when a generation began
select created_at from generations where id = %(generation_id)s

-- job_start: who writes a collection, and since when
insert into jobs (collection_id, kind, host, pid) values (%(collection_id)s, %(kind)s, %(host)s, %(pid)s) returning id

-- job_beat: how far a job has come
update jobs set heartbeat_at = now(), done = %(done)s, total = %(total)s where id = %(job_id)s

-- job_finish: how a job ended
update jobs set heartbeat_at = now(), state = %(state)s, error = %(error)s where id = %(job_id)s

-- jobs_lost: running jobs of a collection whose lock is free, so whose process is gone
update jobs set state = 'lost' where collection_id = %(collection_id)s and state = 'running'

-- job_running: who holds a collection
select kind, host, pid, started_at, done, total from jobs
 where collection_id = %(collection_id)s and state = 'running' order by id desc limit 1

-- usage_add: one provider call
insert into usage (day, provider, model, operation, calls, tokens, unknown_calls)
values ((now() at time zone 'utc')::date, %(provider)s, %(model)s, %(operation)s, %(calls)s, %(tokens)s, %(unknown)s)
on conflict (day, provider, model, operation) do update
   set calls = usage.calls + excluded.calls, tokens = usage.tokens + excluded.tokens,
       unknown_calls = usage.unknown_calls + excluded.unknown_calls

-- usage_rows: the tally of all days
select provider, model, operation, sum(calls)::bigint as calls, sum(tokens)::bigint as tokens,
       sum(unknown_calls)::bigint as unknown_calls
  from usage group by provider, model, operation order by provider, model, operation

-- usage_since: the first day of the tally
select min(day) from usage

-- search_settings: for this transaction only, which holds behind any pooler
select set_config('hnsw.ef_search', %(ef_search)s, true), set_config('hnsw.iterative_scan', 'strict_order', true)

-- search_vector: nearest chunks by the half-precision index, rescored on the full vector
with candidates as materialized (
    select id, embedding from {partition}
     order by embedding::halfvec({dims}) <=> %(vector)s::vector::halfvec({dims}) limit %(candidates)s
)
select id, 1 - (embedding <=> %(vector)s) as cosine_score from candidates
 order by embedding <=> %(vector)s, id limit %(limit)s

-- search_vector_exact: the same without an index, for dimensions that none can hold
select id, 1 - (embedding <=> %(vector)s) as cosine_score from {partition}
 order by embedding <=> %(vector)s, id limit %(limit)s

-- search_text: BM25 (k1 1.2, b 0.75) over the chunks that hold one of the query's rarer terms
with totals as (
    select chunk_count::float8 as chunks, greatest(char_total::float8 / greatest(chunk_count, 1), 1) as mean_length
      from generations where id = %(generation_id)s
),
-- A term's weight is ln(1 + (N - df + 0.5) / (df + 0.5)); "before" adds up how many chunks rarer terms occur in.
terms as (
    select asked.lexeme, df, ln(1 + greatest(totals.chunks - df + 0.5, 0.5) / (df + 0.5)) as idf,
           sum(df) over (order by df, asked.lexeme) - df as before
      from unnest(tsvector_to_array(to_tsvector(%(language)s::text::regconfig, %(query)s))) as asked(lexeme)
      left join term_stats t on t.generation_id = %(generation_id)s and t.lexeme = asked.lexeme
     cross join totals
     cross join lateral (select coalesce(t.chunk_count, 0) as df) d
),
-- Chunks that hold only common terms cannot win against those that hold rare ones: the budget bounds the work.
needed as (
    select string_agg('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery as query
      from terms where before = 0 or before + df <= %(budget)s
)
select c.id, found.bm25_score
  from {partition} c
 cross join totals
  join needed on c.tsv @@ needed.query
 cross join lateral (
    select sum(terms.idf * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * (c.char_end - c.char_start) / totals.mean_length))) as bm25_score
      from unnest(c.tsv) as held(lexeme, positions)
      join terms on terms.lexeme = held.lexeme
     cross join lateral (select array_length(held.positions, 1) as tf) n
 ) found
 order by found.bm25_score desc, c.id limit %(limit)s

-- chunks_by_id: what a hit shows; cosine_score is null where there is no query vector
select c.id, c.source, d.title, c.chunk_index, c.content, c.heading_path, c.char_start, c.char_end, c.line_start,
       c.line_end, c.page_start, c.page_end, c.also_on,
       case when %(vector)s::vector is not null then 1 - (c.embedding <=> %(vector)s::vector) end as cosine_score
  from {partition} c join documents d on d.id = c.document_id
 where c.id = any(%(ids)s)

-- text_span: a document's text between two offsets
select substr(t.text, %(start)s + 1, %(length)s)
  from document_texts t join documents d on d.id = t.document_id
 where d.generation_id = %(generation_id)s and d.source = %(source)s
