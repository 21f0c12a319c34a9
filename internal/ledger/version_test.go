package ledger

import (
	"math"
	"testing"
	"time"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Version{
		"0":                              {IntegerVersion, 0},
		"-1":                             {IntegerVersion, -1},
		"1767225601":                     {IntegerVersion, 1767225601},
		"9007199254740993":               {IntegerVersion, 9007199254740993},
		"9223372036854775807":            {IntegerVersion, math.MaxInt64},
		"-9223372036854775808":           {IntegerVersion, math.MinInt64},
		"1970-01-01T00:00:00Z":           {TimeVersion, 0},
		"1970-01-01T00:00:00.000000001Z": {TimeVersion, 1},
		"1970-01-01T02:00:00+02:00":      {TimeVersion, 0},
		"1969-12-31T23:59:59Z":           {TimeVersion, -1e9},
		"1678-01-01T00:00:00Z":           {TimeVersion, time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()},
		"2261-12-31T23:59:59.999999999Z": {TimeVersion, time.Date(2261, 12, 31, 23, 59, 59, 999999999, time.UTC).UnixNano()},
	} {
		if got, ok := ParseVersion(text); !ok || got != want {
			t.Errorf("%q is %+v %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", " ", "1.0", "1e3", "0x10", "1_000", "one", "9223372036854775808", "-9223372036854775809", "2026-01-01", "2026-01-01 00:00:00Z",
		"2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "1677-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
		" 1", "1 ", "1\n", "٣", "2026-01-01T00:00:00Z ", "2026-01-01t00:00:00z\n",
	} {
		if got, ok := ParseVersion(text); ok {
			t.Errorf("%q is %+v, want none", text, got)
		}
	}
}

func TestVersionString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"7": "7", "-9223372036854775808": "-9223372036854775808", "2026-01-01T02:00:00+02:00": "2026-01-01T00:00:00Z",
		"2026-01-01T00:00:00.120Z": "2026-01-01T00:00:00.12Z", "1678-01-01T00:00:00Z": "1678-01-01T00:00:00Z",
	} {
		v, ok := ParseVersion(text)
		if !ok || v.String() != want {
			t.Errorf("%q is written %q, want %q", text, v, want)
		}
		if again, ok := ParseVersion(v.String()); !ok || again != v {
			t.Errorf("%q does not read back", v)
		}
	}
	if s := (Version{}).String(); s != "" {
		t.Errorf("none is written %q", s)
	}
}

func TestNewerThan(t *testing.T) {
	t.Parallel()
	order := []Version{{IntegerVersion, math.MinInt64}, {IntegerVersion, -1}, {IntegerVersion, 0}, {IntegerVersion, 1 << 53}, {IntegerVersion, 1<<53 + 1}, {IntegerVersion, math.MaxInt64}}
	for i, a := range order {
		for j, b := range order {
			if a.NewerThan(b) != (i > j) {
				t.Errorf("%v newer than %v: %v", a, b, i <= j)
			}
			a, b := Version{TimeVersion, a.Rank}, Version{TimeVersion, b.Rank}
			if a.NewerThan(b) != (i > j) {
				t.Errorf("%v newer than %v: %v", a, b, i <= j)
			}
		}
	}
	mixed := []Version{{}, {NoVersion, 5}, {IntegerVersion, 5}, {IntegerVersion, math.MaxInt64}, {TimeVersion, 5}, {TimeVersion, math.MaxInt64}}
	for _, a := range mixed {
		for _, b := range mixed {
			if (a.Kind != b.Kind || a.Kind == NoVersion) && a.NewerThan(b) {
				t.Errorf("%+v is called newer than %+v", a, b)
			}
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 1, 1: 1, time.Microsecond: 1, time.Second: 1, time.Second + 1: 2, time.Second + time.Microsecond: 2, 2*time.Second - 1: 2,
		299*time.Second + time.Millisecond: 300, 300 * time.Second: 300, 24 * time.Hour: 86400, 24*time.Hour + 1: 86401,
		-time.Microsecond: 1, -time.Hour: 1,
	} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %d, want %d", d, got, want)
		}
	}
}

func TestInstant(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 8, 0, 0, 123456789, time.FixedZone("east", 14*3600))
	i := At(at)
	if got := i.Time(); !got.Equal(at.Truncate(time.Microsecond)) || got.Location() != time.UTC {
		t.Errorf("%v became %v", at, got)
	}
	if text, err := i.MarshalText(); err != nil || string(text) != "2026-11-29T18:00:00.123456Z" {
		t.Errorf("%s %v", text, err)
	}
	if i.Add(time.Hour).Sub(i) != time.Hour || At(time.Time{}) != 0 || !Instant(0).Time().IsZero() {
		t.Error("the sums are wrong")
	}
}

func TestKeyLess(t *testing.T) {
	t.Parallel()
	order := []Key{{"a", "b", "c", "d"}, {"a", "b", "c", "e"}, {"a", "b", "cd", ""}, {"a", "bc", "", ""}, {"ab", "", "", ""}}
	for i, a := range order {
		for j, b := range order {
			if a.Less(b) != (i < j) {
				t.Errorf("%v before %v: %v", a, b, i >= j)
			}
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	short, long := Policy{Window: time.Hour}, Policy{Window: 48 * time.Hour}
	p := Policies{Sources: map[string]Policy{"s": short}, Destinations: map[string]Policy{"d": long, "": short}}
	for _, row := range []struct {
		source, destination string
		want                Policy
	}{
		{"s", "", short}, {"s", "d", long}, {"s", "other", short}, {"other", "d", long}, {"other", "", DefaultPolicy}, {"other", "other", DefaultPolicy}, {"d", "s", DefaultPolicy},
	} {
		if got := p.For(row.source, row.destination); got != row.want {
			t.Errorf("%s to %s: %+v, want %+v", row.source, row.destination, got, row.want)
		}
	}
	if got := p.ShortestWindow(); got != time.Hour {
		t.Errorf("the shortest window is %v", got)
	}
	if got := (Policies{}).For("s", "d"); got != (Policy{Window: 24 * time.Hour, AskAfter: time.Minute, NotFoundAfter: 5 * time.Minute}) {
		t.Errorf("the defaults are %+v", got)
	}
}
