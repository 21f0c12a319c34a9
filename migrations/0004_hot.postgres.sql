-- What almost every claim does, as functions: a backend keeps the plan of a function's statements, whichever client
-- comes to it through a pooler. Planning costs a lone claim a third of its time, and a batch of duplicates more than
-- reading its rows.
-- +goose Up
-- One plain claim: whether it is there now. Not while its key exists, nor while any pause is in force.
-- +goose StatementBegin
create function holdfast_grant_one(
    at bigint, new_id text, new_source text, new_account text, new_key text, new_step text, new_kind text, new_basis text,
    first bigint, new_owner text, workflow text, name_of_workflow text, execution text, new_node text, caller text,
    lease bigint, new_secret bytea, new_provider_key text, new_payload bytea, new_hash bytea, new_destination text, new_result bytea
) returns boolean language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
    insert into claims (id, source, account, idempotency_key, step, kind, key_basis, first_at, owner, workflow_id, workflow_name,
        execution_id, node, caller_key, lease_until, secret, provider_key, payload, payload_hash, destination, result,
        status, attempt, grant_no, window_from, last_at, last_attempt, last_owner, last_execution, last_by)
    select new_id, new_source, new_account, new_key, new_step, new_kind, new_basis, first, new_owner, workflow, name_of_workflow,
        execution, new_node, caller, lease, new_secret, new_provider_key, new_payload, new_hash, new_destination, new_result,
        'processing', 1, 1, first, first, 1, new_owner, execution, caller
    where not exists (select 1 from pauses p where p.until = 0 or p.until > at)
    on conflict (source, account, idempotency_key, step) do nothing;
    return found;
end
$$;
-- +goose StatementEnd

-- The claims that stand under these keys. Always by the index: the plan is kept, and may have been made while the
-- table was empty.
-- +goose StatementBegin
create function holdfast_find(sources text[], accounts text[], keys text[], steps text[])
returns setof claims language plpgsql stable rows 100 set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    return query
    select c.* from unnest(sources, accounts, keys, steps) as u (source, account, idempotency_key, step)
    join claims c using (source, account, idempotency_key, step);
end
$$;
-- +goose StatementEnd
