package distkv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Nodes that make a login wait, since too many of its user have failed, and nodes that are full: what each says of whether
// they let the client in.

// asked begins a call and a watch that has lost its node, and gives what ends them.
func asked(t *testing.T, client *Client, path Path, watch *Watch) map[string]chan error {
	t.Helper()
	ended := map[string]chan error{"get": make(chan error, 1), "watch": make(chan error, 1)}
	go func() { _, err := client.Get(t.Context(), path, nil); ended["get"] <- err }()
	go func() { ended["watch"] <- nextError(watch) }()
	return ended
}

// goOn checks that neither has ended before the node lets the client in, and that both go on there then.
func goOn(t *testing.T, node *scripted, watch *Watch, ended map[string]chan error) {
	t.Helper()
	if len(ended["get"])+len(ended["watch"]) > 0 {
		t.Fatal("it ended before the node let it in")
	}
	node.letIn()
	if err := <-ended["get"]; err != nil {
		t.Error(err)
	}
	until(t, func() bool { return watch.Node() == node.name })
	watch.Close()
	wantError(t, <-ended["watch"], ErrClosed)
}

// nextError is what ends a watch.
func nextError(watch *Watch) error {
	for {
		if _, err := watch.Next(context.Background()); err != nil {
			return err
		}
	}
}

// isAtBoth waits until the client has a connection to each node, so that it opens no other one.
func isAtBoth(t *testing.T, client *Client) {
	t.Helper()
	for _, to := range client.topology.routing().targets {
		until(t, func() bool {
			_, err := client.pool.get(t.Context(), to.address, now()+20*time.Second)
			return err == nil
		})
	}
}

// logins is how often clients have tried to log in there.
func logins(node *scripted) int { return len(node.actions("auth")) }

