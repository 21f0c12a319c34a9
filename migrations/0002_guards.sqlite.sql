-- The history is append-only: the database itself refuses to change it. Views show readable times to people.
-- +goose Up
-- +goose StatementBegin
create trigger history_no_update before update on history
begin
    select raise(abort, 'history is append-only');
end;
-- +goose StatementEnd
-- INSERT OR REPLACE deletes without asking the trigger for deletes.
-- +goose StatementBegin
create trigger history_no_replace before insert on history
when exists (select 1 from history where claim_id = new.claim_id and entry = new.entry)
begin
    select raise(abort, 'history is append-only');
end;
-- +goose StatementEnd
-- +goose StatementBegin
create trigger history_no_delete before delete on history
begin
    select raise(abort, 'history is append-only');
end;
-- +goose StatementEnd

create view claims_readable as
select id, source, account, idempotency_key, step, kind, status, attempt, owner, workflow_id, workflow_name, execution_id, node,
       case first_at when 0 then null else strftime('%Y-%m-%dT%H:%M:%fZ', first_at / 1000000.0, 'unixepoch') end as first_seen_at,
       case lease_until when 0 then null else strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000000.0, 'unixepoch') end as lease_expires_at,
       case unknown_since when 0 then null else strftime('%Y-%m-%dT%H:%M:%fZ', unknown_since / 1000000.0, 'unixepoch') end as unknown_since,
       case completed_at when 0 then null else strftime('%Y-%m-%dT%H:%M:%fZ', completed_at / 1000000.0, 'unixepoch') end as completed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', last_at / 1000000.0, 'unixepoch') as changed_at, last_from as changed_from, last_by as changed_by,
       last_message as message, last_reason as reason, entity, destination, reference, provider_key, result_id,
       cast(result as text) as result
from claims;

create view history_readable as
select claim_id, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000000.0, 'unixepoch') as at, from_status, to_status, attempt, owner,
       execution_id, http_status, error_class, message, by_name, reason
from history;
