package distkv

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

var verbs = []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%X", "%q", "%o", "%b", "%c", "%U", "%e", "%t", "%T", "%p"}

// secretTicket is a ticket that has all that is secret.
func secretTicket(network string, addresses ...any) string {
	return ticketFrom(fields{"addresses": addresses, "network": network, "method": "password", "user": "ann", "secret": herSecret,
		"key": []byte(herSecret)})
}

// showsNothing prints it in all ways that there are; no secret may be in what comes of it.
func showsNothing(t *testing.T, name string, one any, secrets ...string) {
	t.Helper()
	hides := func(how, text string) {
		t.Helper()
		for _, secret := range append(secrets, herSecret) {
			asBytes := fmt.Sprintf("%d", []byte(secret))
			asGo := strings.Trim(fmt.Sprintf("%#v", []byte(secret)), "[]byte{}")
			for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
				base64.StdEncoding.EncodeToString([]byte(secret)), strings.Trim(asBytes, "[]"), asGo} {
				if strings.Contains(text, form) {
					t.Errorf("%s, %s: %s", name, how, text)
					return
				}
			}
		}
	}
	for _, verb := range verbs {
		hides(verb, fmt.Sprintf(verb, one))
	}
	hides("Println", fmt.Sprintln(one))
	if encoded, err := json.Marshal(one); err == nil {
		hides("JSON", string(encoded))
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("started", "it", one)
	hides("a log of texts", log.String())
	log.Reset()
	slog.New(slog.NewJSONHandler(&log, nil)).Info("started", "it", one)
	hides("a log of JSON", log.String())
}

func TestATicketShowsNoSecretWhereverItIs(t *testing.T) {
	ticket := must[Ticket](t)(ReadTicket(secretTicket("n", "n1")))
	showsNothing(t, "a ticket", ticket)
	showsNothing(t, "a pointer to one", &ticket)
	showsNothing(t, "tickets", []Ticket{ticket})
	showsNothing(t, "a map of them", map[string]Ticket{"a": ticket})
	// fmt calls no methods of what is in a field that is not exported.
	showsNothing(t, "a struct", struct{ held Ticket }{ticket})
	showsNothing(t, "a pointer to a struct", &struct{ held *Ticket }{&ticket})
	// Nor of what it shows anew because a verb was wrong.
	showsNothing(t, "a struct with a number", struct {
		number int
		Held   Ticket
	}{1, ticket})
	if text := fmt.Sprintf("%+v", ticket); text != "Ticket(n, ann)" {
		t.Error(text)
	}
}

func TestALoginByItsPointerShowsNoSecretWhereverItIs(t *testing.T) {
	login := PasswordLogin("ann", herSecret)
	showsNothing(t, "a login", login)
	showsNothing(t, "a struct", struct{ held *Login }{login})
	showsNothing(t, "a configuration", Config{Login: login, Ticket: secretTicket("n", "n1")})
	showsNothing(t, "a configuration that is held", struct{ held Config }{Config{Login: login, Ticket: "@a.ticket"}})
}

func TestWhatAClientKeepsShowsNoSecret(t *testing.T) {
	text := secretTicket("n", "n1")
	config := Config{Ticket: text}
	if err := config.withTicket(); err != nil {
		t.Fatal(err)
	}
	showsNothing(t, "what a client keeps", struct{ held Config }{config}, text)
}

func TestAClientShowsNoSecretAndReadsNothingWithoutItsLock(t *testing.T) {
	seeds := shared(t)
	addresses := make([]any, len(seeds))
	for i, seed := range seeds {
		addresses[i] = seed
	}
	config := Config{Ticket: secretTicket("", addresses...)}
	client := connect(t, config)
	allLive(t, client, len(seeds))
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), MustPath("a"), nil))
	defer watch.Close()
	monitor := must[*Monitor](t)(client.OpenMonitor(t.Context(), MustPath("a")))
	defer monitor.Close()
	var all sync.WaitGroup
	for range 2 { // The race detector sees what is read without its lock.
		all.Go(func() { _, _ = client.Get(t.Context(), MustPath("a"), nil) })
	}
	for name, one := range map[string]any{"a client": client, "a watch": watch, "a monitor": monitor, "a struct": struct{ held *Client }{client},
		"a struct that shows it": struct{ Held *Client }{client}, "clients": []*Client{client}} {
		showsNothing(t, name, one, config.Ticket)
	}
	all.Wait()
	for _, verb := range verbs {
		if text := fmt.Sprintf(verb, client); text != fmt.Sprintf("Client(%d nodes)", len(seeds)) && verb != "%T" && verb != "%p" {
			t.Error(verb, text)
		}
	}
	var none *Client
	for _, one := range []*Client{none, new(Client)} {
		if text := fmt.Sprint(one); text != "Client(none)" || one.LogValue().String() != text {
			t.Error(text)
		}
	}
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if text := client.String(); text != "Client(closed)" {
		t.Error(text)
	}
}
