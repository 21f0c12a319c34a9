-- Retention may remove what is older than the horizon that it has written down; everything else in the history stays
-- as it is, whoever asks.
-- +goose Up
-- +goose StatementBegin
create or replace function history_append_only() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and old.at < (select cast(value as bigint) from marks where name = 'history_horizon') then
        return old;
    end if;
    raise exception 'history is append-only' using errcode = 'insufficient_privilege';
end
$$;
-- +goose StatementEnd
