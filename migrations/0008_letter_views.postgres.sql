-- Views that show real timestamps to people.
-- +goose Up
create view letters_readable as
select id, status, reason, class, retryable, outcome, attempt_count, max_attempts, holdfast_time(next_retry_at) as next_retry_at,
       workflow_id, workflow_name, execution_id, node, http_status, summary, message, source, account, idempotency_key, destination,
       play, provider_key, claim_id, holdfast_time(lease_until) as lease_expires_at, holdfast_time(created_at) as created_at,
       holdfast_time(updated_at) as updated_at
from letters;

create view letter_entries_readable as
select letter_id, n, holdfast_time(at) as at, kind, to_status, attempt, execution_id, workflow_id, node, http_status, class, message, owner, by_name, reason
from letter_entries;
