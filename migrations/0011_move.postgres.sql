-- What moves claims, in a batch: the update of rows that are still at the revision they were decided from, and the
-- history of those. As a function, since a backend keeps its plan: planning so wide a statement anew cost a receipt
-- more than carrying it out.
-- +goose Up
-- +goose StatementBegin
create function holdfast_move(
    ids text[], bases bigint[], n_rev bigint[], n_status text[], n_attempt bigint[], n_due_at bigint[], n_wait_until bigint[],
    n_owner text[], n_workflow_id text[], n_workflow_name text[], n_execution_id text[], n_node text[], n_caller_key text[],
    n_grant_no bigint[], n_void_grant bigint[], n_done_grant bigint[], n_lease_until bigint[], n_look_no bigint[], n_look_owner text[],
    n_look_until bigint[], n_looks bigint[], n_next_look bigint[], n_ever_unknown boolean[], n_unknown_since bigint[],
    n_provider_key text[], n_window_from bigint[], n_entity text[], n_version_kind bigint[], n_version_rank bigint[],
    n_destination text[], n_reference text[], n_result_id text[], n_result bytea[], n_completed_at bigint[], n_moves bigint[],
    n_last_at bigint[], n_last_from text[], n_last_attempt bigint[], n_last_owner text[], n_last_execution text[],
    n_last_http_status bigint[], n_last_class text[], n_last_message text[], n_last_by text[], n_last_reason text[], h_claim_id text[],
    h_entry text[], h_at bigint[], h_from_status text[], h_to_status text[], h_attempt bigint[], h_owner text[], h_execution_id text[],
    h_http_status bigint[], h_error_class text[], h_message text[], h_by_name text[], h_reason text[]
) returns setof text language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    return query
    with written as (
        update claims as c set
            rev = u.rev, status = u.status, attempt = u.attempt, due_at = u.due_at, wait_until = u.wait_until, owner = u.owner,
            workflow_id = u.workflow_id, workflow_name = u.workflow_name, execution_id = u.execution_id, node = u.node,
            caller_key = u.caller_key, grant_no = u.grant_no, void_grant = u.void_grant, done_grant = u.done_grant,
            lease_until = u.lease_until, look_no = u.look_no, look_owner = u.look_owner, look_until = u.look_until, looks = u.looks,
            next_look = u.next_look, ever_unknown = u.ever_unknown, unknown_since = u.unknown_since, provider_key = u.provider_key,
            window_from = u.window_from, entity = u.entity, version_kind = u.version_kind, version_rank = u.version_rank,
            destination = u.destination, reference = u.reference, result_id = u.result_id, result = u.result,
            completed_at = u.completed_at, moves = u.moves, last_at = u.last_at, last_from = u.last_from,
            last_attempt = u.last_attempt, last_owner = u.last_owner, last_execution = u.last_execution,
            last_http_status = u.last_http_status, last_class = u.last_class, last_message = u.last_message, last_by = u.last_by,
            last_reason = u.last_reason
        from unnest(
            ids, bases, n_rev, n_status, n_attempt, n_due_at, n_wait_until, n_owner, n_workflow_id, n_workflow_name, n_execution_id,
            n_node, n_caller_key, n_grant_no, n_void_grant, n_done_grant, n_lease_until, n_look_no, n_look_owner, n_look_until,
            n_looks, n_next_look, n_ever_unknown, n_unknown_since, n_provider_key, n_window_from, n_entity, n_version_kind,
            n_version_rank, n_destination, n_reference, n_result_id, n_result, n_completed_at, n_moves, n_last_at, n_last_from,
            n_last_attempt, n_last_owner, n_last_execution, n_last_http_status, n_last_class, n_last_message, n_last_by, n_last_reason
        ) as u (
            id, base, rev, status, attempt, due_at, wait_until, owner, workflow_id, workflow_name, execution_id, node, caller_key,
            grant_no, void_grant, done_grant, lease_until, look_no, look_owner, look_until, looks, next_look, ever_unknown,
            unknown_since, provider_key, window_from, entity, version_kind, version_rank, destination, reference, result_id, result,
            completed_at, moves, last_at, last_from, last_attempt, last_owner, last_execution, last_http_status, last_class,
            last_message, last_by, last_reason
        )
        where c.id = u.id and c.rev = u.base
        returning c.id as moved
    ), kept as (
        insert into history (claim_id, entry, at, from_status, to_status, attempt, owner, execution_id, http_status, error_class, message, by_name, reason)
        select h.* from unnest(
            h_claim_id, h_entry, h_at, h_from_status, h_to_status, h_attempt, h_owner, h_execution_id, h_http_status, h_error_class,
            h_message, h_by_name, h_reason
        ) as h (claim_id, entry, at, from_status, to_status, attempt, owner, execution_id, http_status, error_class, message, by_name, reason)
        join written on written.moved = h.claim_id
        on conflict (claim_id, entry) do nothing
    )
    select moved from written;
end
$$;
-- +goose StatementEnd
