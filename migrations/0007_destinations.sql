-- What the limits of destinations have counted: one row per destination, changed under its lock.
-- +goose Up
create table destinations (
    name        text   not null primary key,
    grants      text   not null default '', -- when work started lately, as TIME*COUNT, oldest first
    failures    bigint not null default 0,  -- in a row, while the circuit is closed
    turned_at   bigint not null default 0,  -- when the circuit last opened or closed
    open_until  bigint not null default 0,  -- 0 while the circuit is closed
    probe_until bigint not null default 0   -- when the lease of the probe ends
);

-- What is under way at a destination. A claim without one is not in it.
create index claims_destination on claims (destination, lease_until) where status = 'processing' and destination <> '';
create index letters_destination on letters (destination, lease_until) where status = 'replaying' and destination <> '';