// What a node means that makes a login wait, or is full, is told by what it said less than a minute ago.
func TestTooManyIsARefusalOnlySoonAfterOne(t *testing.T) {
	config := quick()
	refusal := tryErrorf(tryNoAccess, "cannot get into it")
	waits, full := &tryError{kind: tryConnect, code: "too_many", waits: true}, &tryError{kind: tryConnect, code: "too_many"}
	down := tryErrorf(tryConnect, "cannot connect")
	closed := func(code string) *conn {
		c := new(conn)
		c.ended.Store(&tryError{kind: tryLost, code: code, text: code})
		return c
	}
	for name, row := range map[string]struct {
		said []any // a failure; a connection that ends with this word, or is let in without one; or so much time
		last tryKind
		text string // part of it
	}{
		"it has refused it":                {[]any{refusal, waits}, tryNoAccess, "cannot get into it"},
		"it goes on":                       {[]any{refusal, waits, down, waits}, tryNoAccess, "cannot get into it"},
		"that was long ago":                {[]any{refusal, shutRecent, waits}, tryConnect, ""},
		"waiting itself is no refusal":     {[]any{refusal, shutRecent / 2, waits, shutRecent / 2, waits}, tryConnect, ""},
		"it has closed a connection":       {[]any{"auth_required", waits}, tryNoAccess, "auth_required"},
		"so it has, denied":                {[]any{"denied", waits}, tryNoAccess, "denied"},
		"with a secret that changed":       {[]any{"auth_failed", waits}, tryNoAccess, "auth_failed"},
		"long ago":                         {[]any{"auth_required", shutRecent, waits}, tryConnect, ""},
		"since it was full":                {[]any{"too_many", waits}, tryConnect, ""},
		"without a word":                   {[]any{"", waits}, tryConnect, ""},
		"it has let it in since":           {[]any{"auth_required", nil, waits}, tryConnect, ""},
		"that is no refusal by itself":     {[]any{"auth_required", down}, tryConnect, ""},
		"who is full has never refused it": {[]any{refusal, "auth_required", full}, tryConnect, ""},
		"it was not met":                   {[]any{&tryError{kind: tryNoAccess, notMet: true}, waits}, tryConnect, ""},
		"the client refuses it itself":     {[]any{inPlaintext(address{}, "password"), waits}, tryConnect, ""},
		"nothing was said":                 {[]any{waits}, tryConnect, ""},
	} {
		var of slot
		for _, said := range row.said {
			switch said := said.(type) {
			case *tryError:
				of.dropEnded()
				of.noteFailure(said, &config)
			case string:
				of.conns = append(of.conns, closed(said))
			case time.Duration:
				of.dropEnded()
				of.shutAt -= said
			case nil:
				of.letIn(new(conn))
			}
		}
		if found := of.failure; found.kind != row.last || !strings.Contains(found.text, row.text) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// A node that is full says so instead of greeting, and closes the connection: both may be there when a client looks.
func TestWhatANodeSaysAsItClosesIsHeard(t *testing.T) {
	c := &conn{done: make(chan struct{})}
	c.ended.Store(tryErrorf(tryLost, "EOF"))
	close(c.done)
	said := must[[]byte](t)(Encode(with(errorReply("too_many"), "seq", 0)))
	for range 100 {
		greets := make(chan message, 1)
		greets <- said
		if _, err := c.greeted(t.Context(), greets); err == nil || err.code != "too_many" {
			t.Fatal(err)
		}
	}
}

func TestANodeThatMakesALoginWaitIsNoHope(t *testing.T) {
	client, one, two, path := withLogin(t, quick())
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	two.refuseAndSay("too_many", "")
	one.refuseAndSay("auth_failed", "")
	started := time.Now()
	for name, ended := range asked(t, client, path, watch) {
		if failed := wantError(t, <-ended, ErrDenied); failed.Code != "no_access" || failed.Node != "s1" {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	if took := time.Since(started); took > 20*time.Second { // Of a minute.
		t.Error(took)
	}
}

// A node that makes a login wait has not refused it: where none has, clients go on, and say why they wait.
func TestALoginThatWaitsEverywhereIsNotRefused(t *testing.T) {
	client, one, two, path := withLogin(t, quick())
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	both := []*scripted{one, two}
	for _, node := range both {
		node.refuseAndSay("too_many", "")
	}
	before := logins(one) + logins(two)
	ended := asked(t, client, path, watch)
	until(t, func() bool { return len(ended["get"])+len(ended["watch"]) > 0 || logins(one)+logins(two) > before+5 })
	const told = "makes this login wait"
	short := client.config
	short.ConnectDeadline = 3 * time.Second
	for name, ask := range map[string]func() error{
		"get": func() error {
			_, err := client.Get(t.Context(), path, &GetOptions{Timeout: time.Second})
			return err
		},
		"freshest": func() error {
			_, err := client.Get(t.Context(), path, &GetOptions{Read: Freshest, Timeout: time.Second})
			return err
		},
		"conflicts": func() error { _, err := client.ConflictsList(t.Context(), path); return err },
		"connect":   func() error { _, err := Connect(t.Context(), short); return err },
	} {
		err := ask()
		if failed := new(Error); !errors.As(err, &failed) || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), told) {
			t.Errorf("%s: %v", name, err)
		}
	}
	goOn(t, one, watch, ended)
}

// What a node says as it closes a connection tells what it means by making the next login wait.
func TestALoginThatWaitsIsRefusedWhereTheNodeHasJustClosedItsConnection(t *testing.T) {
	client, one, two, path := withLogin(t, quick())
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	isAtBoth(t, client)
	one.refuseAndSay("too_many", "auth_required")
	two.refuseAndSay("too_many", "denied")
	started := time.Now()
	for name, ended := range asked(t, client, path, watch) {
		failed := wantError(t, <-ended, ErrDenied)
		if failed.Code != "no_access" || !strings.Contains(failed.Error(), "makes this login wait") {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	if took := time.Since(started); took > 20*time.Second { // Of a minute.
		t.Error(took)
	}
	// The word alone is no refusal: who is let in is, and then the word is forgotten.
	one.letIn()
	two.letIn()
	isAtBoth(t, client)
	one.refuseAndSay("", "auth_required")
	two.refuseAndSay("", "auth_required")
	if _, err := client.Get(t.Context(), path, nil); err != nil {
		t.Error(err)
	}
}

// A node closes a connection on which nobody logs in for long. That is no word about who did not come to it.
func TestANodeThatHangsUpOnALoginHasNotRefusedIt(t *testing.T) {
	client, one, two, path := withLogin(t, quick())
	for how, told := range map[string]string{tooSlow: "", "too_many": "makes this login wait"} {
		one.refuseAndSay(how, "")
		two.refuseAndSay(how, "")
		until(t, func() bool { return client.Stats().Pool.Connections == 0 })
		_, err := client.Get(t.Context(), path, &GetOptions{Timeout: 2 * time.Second})
		if failed := wantError(t, err, ErrUnavailable); !strings.Contains(failed.Error(), told) {
			t.Errorf("%s: %v", how, failed)
		}
		one.letIn()
		two.letIn()
		isAtBoth(t, client)
	}
}

// A node that is full may let the client in once there is room, whatever it has said before.
func TestANodeThatIsFullMayLetTheClientIn(t *testing.T) {
	for _, how := range []string{full, crowded} {
		t.Run(how, func(t *testing.T) {
			client, one, two, path := withLogin(t, quick())
			watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
			defer watch.Close()
			two.refuse("auth_failed")
			one.refuse("auth_failed")
			until(t, func() bool { _, err := client.Get(t.Context(), path, nil); return errors.Is(err, ErrDenied) })
			one.letIn()
			two.letIn()
			until(t, func() bool { _, err := client.Get(t.Context(), path, nil); return err == nil })
			watch = must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
			defer watch.Close()
			isAtBoth(t, client)
			one.refuse("auth_failed")
			two.refuse(how) // It says an access error as it closes the connection, too.
			until(t, func() bool { return client.Stats().Pool.Connections == 0 })
			failed := func() uint64 { return client.Stats().Pool.Failed }
			ended, before := asked(t, client, path, watch), failed()
			until(t, func() bool { return len(ended["get"])+len(ended["watch"]) > 0 || failed() > before+8 })
			goOn(t, two, watch, ended)
		})
	}
}

// A dozen clients of one user come back at once when it is removed: nodes make most of them wait, and all are told.
func TestAllClientsOfAUserThatIsRemovedAreToldSoon(t *testing.T) {
	const clients, bound = 12, time.Minute
	u := withUsers(t, 3)
	all := make([]*Client, clients)
	watches := make([]*Watch, clients)
	for i := range all {
		all[i] = connect(t, Config{Seeds: u.nodes.Seeds(), Login: PasswordLogin("bob", "bob's secret"),
			Retry: RetryPolicy{TotalDeadline: 2 * time.Minute}})
		allLive(t, all[i], 3)
		watches[i] = openWatch(t, all[i], MustPath("open.x"), nil)
		collect(t, watches[i], is[UpToDate])
	}
	type told struct {
		what string
		err  error
		at   time.Time
	}
	ends := make(chan told, 2*clients)
	for i, client := range all {
		go func() { err := nextError(watches[i]); ends <- told{"watch", err, time.Now()} }()
		go func() {
			for {
				if _, err := client.Get(t.Context(), PathOf("open", i), nil); err != nil && !errors.Is(err, ErrNotFound) {
					ends <- told{"call", err, time.Now()}
					return
				}
				time.Sleep(200 * time.Millisecond) // Neither the nodes nor the others are to starve.
			}
		}()
	}
	command(t, append([]string{"user", "remove", "bob"}, u.ann...)...)
	removed := time.Now()
	last := time.Duration(0)
	for range 2 * clients {
		end := <-ends
		if failed := wantError(t, end.err, ErrDenied); failed.Code != "no_access" {
			t.Errorf("%s: %v", end.what, failed)
		}
		last = max(last, end.at.Sub(removed))
	}
	t.Log("the last one was told after", last)
	if last > bound {
		t.Error("it took", last)
	}
}

// Others that try wrong secrets of a user make its logins wait, and keep nobody out who has the right one.
func TestOthersWithTheWrongSecretKeepNobodyOut(t *testing.T) {
	u := withUsers(t, 2)
	wrong := Config{Seeds: u.nodes.Seeds(), Login: PasswordLogin("bob", "bob's secret"),
		Pool: PoolConfig{ProbeTimeout: time.Minute}} // No node is taken for dead.
	client := connect(t, wrong)
	watch := openWatch(t, client, MustPath("open.x"), nil)
	collect(t, watch, is[UpToDate])
	secret := filepath.Join(u.folder, "new")
	if err := os.WriteFile(secret, []byte("another secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, append([]string{"user", "password", "bob", "--new-secret-file", secret}, u.ann...)...)
	right := wrong
	right.Login, right.ConnectDeadline = PasswordLogin("bob", "another secret"), 2*time.Minute
	wrong.ConnectDeadline = 3 * time.Second
	var others sync.WaitGroup
	var guesses atomic.Int64
	var mu sync.Mutex
	isMadeToWait := false
	for range 12 {
		others.Go(func() {
			for range 20 {
				guess := wrong // The same wrong secret again would be no further guess.
				guess.Login = PasswordLogin("bob", "guess "+strconv.FormatInt(guesses.Add(1), 10))
				other, err := Connect(t.Context(), guess)
				if err == nil { // A node that has not heard of the new secret.
					_ = other.Close(context.Background())
					continue
				}
				mu.Lock()
				isMadeToWait = isMadeToWait || strings.Contains(err.Error(), "makes this login wait")
				isEnough := isMadeToWait
				mu.Unlock()
				if isEnough {
					return
				}
			}
		})
	}
	others.Wait()
	if !isMadeToWait {
		t.Error("no node has made a login wait")
	}
	put(t, connect(t, Config{Seeds: u.nodes.Seeds(), Login: PasswordLogin("ann", "ann's secret")}), MustPath("open.x"), 3, nil)
	if found := get[int](t, connect(t, right), MustPath("open.x")); found != 3 {
		t.Error(found)
	}
	// Who was in before has stayed.
	if found := collect(t, watch, is[Change])[0].(Change); found.Deleted {
		t.Error(found)
	}
	if found := get[int](t, client, MustPath("open.x")); found != 3 || client.Stats().Pool.Lost > 0 || client.Stats().Watches.Lost > 0 {
		t.Error(found, client.Stats())
	}
}
