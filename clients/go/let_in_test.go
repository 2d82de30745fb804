package distkv

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Who lets a client in: that one node refuses it is not final, that all do is, at once.

// withLogin is two nodes that ask for a login, and a client that is in; calls about the path come first to the first one.
func withLogin(t *testing.T, config Config) (*Client, *scripted, *scripted, Path) {
	t.Helper()
	stream := func(request message) any {
		switch request.text("action") {
		case "watch", "msg_monitor":
			return several{{"state": "start"}}
		case "get_tree":
			return several{{"state": "start"}, {"state": "end"}}
		case "conflicts":
			return several{{"state": "start"}, {"state": "end"}}
		}
		return with(writtenReply, "value", "there")
	}
	one, two := &scripted{name: "s1", asksLogin: true, script: stream}, &scripted{name: "s2", asksLogin: true, script: stream}
	config.Seeds, config.Login = startScripted(t, one, two), PasswordLogin("ann", "x")
	client := connect(t, config)
	allLive(t, client, 2)
	return client, one, two, preferredPath(t, client, "s1")
}

func TestAnotherNodeServesWhomOneRefuses(t *testing.T) {
	client, one, two, path := withLogin(t, Config{})
	gone := func(node *scripted) {
		where := client.topology.routing().byName[node.name].address
		until(t, func() bool { return client.pool.ready(where) == nil })
	}
	one.refuse("auth_failed")
	gone(one)
	if written := put(t, client, path, 1, nil); written.Node != "s2" {
		t.Errorf("%+v", written)
	}
	if found := get[string](t, client, path); found != "there" {
		t.Error(found)
	}
	found, err := client.ConflictsList(t.Context(), path)
	if err != nil || len(found.Nodes) != 1 || len(found.Missing) != 1 {
		t.Error(found, err)
	}
	until(t, func() bool { return client.Stats().Topology.Watching == two.listener.Addr().String() })
	// And it is asked again, as after any failed connect.
	one.letIn()
	until(t, func() bool { return put(t, client, path, 1, nil).Node == "s1" })
	// Streams that lose their node come to the one that refuses them first.
	for _, follower := range followers {
		ctx, cancel := context.WithCancel(t.Context())
		next, of, err := follower.open(client, ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer of.Close()
		from, _ := of.now()
		at, other := one, two
		if from.conn.name == "s2" {
			at, other = two, one
		}
		other.refuse("auth_failed")
		gone(other)
		at.hangUp()
		ended := make(chan error, 1)
		go func() { ended <- next(ctx) }()
		until(t, func() bool {
			found, _ := of.now()
			return len(ended) > 0 || (found != nil && found != from)
		})
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", follower.action, err)
		}
		other.letIn()
	}
}

