-- The whole first schema: collections point at a live generation, chunks are partitioned by generation.

create extension if not exists vector;

-- One database-wide counter: a collection's revision changes with every committed write to it.
create sequence revision_seq as bigint;

-- Ids of chunks are made from this and are never used again, also across generations.
create sequence chunk_seq as bigint;

create table collections (
    id                  integer generated always as identity primary key,
    name                text not null,
    live_generation_id  integer,
    revision            bigint not null default nextval('revision_seq'),
    docs_root           text,
    pending_removals    integer not null default 0,
    last_ingest_at      timestamptz,
    created_at          timestamptz not null default now(),
    constraint collections_name_key unique (name),
    constraint collections_name_check check (char_length(name) between 1 and 200)
);

-- A generation is one embedding of a collection: whatever decides its chunks and vectors is a column here.
create table generations (
    id                  integer generated always as identity primary key,
    collection_id       integer not null references collections on delete cascade,
    state               text not null,
    provider            text not null,
    endpoint            text not null,
    model               text not null,
    dims                integer not null,
    document_prefix     text not null,
    chunk_size_chars    integer not null,
    chunk_overlap_chars integer not null,
    pipeline_version    integer not null,
    text_language       text not null,
    -- A forced rebuild pays for every text again, so it looks for reusable vectors only in itself.
    forced              boolean not null default false,
    chunk_count         bigint not null default 0,
    char_total          bigint not null default 0,
    created_at          timestamptz not null default now(),
    -- building: filled beside the live one; live: answers queries; retired: waits for its partition's drop.
    constraint generations_state_check check (state in ('building', 'live', 'retired'))
);
create unique index generations_one_live on generations (collection_id) where state = 'live';
create unique index generations_one_building on generations (collection_id) where state = 'building';

alter table collections
    add constraint collections_live_generation_fkey foreign key (live_generation_id) references generations;

create table documents (
    id              bigint generated always as identity primary key,
    generation_id   integer not null references generations on delete cascade,
    source          text not null,
    -- The file's path as the file system spells it, relative to the root.
    raw_path        bytea not null,
    -- indexed: all of it; partial: some pages had no text; skipped: none of it, for skip_reason.
    status          text not null,
    skip_reason     text,
    -- What the skip depended on (limits, versions); a run under other conditions tries the file again.
    skip_conditions text,
    content_hash    bytea not null,
    mtime_ns        bigint not null,
    size_bytes      bigint not null,
    title           text,
    document_date   date,
    tags            text[] not null default array[]::text[],
    -- The dated series whose repeated chunks this document shares, null where it stands alone.
    series          text,
    pages           integer,
    chunk_count     integer not null default 0,
    indexed_at      timestamptz not null default now(),
    constraint documents_source_key unique (generation_id, source),
    constraint documents_source_check check (octet_length(source) <= 1024),
    constraint documents_status_check check (status in ('indexed', 'partial', 'skipped'))
);

-- The extracted text that every span of a document's chunks refers to.
create table document_texts (
    document_id bigint primary key references documents on delete cascade,
    text        text not null
);

-- Partitioned by generation: each has its own dimension, its own HNSW index, and goes by one drop.
-- embedding has no size here; a partition's check constraint fixes it.
create table doc_chunks (
    id              text not null,
    generation_id   integer not null,
    collection      text not null,
    document_id     bigint not null,
    source          text not null,
    chunk_index     integer not null,
    content         text not null,
    -- Title and heading path, put in front of the chunk for embedding and full text; never shown as content.
    context         text not null default '',
    embed_key       bytea not null,
    embedding       vector not null,
    tsv             tsvector generated always as (to_tsvector('english', context || content)) stored,
    char_start      integer not null,
    char_end        integer not null,
    line_start      integer not null,
    line_end        integer not null,
    page_start      integer,
    page_end        integer,
    heading_path    text[] not null,
    -- Dates of a document series on which this chunk also held, word for word.
    also_on         date[] not null default array[]::date[],
    constraint doc_chunks_pkey primary key (generation_id, id)
) partition by list (generation_id);
create index doc_chunks_document on doc_chunks (document_id, chunk_index);
create index doc_chunks_embed_key on doc_chunks (embed_key);
create index doc_chunks_tsv on doc_chunks using gin (tsv);

-- A chunk of a dated series that an earlier document already has, word for word and under the same heading:
-- where it is in this document, and which stored chunk stands for it. When that one's document is edited
-- or removed, the earliest document that repeats it takes it over.
create table chunk_repeats (
    document_id     bigint not null references documents on delete cascade,
    chunk_index     integer not null,
    chunk_id        text not null,
    char_start      integer not null,
    char_end        integer not null,
    line_start      integer not null,
    line_end        integer not null,
    page_start      integer,
    page_end        integer,
    primary key (document_id, chunk_index)
);
create index chunk_repeats_chunk on chunk_repeats (chunk_id);

-- Vectors of a run that is under way, written as each answer returns and cleared once stored: a run that
-- is killed pays for nothing twice.
create table embeddings_staged (
    embed_key   bytea primary key,
    embedding   vector not null,
    created_at  timestamptz not null default now()
);

-- In how many chunks of a generation a lexeme occurs; refreshed at the end of an ingest, for BM25.
create table term_stats (
    generation_id   integer not null references generations on delete cascade,
    lexeme          text not null,
    chunk_count     integer not null,
    primary key (generation_id, lexeme)
);

create table jobs (
    id              bigint generated always as identity primary key,
    collection_id   integer not null references collections on delete cascade,
    kind            text not null,
    host            text not null,
    pid             integer not null,
    started_at      timestamptz not null default now(),
    heartbeat_at    timestamptz not null default now(),
    done            integer not null default 0,
    total           integer,
    state           text not null default 'running',
    error           text,
    constraint jobs_state_check check (state in ('running', 'done', 'failed', 'interrupted', 'lost'))
);
create index jobs_collection on jobs (collection_id, started_at desc);

-- A local tally of what was sent to providers, by day (UTC). unknown_calls: no whole answer, so no count.
create table usage (
    day             date not null,
    provider        text not null,
    model           text not null,
    operation       text not null,
    calls           bigint not null,
    tokens          bigint not null,
    unknown_calls   bigint not null default 0,
    primary key (day, provider, model, operation)
);
