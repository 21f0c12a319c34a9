-- Dead letters: failures that are kept until they are settled. Conventions as in the ledger: text, bigint, boolean and
-- bytea only, times in microseconds, 0 and empty text for none.
-- +goose Up
create table letters (
    id              text    not null primary key,
    identity        text    not null, -- what makes another report the same letter's
    rev             bigint  not null default 1,
    status          text    not null,
    reason          text    not null default '',
    class           text    not null default '',
    retryable       boolean not null default false,
    outcome         text    not null default '',
    attempt_count   bigint  not null default 1,
    max_attempts    bigint  not null default 6,
    next_retry_at   bigint  not null default 0,
    backoff         bigint  not null default 0,
    escalated       boolean not null default false,
    reports         bigint  not null default 0,
    safe_to_repeat  boolean not null default false,
    summary         text    not null default '',
    message         text    not null default '',
    workflow_id     text    not null default '',
    workflow_name   text    not null default '',
    execution_id    text    not null default '',
    node            text    not null default '',
    http_status     bigint  not null default 0,
    method          text    not null default '',
    url             text    not null default '',
    claim_id        text    not null default '',
    source          text    not null default '',
    account         text    not null default '',
    idempotency_key text    not null default '',
    step            text    not null default '',
    destination     text    not null default '',
    play            text    not null default '',
    provider_key    text    not null default '',
    payload         bytea   not null,
    input_state     text    not null default '',
    error           bytea   not null,
    secret          bytea   not null,
    lease           bigint  not null default 0,
    lease_owner     text    not null default '',
    lease_until     bigint  not null default 0,
    void_lease      bigint  not null default 0,
    last_verb       text    not null default '',
    last_result     bytea   not null,
    replay_id       text    not null default '',
    created_at      bigint  not null,
    updated_at      bigint  not null,
    constraint letters_status check (status in ('queued', 'replaying', 'resolved', 'dead', 'discarded'))
);

create unique index letters_identity on letters (identity);
-- What a worker asks for, oldest first, of all and of one workflow or source.
create index letters_due on letters (next_retry_at, id) where status = 'queued';
create index letters_due_workflow on letters (workflow_id, next_retry_at, id) where status = 'queued';
create index letters_due_source on letters (source, next_retry_at, id) where status = 'queued';
create index letters_due_destination on letters (destination, next_retry_at, id) where status = 'queued' and destination <> '';
create index letters_leased on letters (lease_until, id) where status = 'replaying';
create index letters_status_id on letters (status, id);
create index letters_claim on letters (claim_id) where claim_id <> '';
create index letters_execution on letters (execution_id) where execution_id <> '';
-- Letters whose worker said that all was done, before their event said so.
create index letters_replayed on letters (updated_at, id) where status = 'resolved' and reason = 'replayed' and claim_id <> '';
create index letters_wanted on letters (id) where input_state = 'wanted';

-- What happened to a letter: reports, attempts, acts of people.
create table letter_entries (
    letter_id    text   not null,
    n            bigint not null,
    at           bigint not null,
    kind         text   not null,
    to_status    text   not null default '',
    attempt      bigint not null default 0,
    execution_id text   not null default '',
    workflow_id  text   not null default '',
    node         text   not null default '',
    http_status  bigint not null default 0,
    class        text   not null default '',
    message      text   not null default '',
    owner        text   not null default '',
    by_name      text   not null default '',
    reason       text   not null default '',
    digest       bytea  not null,
    primary key (letter_id, n)
);

create index letter_entries_digest on letter_entries (letter_id, digest);
create index letter_entries_execution on letter_entries (execution_id) where execution_id <> '';

-- Named positions, such as how far n8n's executions were looked through.
create table marks (
    name  text not null primary key,
    value text not null
);

-- How many of a claim's transitions its letter knows of: what a letter must still be made or brought up to date for.
alter table claims add column lettered bigint not null default 0;
create index claims_unlettered on claims (id) where kind = 'event' and status = 'failed' and lettered < moves;
create index claims_waiting on claims (id) where kind = 'event' and status = 'pending' and lettered < moves;
create index claims_execution on claims (execution_id) where execution_id <> '';
create index history_execution on history (execution_id) where execution_id <> '';
