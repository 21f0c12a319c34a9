-- Alerts on their way to people. One row per target and group: what is not sent yet is one message with a count.
-- Conventions as in the ledger: text and bigint only, times in microseconds, 0 and empty text for none.
-- +goose Up
create table outbox (
    target      text   not null, -- which address, as a hash of it; empty: the log
    grp         text   not null, -- equal alerts are one group
    unsent      bigint not null default 0, -- alerts that the next message speaks for
    leased      bigint not null default 0, -- how many of them the message speaks for that is being sent
    lease_no    bigint not null default 0,
    lease_until bigint not null default 0,
    attempts    bigint not null default 0, -- to send what is unsent
    title       text   not null, -- of the first that is unsent
    body        text   not null,
    path        text   not null,
    first_at    bigint not null,
    last_title  text   not null, -- of the newest
    last_body   text   not null,
    last_path   text   not null,
    last_at     bigint not null,
    spacing     bigint not null, -- between two messages of the group
    due_at      bigint not null,
    due_by      bigint not null, -- more alerts of the group put due_at off, but not past this
    sent_at     bigint not null default 0,
    given_up_at bigint not null default 0,
    primary key (target, grp)
);

create index outbox_due on outbox (target, due_at, grp) where unsent > 0;

-- Sources that are to be heard from: when their newest claim was made.
create table heard (
    source     text   not null primary key,
    at         bigint not null,
    alarmed_at bigint not null default 0, -- when its silence was alarmed; 0: not since it was heard
    watched_at bigint not null            -- when somebody was last there to hear it
);
