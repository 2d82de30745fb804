package distkv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Tickets in files: a secret that is replaced there is taken once a node refuses the one before.

const oldSecret, newSecret = "the old secret", "the new secret"

func userTicket(secret string, more fields) string {
	told := fields{"addresses": []any{"n1:1"}, "network": "", "method": "password", "user": "ann", "secret": secret}
	for name, value := range more {
		told[name] = value
	}
	return ticketFrom(told)
}

// guards are nodes that let in who has the right secret.
type guards struct {
	nodes []*scripted
	right atomic.Value // of string
	waits atomic.Value // of string: who has this one is made to wait
}

func guarding(names ...string) *guards {
	g := &guards{}
	g.right.Store(oldSecret)
	g.waits.Store("")
	for _, name := range names {
		g.nodes = append(g.nodes, &scripted{name: name, asksLogin: true, judges: func(secret string) string {
			switch secret {
			case g.right.Load():
				return ""
			case g.waits.Load():
				return "too_many"
			}
			return "auth_failed"
		}})
	}
	return g
}

// change: only this secret counts from now on, and all connections of this client end.
func (g *guards) change(t *testing.T, client *Client, right string) {
	t.Helper()
	g.right.Store(right)
	g.cut(t, client)
}

func (g *guards) cut(t *testing.T, client *Client) {
	t.Helper()
	for _, node := range g.nodes {
		node.hangUpWith("")
	}
	until(t, func() bool { return client.Stats().Pool.Connections == 0 || client.Stats().Pool.Lost > 0 })
}

// secrets are those with which clients have tried to log in.
func (g *guards) secrets() (all []string) {
	for _, node := range g.nodes {
		for _, login := range node.actions("auth") {
			all = append(all, login.text("secret"))
		}
	}
	return all
}

// ticketIn is a file with a ticket for the old secret.
func ticketIn(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "ann.ticket")
	write(t, file, userTicket(oldSecret, nil))
	return file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// guardedClient is one that all of these nodes have let in.
func guardedClient(t *testing.T, g *guards, config Config) *Client {
	t.Helper()
	config.Seeds = startScripted(t, g.nodes...)
	client := connect(t, config)
	allLive(t, client, len(g.nodes))
	isAtBoth(t, client)
	return client
}

// clientByFile is a guarded client with a ticket in a file.
func clientByFile(t *testing.T, names ...string) (*guards, string, *Client) {
	t.Helper()
	g, file := guarding(names...), ticketIn(t)
	config := quick()
	config.Ticket = "@" + file
	return g, file, guardedClient(t, g, config)
}

// aSecondLater is as if a second had passed since the file was read.
func aSecondLater(own *ownLogin) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.readAt -= ticketReadEvery
}

// lastRead is when it was read.
func lastRead(own *ownLogin) instant {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.readAt
}

// isRefusedAgain is the same as isRefused where the file has been read for it.
func isRefusedAgain(t *testing.T, client *Client, path Path) {
	t.Helper()
	aSecondLater(client.config.own)
	before := lastRead(client.config.own)
	until(t, func() bool { // For a moment, the failure before is remembered.
		isRefused(t, client, path)
		return lastRead(client.config.own) > before
	})
}

func isRefused(t *testing.T, client *Client, path Path) {
	t.Helper()
	_, err := client.Get(t.Context(), path, nil)
	wantError(t, err, ErrDenied)
}

