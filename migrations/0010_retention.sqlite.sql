-- Retention may remove what is older than the horizon that it has written down; everything else in the history stays
-- as it is, whoever asks.
-- +goose Up
drop trigger history_no_delete;
-- +goose StatementBegin
create trigger history_no_delete before delete on history
when old.at >= coalesce((select cast(value as integer) from marks where name = 'history_horizon'), 0)
begin
    select raise(abort, 'history is append-only');
end;
-- +goose StatementEnd
