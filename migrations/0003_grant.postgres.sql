-- The plain claim's batch insert as a function: a backend keeps the plan of a function's statements, whichever
-- client comes to it through a pooler, so a batch costs one short call instead of planning a wide statement anew.
-- Rows whose key exists are left out; while any pause is in force nothing is inserted and the caller looks closer.
-- +goose Up
-- +goose StatementBegin
create function holdfast_grant(
    at bigint, ids text[], sources text[], accounts text[], keys text[], steps text[], kinds text[], bases text[],
    firsts bigint[], owners text[], workflows text[], workflow_names text[], executions text[], nodes text[], callers text[],
    leases bigint[], secrets bytea[], provider_keys text[], payloads bytea[], hashes bytea[], destinations text[], results bytea[]
) returns setof text language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
    return query
    insert into claims (id, source, account, idempotency_key, step, kind, key_basis, first_at, owner, workflow_id, workflow_name,
        execution_id, node, caller_key, lease_until, secret, provider_key, payload, payload_hash, destination, result,
        status, attempt, grant_no, window_from, last_at, last_attempt, last_owner, last_execution, last_by)
    select u.id, u.source, u.account, u.idempotency_key, u.step, u.kind, u.key_basis, u.first_at, u.owner, u.workflow_id, u.workflow_name,
        u.execution_id, u.node, u.caller_key, u.lease_until, u.secret, u.provider_key, u.payload, u.payload_hash, u.destination, u.result,
        'processing', 1, 1, u.first_at, u.first_at, 1, u.owner, u.execution_id, u.caller_key
    from unnest(ids, sources, accounts, keys, steps, kinds, bases, firsts, owners, workflows, workflow_names, executions, nodes, callers,
        leases, secrets, provider_keys, payloads, hashes, destinations, results)
        as u (id, source, account, idempotency_key, step, kind, key_basis, first_at, owner, workflow_id, workflow_name,
        execution_id, node, caller_key, lease_until, secret, provider_key, payload, payload_hash, destination, result)
    where not exists (select 1 from pauses p where p.until = 0 or p.until > at)
    on conflict (source, account, idempotency_key, step) do nothing
    returning claims.id;
end
$$;
-- +goose StatementEnd