func TestAProgramGoesOnWhenItsSecretIsReplacedAndTheNodeRestarts(t *testing.T) {
	folder := t.TempDir()
	file, secret := filepath.Join(folder, "tim.ticket"), filepath.Join(folder, "ann")
	nodes := cluster(t, 1, "--data-dir", filepath.Join(folder, "data"))
	node := nodes.Nodes[0]
	at := []string{"--connect", node.Client}
	write(t, secret, "the secret of ann")
	command(t, append([]string{"user", "add", "ann", "--role", "admin", "--new-secret-file", secret}, at...)...)
	command(t, append([]string{"auth", "on", "password"}, at...)...)
	ann := append(at, "--user", "ann", "--secret-file", secret)
	command(t, append([]string{"user", "add", "tim", "--method", "token", "--role", "admin"}, ann...)...)
	replace := func() { command(t, append([]string{"user", "ticket", "tim", "--to", file, "--force"}, ann...)...) }
	restart := func() {
		// In order, so that it knows what was changed last.
		node.Stop()
		if err := node.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	replace()
	config := quick()
	config.Ticket = "@" + file
	client := connect(t, config)
	watch := openWatch(t, client, MustPath("a"), nil)
	collect(t, watch, is[UpToDate])
	replace()
	put(t, client, MustPath("a"), 1, nil) // What is open stays.
	restart()
	put(t, client, MustPath("a"), 2, nil)
	until(t, func() bool {
		change, isChange := must[Event](t)(watch.Next(t.Context())).(Change)
		return isChange && must[int](t)(As[int](change.Value)) == 2
	})
	// Of half a file nothing is taken.
	replace()
	whole := string(must[[]byte](t)(os.ReadFile(file)))
	write(t, file, whole[:len(whole)/2])
	restart()
	isRefused(t, client, MustPath("a"))
	write(t, file, whole)
	until(t, func() bool { _, err := client.Get(t.Context(), MustPath("a"), nil); return err == nil })
}

func TestAllThatAreRefusedAtOnceTakeTheNewSecretAndReadItOnce(t *testing.T) {
	g, file, client := clientByFile(t, "s1", "s2", "s3")
	write(t, file, userTicket(newSecret, nil))
	g.change(t, client, newSecret)
	var all sync.WaitGroup
	for range 1000 {
		for _, node := range g.nodes {
			path := preferredPath(t, client, node.name)
			all.Go(func() {
				if _, err := client.Get(t.Context(), path, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	read := lastRead(client.config.own)
	for _, node := range g.nodes {
		found := (&guards{nodes: []*scripted{node}}).secrets()
		if count := len(found); count > 6 || found[count-1] != newSecret {
			t.Errorf("%s: %q", node.name, found)
		}
	}
	// It is the client's secret from now on.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	before := len(g.secrets())
	g.cut(t, client)
	for _, node := range g.nodes {
		path := preferredPath(t, client, node.name)
		until(t, func() bool { _, err := client.Get(t.Context(), path, nil); return err == nil })
	}
	until(t, func() bool {
		_, err := client.Get(t.Context(), PathOf("a"), nil)
		return err == nil && len(g.secrets()) > before
	})
	for _, node := range g.nodes {
		found := (&guards{nodes: []*scripted{node}}).secrets()
		if found[len(found)-1] != newSecret {
			t.Errorf("%s: %q", node.name, found)
		}
	}
	if lastRead(client.config.own) != read {
		t.Error("it was read again")
	}
}

func TestATicketsFileThatIsDamagedOrForSomethingElseIsPassedOver(t *testing.T) {
	g, file, client := clientByFile(t, "s1")
	path := PathOf("a")
	whole := userTicket(newSecret, nil)
	g.change(t, client, newSecret)
	for _, wrong := range []string{whole[:len(whole)/2], "", strings.Repeat("x", 1<<20), userTicket(newSecret, fields{"user": "bob"}),
		userTicket(newSecret, fields{"network": "elsewhere"}), userTicket(newSecret, fields{"ca": make([]byte, 32)}),
		userTicket(newSecret, fields{"method": nil, "user": nil}), userTicket(strings.Repeat("x", 1025), nil), userTicket(oldSecret, nil)} {
		write(t, file, wrong)
		isRefusedAgain(t, client, path)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	isRefusedAgain(t, client, path)
	// Nobody writes into this: whoever opens it waits for ever.
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	isRefusedAgain(t, client, path)
	for _, secret := range g.secrets() {
		if secret != oldSecret {
			t.Error(secret)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	// Other addresses are not taken over.
	write(t, file, userTicket(newSecret, fields{"addresses": []any{"elsewhere:1"}})+"\n")
	aSecondLater(client.config.own)
	until(t, func() bool { _, err := client.Get(t.Context(), path, nil); return err == nil })
}

func TestATicketsFileIsReadAtMostOnceASecond(t *testing.T) {
	file := ticketIn(t)
	config := Config{Ticket: "@" + file}
	if err := config.withTicket(); err != nil {
		t.Fatal(err)
	}
	own := config.own
	first := own.now()
	if own.otherThan(t.Context(), first) != nil {
		t.Error("it has no other one")
	}
	write(t, file, userTicket(newSecret, nil))
	if own.readAt = now(); own.otherThan(t.Context(), first) != nil {
		t.Error("it was read again")
	}
	own.readAt -= ticketReadEvery
	if other := own.otherThan(t.Context(), first); other == nil || other.secret() != newSecret || own.now() != other || own.changedAt() == 0 {
		t.Error(other)
	}
	write(t, file, userTicket("a third one", nil))
	if other := own.otherThan(t.Context(), first); other == nil || other.secret() != newSecret || own.otherThan(t.Context(), other) != nil {
		t.Error("what is known is not read again")
	}
}

// readAgain has the file read so from now on; read: how it is read.
func readAgain(own *ownLogin, pauses []time.Duration, how func(read func() *Login) *Login) {
	own.mu.Lock()
	defer own.mu.Unlock()
	read := own.reread
	own.pauses, own.reread = pauses, func() *Login { return how(read) }
}

func TestASecretThatIsReplacedJustAfterTheConnectionsAreEndedIsTaken(t *testing.T) {
	for _, waits := range []string{"", oldSecret} {
		t.Run(waits, func(t *testing.T) {
			g, file, client := clientByFile(t, "s1", "s2")
			for _, node := range g.nodes {
				node.tell(func() { node.script = watchedFrom })
			}
			watch := openWatch(t, client, MustPath("a"), nil)
			collect(t, watch, is[UpToDate])
			var reads atomic.Int64
			readAgain(client.config.own, ticketReadPauses[:], func(read func() *Login) *Login {
				found := read()
				if reads.Add(1) == 2 {
					write(t, file, userTicket(newSecret, nil))
				}
				return found
			})
			g.waits.Store(waits)
			g.right.Store(newSecret)
			for _, node := range g.nodes {
				node.hangUp()
			}
			collect(t, watch, is[Resumed])
			for _, node := range g.nodes {
				path := preferredPath(t, client, node.name)
				var found []string
				until(t, func() bool {
					_, err := client.Get(t.Context(), path, nil)
					found = (&guards{nodes: []*scripted{node}}).secrets()
					return err == nil && found[len(found)-1] == newSecret
				})
				// By one for all that are refused, and on the connection that was refused.
				if len(found) > 3 {
					t.Errorf("%s: %q", node.name, found)
				}
			}
			if count := reads.Load(); count != 3 {
				t.Error(count)
			}
		})
	}
}

// watchedFrom is a script: there is nothing to see, and it goes on.
func watchedFrom(request message) any {
	if request.text("action") == "watch" {
		return several{{"state": "start", "wseq": 1}, {"state": "uptodate", "wseq": 2}}
	}
	return fields{"value": "there", "tock": 1}
}

func TestASecretThatWasGoodIsWaitedForOnceAndAnyOtherNotAtAll(t *testing.T) {
	config := Config{Ticket: "@" + ticketIn(t)}
	if err := config.withTicket(); err != nil {
		t.Fatal(err)
	}
	own, reads := config.own, 0
	readAgain(own, []time.Duration{1, 1, 1}, func(read func() *Login) *Login { reads++; return read() })
	first := own.now()
	readsOf := func(ctx context.Context, expected int) {
		t.Helper()
		reads = 0
		aSecondLater(own)
		if other := own.otherThan(ctx, first); other != nil || reads != expected {
			t.Error(other, reads)
		}
	}
	readsOf(t.Context(), 1)
	own.onTaken(first)
	readsOf(t.Context(), 4)
	readsOf(t.Context(), 1)
	own.onTaken(&Login{User: "ann", Method: "password"})
	readsOf(t.Context(), 1)
	// A node lets the client in after all. It is waited for in half of the time that the login may take.
	own.onTaken(first)
	own.pauses = []time.Duration{time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	readsOf(ctx, 1)
	if ctx.Err() != nil {
		t.Error("no time is left")
	}
}

func TestWhoWaitsForASecretHoldsUpNeitherOtherNodesNorTheEnd(t *testing.T) {
	g, file := guarding("s1", "s2"), ticketIn(t)
	second := &scripted{name: "s2", asksLogin: true} // It lets all in.
	g.nodes[1] = second
	config := quick()
	config.Ticket, config.Pool.ConnectTimeout, config.Retry.TryDeadline, config.Retry.TotalDeadline = "@"+file, 8*time.Hour, time.Hour, time.Hour
	client := guardedClient(t, g, config)
	paths := []Path{preferredPath(t, client, "s1"), preferredPath(t, client, "s2")}
	hasRead := make(chan struct{}, 8)
	readAgain(client.config.own, []time.Duration{time.Hour}, func(func() *Login) *Login { hasRead <- struct{}{}; return nil })
	g.right.Store(newSecret)
	g.nodes[0].hangUp()
	ended := make(chan error, 1)
	go func() {
		var err error
		for err == nil { // Under a call, the connection may be lost, and another node answers.
			_, err = client.Get(context.WithoutCancel(t.Context()), paths[0], nil)
		}
		ended <- err
	}()
	<-hasRead
	accepted := len(second.actions("auth"))
	second.hangUp()
	until(t, func() bool {
		// A call that loses its connection may go on to the node that is waited for.
		_, err := client.Get(t.Context(), paths[1], &GetOptions{Timeout: time.Second})
		return err == nil && len(second.actions("auth")) > accepted
	})
	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = client.Close(now)
	wantError(t, <-ended, ErrClosed)
}

func TestANodeThatMakesTheOldSecretWaitIsAskedWithTheNewOne(t *testing.T) {
	g, file, client := clientByFile(t, "s1")
	g.waits.Store(oldSecret)
	g.change(t, client, newSecret)
	_, err := client.Get(t.Context(), PathOf("a"), &GetOptions{Timeout: time.Second})
	wantError(t, err, ErrUnavailable)
	write(t, file, userTicket(newSecret, nil))
	aSecondLater(client.config.own)
	get[string](t, client, PathOf("a"))
	// A refusal of the old secret does not stand against the new one.
	g.waits.Store("")
	g.change(t, client, "a third one")
	isRefused(t, client, PathOf("a"))
	write(t, file, userTicket("the fourth one", nil))
	g.waits.Store("the fourth one")
	aSecondLater(client.config.own)
	until(t, func() bool { // For a moment, the failure before is remembered.
		_, err = client.Get(t.Context(), PathOf("a"), &GetOptions{Timeout: time.Second})
		return errors.Is(err, ErrUnavailable)
	})
	if !strings.Contains(err.Error(), "makes this login wait") {
		t.Error(err)
	}
}

func TestWhatIsGivenBesideATicketIsNotReplaced(t *testing.T) {
	file := ticketIn(t)
	for name, config := range map[string]Config{
		"a login":    {Login: PasswordLogin("ann", oldSecret), Ticket: "@" + file},
		"its text":   {Ticket: userTicket(oldSecret, nil)},
		"no refusal": {Ticket: "@" + file},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, file, userTicket(oldSecret, nil))
			g := guarding("s1")
			config.Retry, config.Pool = quick().Retry, quick().Pool
			client := guardedClient(t, g, config)
			write(t, file, userTicket(newSecret, nil))
			if name == "no refusal" {
				g.nodes[0].tell(func() { g.nodes[0].script = always(errorReply("denied")) })
				isRefused(t, client, PathOf("a"))
				if lastRead(client.config.own) > 0 {
					t.Error("it was read")
				}
				return
			}
			g.change(t, client, newSecret)
			isRefused(t, client, PathOf("a"))
			if slices.Contains(g.secrets(), newSecret) {
				t.Error("it took the file's")
			}
		})
	}
	other := Config{Ticket: "@" + file, TLS: &TLS{CAHash: make([]byte, 32)}}
	if err := other.withTicket(); err != nil || other.own == nil {
		t.Fatal(err)
	}
	// The ticket's CA does not count where another one was given.
	write(t, file, userTicket("another", fields{"ca": slices.Repeat([]byte{1}, 32)}))
	if found := other.own.otherThan(t.Context(), other.own.now()); found == nil || found.secret() != "another" {
		t.Error(found)
	}
}

func TestATicketsFileIsFoundAgainFromAnotherFolder(t *testing.T) {
	file := ticketIn(t)
	t.Chdir(filepath.Dir(file))
	config := Config{Ticket: "@" + filepath.Base(file)}
	if err := config.withTicket(); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	write(t, file, userTicket(newSecret, nil))
	if other := config.own.otherThan(t.Context(), config.own.now()); other == nil {
		t.Error("it is not found")
	}
	if _, err := os.Stat(filepath.Base(file)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
