-- The claim ledger. One text for both databases: text, bigint, boolean and bytea only; times are
-- microseconds since the epoch bound by the program, 0 for none; absent text is empty text, so that unique
-- keys hold no null.
-- +goose Up
create table claims (
    id               text    not null primary key,
    source           text    not null,
    account          text    not null default '',
    idempotency_key  text    not null,
    step             text    not null default '',
    rev              bigint  not null default 1,
    kind             text    not null,
    key_basis        text    not null,
    status           text    not null,
    attempt          bigint  not null default 0,
    first_at         bigint  not null,
    due_at           bigint  not null default 0,
    wait_until       bigint  not null default 0,
    owner            text    not null default '',
    workflow_id      text    not null default '',
    workflow_name    text    not null default '',
    execution_id     text    not null default '',
    node             text    not null default '',
    caller_key       text    not null default '',
    grant_no         bigint  not null default 0,
    void_grant       bigint  not null default 0,
    done_grant       bigint  not null default 0,
    lease_until      bigint  not null default 0,
    secret           bytea   not null,
    look_no          bigint  not null default 0,
    look_owner       text    not null default '',
    look_until       bigint  not null default 0,
    looks            bigint  not null default 0,
    next_look        bigint  not null default 0,
    ever_unknown     boolean not null default false,
    unknown_since    bigint  not null default 0,
    provider_key     text    not null,
    window_from      bigint  not null default 0,
    payload          bytea   not null,
    payload_hash     bytea   not null,
    entity           text    not null default '',
    version_kind     bigint  not null default 0,
    version_rank     bigint  not null default 0,
    destination      text    not null default '',
    reference        text    not null default '',
    result_id        text    not null default '',
    result           bytea   not null,
    completed_at     bigint  not null default 0,
    moves            bigint  not null default 1,
    -- The newest transition; when it is overwritten, the older one goes to the history.
    last_at          bigint  not null,
    last_from        text    not null default '',
    last_attempt     bigint  not null default 0,
    last_owner       text    not null default '',
    last_execution   text    not null default '',
    last_http_status bigint  not null default 0,
    last_class       text    not null default '',
    last_message     text    not null default '',
    last_by          text    not null default '',
    last_reason      text    not null default '',
    constraint claims_status check (status in ('pending', 'processing', 'completed', 'failed', 'unknown', 'review', 'stale')),
    constraint claims_kind check (kind in ('event', 'effect'))
);

create unique index claims_key on claims (source, account, idempotency_key, step);
create unique index claims_reference on claims (source, reference) where reference <> '';
-- What the sweeper and the reconciler look for; few rows at any time.
create index claims_leased on claims (lease_until) where status = 'processing';
create index claims_unknown on claims (unknown_since) where status = 'unknown';
create index claims_entity on claims (source, account, entity) where entity <> '';
create index claims_open on claims (status, id) where status in ('pending', 'failed', 'unknown', 'review', 'stale');

create table entities (
    source       text not null,
    account      text not null,
    entity       text not null,
    done_integer bigint, -- the newest completed integer version
    done_time    bigint, -- the newest completed time version, in nanoseconds
    primary key (source, account, entity)
);

create table history (
    claim_id     text   not null,
    entry        text   not null,
    at           bigint not null,
    from_status  text   not null default '',
    to_status    text   not null default '',
    attempt      bigint not null default 0,
    owner        text   not null default '',
    execution_id text   not null default '',
    http_status  bigint not null default 0,
    error_class  text   not null default '',
    message      text   not null default '',
    by_name      text   not null default '',
    reason       text   not null default '',
    primary key (claim_id, entry)
);

create index history_at on history (at, claim_id, entry);

create table pauses (
    scope         text   not null primary key,
    authorized_by text   not null,
    reason        text   not null,
    since         bigint not null,
    until         bigint not null default 0
);
