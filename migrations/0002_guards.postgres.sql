-- The history is append-only: the database itself refuses to change it. Views show real timestamps to people.
-- +goose Up
-- +goose StatementBegin
create function history_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'history is append-only' using errcode = 'insufficient_privilege';
end
$$;
-- +goose StatementEnd
create trigger history_no_change before update or delete on history
    for each row execute function history_append_only();
create trigger history_no_truncate before truncate on history
    for each statement execute function history_append_only();

-- +goose StatementBegin
create function holdfast_time(micros bigint) returns timestamptz language sql immutable as $$
    select case when micros = 0 then null else 'epoch'::timestamptz + micros * interval '1 microsecond' end
$$;
-- +goose StatementEnd

create view claims_readable as
select id, source, account, idempotency_key, step, kind, status, attempt, owner, workflow_id, workflow_name, execution_id, node,
       holdfast_time(first_at) as first_seen_at, holdfast_time(lease_until) as lease_expires_at,
       holdfast_time(unknown_since) as unknown_since, holdfast_time(completed_at) as completed_at,
       holdfast_time(last_at) as changed_at, last_from as changed_from, last_by as changed_by, last_message as message,
       last_reason as reason, entity, destination, reference, provider_key, result_id,
       convert_from(result, 'UTF8') as result
from claims;

create view history_readable as
select claim_id, holdfast_time(at) as at, from_status, to_status, attempt, owner, execution_id, http_status, error_class,
       message, by_name, reason
from history;

create view pauses_readable as
select scope, authorized_by, reason, holdfast_time(since) as since, holdfast_time(until) as until
from pauses;

create view entities_readable as
select source, account, entity, done_integer,
       'epoch'::timestamptz + (done_time / 1000) * interval '1 microsecond' as done_time
from entities;
