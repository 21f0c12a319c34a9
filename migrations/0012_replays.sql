-- Replays: bounded, frozen sets of letters that are run again under a person's name. Conventions as in the ledger.
-- +goose Up
create table replays (
    id               text   not null primary key,
    identity         text   not null, -- the same for an equal selector and limit
    rev              bigint not null default 1,
    status           text   not null,
    paused_from      text   not null default '',
    selector         text   not null,
    max_letters      bigint not null,
    sample_size      bigint not null,
    max_concurrency  bigint not null,
    rate_per_minute  bigint not null default 0,
    authorized_by    text   not null,
    approved_by      text   not null default '',
    resumed_by       text   not null default '', -- who let the sample go on after a pause
    reason           text   not null,
    expected_effects bytea  not null,
    caller_key       text   not null default '',
    matched          bigint not null default 0,
    held_unknown     bigint not null default 0,
    held_superseded  bigint not null default 0,
    held_completed   bigint not null default 0,
    created_at       bigint not null,
    updated_at       bigint not null,
    ended_at         bigint not null default 0,
    constraint replays_status check (status in ('sampling', 'awaiting_approval', 'running', 'paused', 'done', 'cancelled', 'stopped'))
);

create unique index replays_open on replays (identity) where ended_at = 0;
create index replays_status_id on replays (status, id);

create table replay_letters (
    replay_id  text    not null,
    n          bigint  not null, -- its place; the sample comes first
    letter_id  text    not null,
    sample     boolean not null,
    state      text    not null,
    held       text    not null default '',
    settled_no bigint  not null default 0, -- the how many-th attempt that ended; 0 for none
    primary key (replay_id, n),
    constraint replay_letters_state check (state in ('waiting', 'active', 'resolved', 'failed', 'held', 'left', 'released'))
);

create unique index replay_letters_letter on replay_letters (letter_id, replay_id);
create index replay_letters_state on replay_letters (replay_id, state, n);
create index replay_letters_settled on replay_letters (replay_id, settled_no) where settled_no > 0;

-- Which replay what happened to a letter belongs to.
alter table letter_entries add column replay_id text not null default '';
create index letter_entries_started on letter_entries (replay_id, at) where replay_id <> '' and kind = 'lease';
create index letters_replay on letters (replay_id) where replay_id <> '';
