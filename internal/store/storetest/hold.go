package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/deadletter"
	"holdfast/internal/ledger"
	"holdfast/internal/store"
)

// ugly are texts of JSON that databases and languages like to change.
var ugly = []string{
	`{"a":"x\u0000y"}`, `{"a\u0000":1}`, `{"a":"\ud800"}`, `{"a":"\udc00\ud800"}`, `{"a":"literal \\u0000 text"}`, `"\ud83d\ude00"`, `"😀"`,
	`{"id":9007199254740993}`, `{"id":1e999999999}`, `[1.0,1e0,0.10,-0]`, "{ \"b\" : 1 ,\n\t\"a\" : 2 }\n", `"\\x00\\377"`, `"\\"`, `""`, `{}`, `"NULL"`,
	`{"sql":"'; drop table claims; --","q":"?","d":"$1"}`, `"` + strings.Repeat("é", 20_000) + `"`, `"\u007f\u0080"`, "\"\u2028\"",
}

// exactBytes: payloads and results come back as the bytes that were received, through every state.
func exactBytes(w *world) {
	for i, text := range ugly {
		r := w.event(fmt.Sprint("plain", i), payload(text))
		if i%2 == 1 {
			r = w.effect(fmt.Sprint("entity", i), payload(text), of(fmt.Sprint("e", i), "1"))
		}
		c := w.grant(r)
		w.carries(c.ID, text, "")
		w.ended(markUnknown(worker(c)), ledger.Unknown)
		w.pass(time.Minute)
		found := w.looked("rec")
		if string(found.Payload) != text {
			w.Errorf("the reconciler got %.80q, want %.80q", found.Payload, text)
		}
		e := complete(looker(found), "r")
		e.Result = []byte(text)
		w.ended(e, ledger.Completed)
		w.carries(c.ID, text, text)
		if v := w.claim(r); !bytes.Equal(v.Claim.Result, e.Result) {
			w.Errorf("the stored result is %.80q, want %.80q", v.Claim.Result, text)
		}
	}
	late := w.grant(w.event("filled"))
	w.decide(w.event("filled", payload(ugly[0])), ledger.InProgress)
	w.carries(late.ID, ugly[0], "")
	r := w.event("paused", payload(ugly[3]))
	w.pause("source."+w.source, 0)
	w.carries(w.decide(r, ledger.Wait).Claim.ID, ugly[3], "")
	for name, text := range map[string]string{
		"owner": "7:0:0 \u2028 😀 '\"\\", "node": "Charge {{ $json }}\u00a0", "workflow_name": "日本語, {curly}, \"quoted\", NULL", "entity": "sub_1 \\N {a,b}",
	} {
		w.resume("source." + w.source)
		c := w.grant(w.event("text "+name, func(r *ledger.Request) {
			r.Origin = ledger.Origin{Owner: text, Node: text, WorkflowName: text, ExecutionID: text}
			r.Entity = text
		}))
		e := refused(worker(c), 1)
		e.Message = text
		w.ended(e, ledger.Failed)
		if c, _ := w.get(c.ID); c.Origin.Owner != text || c.Origin.Node != text || c.Origin.WorkflowName != text || c.Entity != text || c.Last.Message != text {
			w.Errorf("%q became %+v", text, c)
		}
	}
}

func (w *world) carries(id, payload, result string) {
	w.Helper()
	if c, _ := w.get(id); string(c.Payload) != payload || string(c.Result) != result {
		w.Errorf("payload %.80q, want %.80q; result %.80q, want %.80q", c.Payload, payload, c.Result, result)
	}
}

// historyAppendOnly: the database itself refuses updates and deletes in the history.
func historyAppendOnly(w *world) {
	c := w.grant(w.effect("key"))
	w.ended(markUnknown(worker(c)), ledger.Unknown)
	w.resolved(c.ID, ledger.Completed)
	statements := []string{
		"update history set reason = 'nothing happened'", "update history set at = at + 1 where claim_id = '" + c.ID + "'",
		"delete from history", "delete from history where claim_id = '" + c.ID + "'",
		"insert into history (claim_id, entry, at) select claim_id, entry, 0 from history where true" +
			" on conflict (claim_id, entry) do update set reason = 'x'",
	}
	if !isSQLite(w.url) {
		statements = append(statements, "truncate history", "truncate history cascade")
	}
	before := w.query("select * from history order by claim_id, entry")
	for _, s := range statements {
		if _, err := w.raw.ExecContext(w.Context(), s); err == nil {
			w.Errorf("the database took: %s", s)
		}
	}
	if isSQLite(w.url) { // it deletes what it replaces, and by default without asking the trigger for deletes
		s := "insert or replace into history (claim_id, entry, at) select claim_id, entry, 0 from history"
		if _, err := w.raw.ExecContext(w.Context(), s); err == nil {
			w.Logf("not refused aloud: %s", s)
		}
	}
	if after := w.query("select * from history order by claim_id, entry"); after != before {
		w.Errorf("the history was\n%s\nand is\n%s", before, after)
	}
}

// viewsReadable: people can read the tables whatever stands in them.
func viewsReadable(w *world) {
	for i, text := range ugly {
		c := w.grant(w.effect(fmt.Sprint("key", i), payload(text)))
		e := complete(worker(c), "r")
		e.Result = []byte(text)
		w.ended(e, ledger.Completed)
	}
	w.grant(w.event("live", of("e", "1")))
	c := w.grant(w.event("v", of("f", "2261-12-31T00:00:00Z")))
	w.ended(complete(worker(c), "r"), ledger.Completed)
	d := w.grant(w.event("i", of("f", "-9223372036854775808")))
	w.ended(complete(worker(d), "r"), ledger.Completed)
	w.ended(notExecuted(worker(w.grant(w.event("letter")))), ledger.Failed)
	w.started(choosing(deadletter.Selector{Source: w.source, Status: deadletter.Queued}))
	w.pause("all", time.Hour)
	w.raise("group", "title")
	w.store = openStore(w.T, w.url, store.Options{Now: w.clock.now, Alerts: store.AlertOptions{Silence: map[string]time.Duration{"src": time.Hour}}})
	w.watch()
	views := strings.Fields(w.query(w.viewNames()))
	if len(views) < 2 {
		w.Fatalf("views: %v", views)
	}
	for _, view := range views {
		_, name, _ := strings.Cut(view, "=")
		rows, err := w.tryQuery("select * from " + name)
		if err != nil || rows == "" {
			w.Errorf("%s: %v %q", name, err, rows)
		}
		if name == "claims_readable" && !strings.Contains(rows, w.clock.now().Format(time.DateOnly)) {
			w.Errorf("no real times in %s", name)
		}
	}
}

func (w *world) viewNames() string {
	if isSQLite(w.url) {
		return "select name from sqlite_master where type = 'view' order by name"
	}
	return "select table_name from information_schema.views where table_schema = current_schema() order by table_name"
}
