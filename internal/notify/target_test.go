package notify

import (
	"bufio"
	"net"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	good := []string{
		"slack://hook:AAAAAAAAA-BBBBBBBBB-123456789123456789123456@webhook",
		"telegram://110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawa@telegram?chats=@ops",
		"smtp://user:pass%20word@mail.example.test:587/?from=holdfast@example.test&to=ops@example.test",
		"generic+https://example.test/hook",
		"discord://token@webhookid",
		"ntfy://ntfy.example.test/topic",
	}
	targets, err := Targets(good)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"slack", "telegram", "smtp", "generic", "discord", "ntfy"} {
		if targets[i].Service != want || len(targets[i].ID) != 32 {
			t.Errorf("%d: %+v", i, targets[i])
		}
	}
	again, err := Targets(good[3:4])
	if err != nil || again[0].ID != targets[3].ID {
		t.Errorf("%v: the place in the list changes the id", err)
	}
	for _, bad := range []string{"", " ", "hunter2", "https://hooks.example.test/hunter2", "hunter2://x", "slack://hunter2", "telegram://hunter2", "smtp://hunter2", "slack://%zz-hunter2", "generic+ftp\n://hunter2"} {
		_, err := Targets([]string{good[0], bad})
		if err == nil || !strings.HasPrefix(err.Error(), "notify[1]: ") || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Targets([]string{good[0], good[1], good[0]}); err == nil || err.Error() != "notify[2]: is the same as notify[0]" {
		t.Errorf("%v", err)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	for address, text := range map[string]string{
		"slack://hook:AAAAAAAAA-BBBBBBBBB-123456789123456789123456@webhook":        `Post "https://hooks.slack.com/services/AAAAAAAAA/BBBBBBBBB/123456789123456789123456": dial tcp: connection refused`,
		"telegram://110201543:AAHdqTcvCH1vGWJx@telegram?chats=@ops":                `got 401: bot110201543:AAHdqTcvCH1vGWJx is unknown: connection refused`,
		"smtp://user:pass%20word@mail.example.test/?from=a@example.test":           `auth of "pass word" at mail.example.test: connection refused`,
		"generic+https://u:Sesame77@example.test/a?@Authorization=Bearer+Sesame77": `header Bearer Sesame77: connection refused`,
	} {
		got := maskAddress(text, address)
		for _, secret := range []string{"AAAAAAAAA", "BBBBBBBBB", "123456789", "110201543", "AAHdq", "pass word", "mail.example", "Sesame"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: %s", address, got)
			}
		}
		if !strings.Contains(got, "connection refused") {
			t.Errorf("nothing is left: %s", got)
		}
	}
	if got := maskAddress(strings.Repeat("ü", 1000), "x://y"); len(got) > maxError+len(hidden) {
		t.Errorf("%d bytes", len(got))
	}
}

// Mail: the title is the subject, on one line.
func TestMail(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	mail := make(chan string, 1)
	go serveMail(listener, mail)
	targets, err := Targets([]string{"smtp://" + listener.Addr().String() + "/?from=holdfast@example.test&to=ops@example.test&auth=none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := targets[0].send(nil, "A letter is dead", "A letter is dead\nhttps://holdfast.example.test/dlq/1"); err != nil {
		t.Fatal(err)
	}
	got := <-mail
	for _, want := range []string{"Subject: A letter is dead\r\n", "To: ops@example.test", "https://holdfast.example.test/dlq/1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// serveMail takes one mail, as any server would.
func serveMail(l net.Listener, mail chan<- string) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	say := func(s string) { _, _ = c.Write([]byte(s + "\r\n")) }
	say("220 mail.example.test")
	var body strings.Builder
	inData := false
	for lines := bufio.NewReader(c); ; {
		line, err := lines.ReadString('\n')
		switch {
		case err != nil:
			return
		case inData && line == ".\r\n":
			inData = false
			mail <- body.String()
			say("250 taken")
		case inData:
			body.WriteString(line)
		case strings.HasPrefix(line, "DATA"):
			inData = true
			say("354 go on")
		case strings.HasPrefix(line, "QUIT"):
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}
