package inbox

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestSourceIsChecked(t *testing.T) {
	t.Parallel()
	secrets := []string{"s3cr3t-of-mine"}
	whsec := "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY"
	for name, row := range map[string]struct {
		c     Config
		field string // empty: it is right
		says  string
	}{
		"unknown provider":      {Config{Provider: "strype"}, "provider", "must be one of stripe, github,"},
		"no provider":           {Config{}, "provider", "none"},
		"stripe":                {Config{Provider: "stripe", Secrets: secrets, Tolerance: time.Minute}, "", ""},
		"stripe by token":       {Config{Provider: "stripe", Token: true}, "", ""},
		"stripe by nothing":     {Config{Provider: "stripe"}, "secrets", "stripe signs with"},
		"F077 empty secret":     {Config{Provider: "stripe", Secrets: []string{"whsec_x", ""}}, "secrets[1]", "is empty"},
		"empty list of secrets": {Config{Provider: "stripe", Secrets: []string{}}, "secrets", "is missing"},
		"secret with a newline": {Config{Provider: "stripe", Secrets: []string{"s3cr3t-of-mine\n"}}, "secrets[0]", "white space"},
		"negative tolerance":    {Config{Provider: "stripe", Secrets: secrets, Tolerance: -1}, "tolerance", "negative"},
		"tolerance of no time":  {Config{Provider: "github", Secrets: secrets, Tolerance: 1}, "tolerance", "signs no time"},
		"foreign signature":     {Config{Provider: "stripe", Secrets: secrets, Signature: Signature{Header: "X"}}, "signature", "use the provider hmac"},
		"paystack's header":     {Config{Provider: "paystack-v1", Secrets: secrets, Signature: Signature{Header: "X-New"}}, "", ""},
		"paystack's prefix":     {Config{Provider: "paystack-v1", Secrets: secrets, Signature: Signature{Header: "X-New", Prefix: "x"}}, "signature", "leave it out"},
		"verify_token":          {Config{Provider: "whatsapp", Secrets: secrets, VerifyToken: "v"}, "", ""},
		"verify_token elsewhere": {
			Config{Provider: "stripe", Secrets: secrets, VerifyToken: "v"}, "verify_token", "leave it out",
		},
		"svix":              {Config{Provider: "svix", Secrets: []string{whsec, whsec[6:]}}, "", ""},
		"svix, plain text":  {Config{Provider: "svix", Secrets: secrets}, "secrets[0]", "whsec_ and base64"},
		"short public key":  {Config{Provider: "standard-webhooks", Secrets: []string{"whpk_AAAA"}}, "secrets[0]", "32 bytes"},
		"adyen":             {Config{Provider: "adyen", Secrets: []string{"0F1e"}}, "", ""},
		"adyen, plain text": {Config{Provider: "adyen", Secrets: secrets}, "secrets[0]", "hexadecimal"},
		"square":            {Config{Provider: "square", Secrets: secrets, PublicURL: base}, "", ""},
		"square without":    {Config{Provider: "square", Secrets: secrets}, "HOLDFAST_INGEST_URL", "square calls"},
		"twilio, no scheme": {Config{Provider: "twilio", Secrets: secrets, PublicURL: "hooks.example.com"}, "HOLDFAST_INGEST_URL", ""},
		"square by token":   {Config{Provider: "square", Token: true}, "", ""},
		"mpesa":             {Config{Provider: "mpesa", Token: true}, "", ""},
		"mpesa open":        {Config{Provider: "mpesa-stk"}, "token", "keep strangers out"},
		"mpesa with secret": {Config{Provider: "mpesa-b2c", Token: true, Secrets: secrets}, "secrets", "would check nothing"},
		"none":              {Config{Provider: "none", Token: true, Key: "body.lead_id"}, "", ""},
		"none open":         {Config{Provider: "none", Key: "body.lead_id"}, "token", ""},
		"none with secret":  {Config{Provider: "none", Token: true, Secrets: secrets}, "secrets", ""},
		"hmac":              {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X-Sig"}}, "", ""},
		"hmac without":      {Config{Provider: "hmac", Token: true, Signature: Signature{Header: "X-Sig"}}, "secrets", "provider none"},
		"hmac, no header":   {Config{Provider: "hmac", Secrets: secrets}, "signature.header", "X-Signature"},
		"hmac, bad header":  {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X Sig"}}, "signature.header", ""},
		"hmac, MD5":         {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X-Sig", Algorithm: "md5"}}, "signature.algorithm", "sha512"},
		"hmac, plain":       {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X-Sig", Algorithm: "plain"}}, "signature.algorithm", ""},
		"hmac, base32":      {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X-Sig", Encoding: "base32"}}, "signature.encoding", "base64"},
		"hmac, tolerance":   {Config{Provider: "hmac", Secrets: secrets, Tolerance: 1, Signature: Signature{Header: "X-Sig"}}, "tolerance", ""},
		"key without place": {Config{Provider: "none", Token: true, Key: "lead_id"}, "key", "such as body.id"},
		"key, empty part":   {Config{Provider: "none", Token: true, Key: "body.a..b"}, "key", ""},
		"key, no name":      {Config{Provider: "none", Token: true, Key: "query."}, "key", ""},
		"key, bad header":   {Config{Provider: "none", Token: true, Key: "headers.a b"}, "key", ""},
		"key, credential":   {Config{Provider: "none", Token: true, Key: "headers.Authorization"}, "key", "never kept"},
		"key, cookie":       {Config{Provider: "none", Token: true, Key: "headers.cookie"}, "key", ""},
		"key, signature":    {Config{Provider: "hmac", Secrets: secrets, Signature: Signature{Header: "X-Sig"}, Key: "headers.x-sig"}, "key", ""},
		"key, header":       {Config{Provider: "none", Token: true, Key: "headers.X-Event-Id"}, "", ""},
		"entity":            {Config{Provider: "none", Token: true, Entity: "a..b"}, "entity", "empty part"},
		"version":           {Config{Provider: "none", Token: true, Version: "."}, "version", "empty part"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := NewSource(row.c)
			var e *FieldError
			switch {
			case row.field == "" && err != nil:
				t.Fatal(err)
			case row.field != "" && (!errors.As(err, &e) || s != nil || e.Field != row.field || !strings.Contains(e.Message, row.says)):
				t.Fatalf("%v; want %s and %q", err, row.field, row.says)
			case err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "%!")):
				t.Error(err)
			}
		})
	}
}

// The table itself: what a newcomer could get wrong in a row.
func TestTable(t *testing.T) {
	t.Parallel()
	for i := range profiles {
		p := &profiles[i]
		for _, c := range p.signs {
			c = c.filled()
			if (c.header == "") == (c.item == nil) || hashes[c.algorithm] == nil && c.algorithm != algPlain ||
				c.encoding != encHex && c.encoding != encBase64 || c.keys != p.signs[0].keys ||
				c.timed() != strings.Contains(c.signed, "{time}") || c.timed() != (c.tolerance > 0) || (c.id != "") != strings.Contains(c.signed, "{id}") ||
				c.stamp != "" && c.separator == "" {
				t.Errorf("%s: %+v", p.Name, c)
			}
			rest := strings.NewReplacer("{method}", "", "{url}", "", "{body}", "", "{form}", "", "{id}", "", "{time}", "").Replace(c.signed)
			if strings.ContainsAny(rest, "{}") || c.item == nil && !strings.Contains(c.signed, "{body}") && !strings.Contains(c.signed, "{form}") {
				t.Errorf("%s signs %q", p.Name, c.signed)
			}
		}
		for _, name := range newSource(t, Config{Provider: p.Name, Token: true}).keep {
			if isSecretHeader(name) || !isHeaderName(name) {
				t.Errorf("%s keeps %s", p.Name, name)
			}
		}
		if p.entity != nil && p.version == nil {
			t.Errorf("%s has an entity without a version", p.Name)
		}
	}
	if len(Providers()) != len(profiles)+2 {
		t.Error(Providers())
	}
}
