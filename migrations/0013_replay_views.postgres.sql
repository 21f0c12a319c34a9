-- Views that show real timestamps to people.
-- +goose Up
create view replays_readable as
select id, status, paused_from, selector, max_letters, sample_size, max_concurrency, rate_per_minute, authorized_by, approved_by, reason,
       matched, held_unknown, held_superseded, held_completed, holdfast_time(created_at) as created_at, holdfast_time(updated_at) as updated_at,
       holdfast_time(ended_at) as ended_at
from replays;

create view replay_letters_readable as
select replay_id, n, letter_id, sample, state, held, settled_no
from replay_letters;
