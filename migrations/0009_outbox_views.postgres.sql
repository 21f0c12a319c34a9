-- Views that show real timestamps to people.
-- +goose Up
create view outbox_readable as
select target, grp, unsent, attempts, title, body, path, holdfast_time(first_at) as first_at, holdfast_time(last_at) as last_at,
       holdfast_time(due_at) as due_at, holdfast_time(lease_until) as lease_expires_at, holdfast_time(sent_at) as sent_at,
       holdfast_time(given_up_at) as given_up_at
from outbox;

create view heard_readable as
select source, holdfast_time(at) as at, holdfast_time(alarmed_at) as alarmed_at, holdfast_time(watched_at) as watched_at
from heard;