func TestWhomAllNodesRefuseIsToldAtOnce(t *testing.T) {
	client, one, two, path := withLogin(t, Config{Pool: PoolConfig{FailureMemory: time.Hour, FailureMemoryMax: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	watch := must[*Watch](t)(client.OpenWatch(ctx, path, nil))
	defer watch.Close()
	monitor := must[*Monitor](t)(client.OpenMonitor(ctx, path))
	defer monitor.Close()
	before := len(one.actions("auth")) + len(two.actions("auth"))
	one.refuse("auth_failed")
	two.refuse("auth_failed")
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	asks := operations(client, path)
	delete(asks, "connect") // It is another client's.
	delete(asks, "shards")  // They are fetched behind it.
	asks["freshest"] = func(ctx context.Context) error {
		_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
		return err
	}
	asks["watch that is open"] = func(ctx context.Context) error { _, err := watch.Next(ctx); return err }
	asks["monitor that is open"] = func(ctx context.Context) error { _, err := monitor.Next(ctx); return err }
	for name, ask := range asks {
		started := time.Now()
		failed := wantError(t, ask(ctx), ErrDenied)
		if failed.Code != "no_access" || failed.Fate != NotDone || failed.Node == "" {
			t.Errorf("%s: %+v", name, failed)
		}
		if took := time.Since(started); took > 5*time.Second { // Of 10 s that a call may take.
			t.Errorf("%s: not at once, but after %v", name, took)
		}
	}
	if logins := len(one.actions("auth")) + len(two.actions("auth")) - before; logins > 2 {
		t.Error("logins since then:", logins)
	}
}

func TestARefusalIsToldWhereAllOthersCannotBeReached(t *testing.T) {
	client, one, two, path := withLogin(t, Config{})
	two.stop()
	one.refuse("auth_failed")
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	started := time.Now()
	_, err := client.Get(t.Context(), path, nil)
	if failed := wantError(t, err, ErrDenied); failed.Code != "no_access" || failed.Node != "s1" || time.Since(started) > 5*time.Second {
		t.Errorf("%+v after %v", failed, time.Since(started))
	}
	_, err = client.ConflictsList(t.Context(), path)
	wantError(t, err, ErrDenied)
}

func TestARefusalIsNotFinalWhileAnotherNodeLetsTheClientIn(t *testing.T) {
	client, one, two, path := withLogin(t, Config{Retry: RetryPolicy{InitialDelay: time.Millisecond, DelayMax: 10 * time.Millisecond}})
	one.refuse("auth_failed")
	until(t, func() bool {
		told := client.Stats()
		return told.Pool.Connections == 1 && told.Topology.Watching == two.listener.Addr().String()
	})
	two.mu.Lock()
	two.script = always(errorReply("not_ready"))
	two.mu.Unlock()
	ask := map[string]func(timeout time.Duration) error{
		"put": func(timeout time.Duration) error {
			_, err := client.Put(t.Context(), path, 1, &PutOptions{Timeout: timeout})
			return err
		},
		"get": func(timeout time.Duration) error {
			_, err := client.Get(t.Context(), path, &GetOptions{Timeout: timeout})
			return err
		},
	}
	for name, ask := range ask {
		failed := wantError(t, ask(300*time.Millisecond), ErrUnavailable)
		if failed.Attempts < 5 || errors.Is(failed, ErrDenied) {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	_, err := client.ConflictsList(t.Context(), path)
	if wantError(t, err, ErrUnavailable); errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	_, err = client.Get(t.Context(), path, &GetOptions{Read: Freshest, Timeout: 300 * time.Millisecond})
	if wantError(t, err, ErrNoMajority); errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "cannot get into") {
		t.Error(err)
	}
	time.AfterFunc(50*time.Millisecond, one.letIn)
	for name, ask := range ask {
		if err := ask(20 * time.Second); err != nil {
			t.Error(name, err)
		}
	}
}

// A node lets those wait whom it has refused often, and says no more than that.
func TestWhoIsRefusedTooOftenIsStillRefused(t *testing.T) {
	client, one, two, path := withLogin(t, quick())
	for _, code := range []string{"auth_failed", "too_many"} {
		before := len(one.actions("auth"))
		one.refuse(code)
		two.refuse(code)
		until(t, func() bool { return client.Stats().Pool.Connections == 0 })
		until(t, func() bool {
			_, err := client.Get(t.Context(), path, nil)
			wantError(t, err, ErrDenied)
			return len(one.actions("auth")) > before+3
		})
	}
	one.letIn()
	two.letIn()
	until(t, func() bool { _, err := client.Get(t.Context(), path, nil); return err == nil })
}

func TestConnectingIsRefusedByAllSeedsOnly(t *testing.T) {
	refusing := func(name string) *scripted { return &scripted{name: name, asksLogin: true, refuses: "auth_failed"} }
	ann := PasswordLogin("ann", "x")
	all := startScripted(t, refusing("s1"), refusing("s2"))
	_, err := Connect(t.Context(), Config{Seeds: all, Login: ann})
	wantError(t, err, ErrDenied)
	// A node that has not caught up lets it in: it is better than none.
	mixed := startScripted(t, refusing("s1"), &scripted{name: "s2", asksLogin: true, isEmpty: true})
	if view := connect(t, Config{Seeds: mixed, Login: ann}).ClusterView(); view.Source != "s2" {
		t.Error(view)
	}
	// Where one cannot be reached, it is not final before time is up, and told all the same.
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	dead := silent.Addr().String()
	_ = silent.Close()
	for _, seeds := range [][]string{{all[0], dead}, {dead, all[0]}} {
		_, err = Connect(t.Context(), Config{Seeds: seeds, Login: ann, ConnectDeadline: 300 * time.Millisecond})
		failed := wantError(t, err, ErrUnavailable)
		if errors.Is(failed, ErrDenied) || !strings.Contains(failed.Error(), "cannot get into") {
			t.Error(err)
		}
	}
}
