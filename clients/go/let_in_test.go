package distkv

import (
	"context"
	"errors"
	"strings"
	"sync"
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
		until(t, func() bool { return client.pool.ready(place{address: where}, forCall) == nil })
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
		if took := time.Since(started); took > patient { // Of the minute that a call may take.
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
	if failed := wantError(t, err, ErrDenied); failed.Code != "no_access" || failed.Node != "s1" || time.Since(started) > patient {
		t.Errorf("%+v after %v", failed, time.Since(started))
	}
	_, err = client.ConflictsList(t.Context(), path)
	wantError(t, err, ErrDenied)
}

func TestARefusalIsNotFinalWhileAnotherNodeLetsTheClientIn(t *testing.T) {
	const attempts = 20 // No try is the last one since the call's time has cut it off.
	policy := RetryPolicy{InitialDelay: time.Millisecond, DelayMax: 10 * time.Millisecond, TotalDeadline: time.Minute}
	client, one, two, path := withLogin(t, Config{Retry: policy})
	policy.AttemptsMax = attempts
	bounded := connect(t, Config{Seeds: client.config.Seeds, Login: client.config.Login, Retry: policy})
	allLive(t, bounded, 2)
	one.refuse("auth_failed")
	for _, each := range []*Client{client, bounded} { // What is sent on a connection before its end is seen may have been done.
		until(t, func() bool {
			told := each.Stats()
			return told.Pool.Connections == 1 && told.Topology.Watching == two.listener.Addr().String()
		})
	}
	two.mu.Lock()
	two.script = always(errorReply("not_ready"))
	two.mu.Unlock()
	ask := map[string]func(client *Client) error{
		"put": func(client *Client) error { _, err := client.Put(t.Context(), path, 1, nil); return err },
		"get": func(client *Client) error { _, err := client.Get(t.Context(), path, nil); return err },
	}
	for name, ask := range ask {
		failed := wantError(t, ask(bounded), ErrUnavailable)
		if failed.Attempts != attempts || errors.Is(failed, ErrDenied) {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	_, err := client.ConflictsList(t.Context(), path)
	if wantError(t, err, ErrUnavailable); errors.Is(err, ErrDenied) {
		t.Error(err)
	}
	until(t, func() bool { // A slow machine may use up the time before the first one has refused it.
		_, err := client.Get(t.Context(), path, &GetOptions{Read: Freshest, Timeout: 300 * time.Millisecond})
		if err == nil || errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
		return errors.Is(err, ErrNoMajority) && strings.Contains(err.Error(), "cannot get into")
	})
	time.AfterFunc(50*time.Millisecond, one.letIn)
	for name, ask := range ask {
		if err := ask(client); err != nil {
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

// The last try of a call is cut off where its time is over. What the node said before that says more.
func TestWhyANodeLetsNobodyInIsToldAlsoWhereTimeCutsOffTheLastTry(t *testing.T) {
	config := quick()
	config.Pool.ConnectTimeout = time.Hour // No attempt fails by itself.
	client, one, two, path := withLogin(t, config)
	two.mu.Lock()
	two.script = always(errorReply("not_ready"))
	two.mu.Unlock()
	one.refuse("auth_failed")
	where := client.topology.routing().byName["s1"].address
	until(t, func() bool {
		_, err := client.pool.get(t.Context(), where, now()+time.Second)
		return err != nil && err.kind == tryNoAccess
	})
	one.mu.Lock()
	one.refuses = silently
	one.mu.Unlock()
	until(t, func() bool { return !client.pool.isFailing(where) })
	for mode, kind := range map[ReadMode]error{Preferred: ErrUnavailable, Freshest: ErrNoMajority} {
		_, err := client.Get(t.Context(), path, &GetOptions{Read: mode, Timeout: time.Second})
		if wantError(t, err, kind); errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "cannot get into") {
			t.Error(mode, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = client.Get(ctx, path, &GetOptions{Read: mode})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "cannot get into") {
			t.Error(mode, err)
		}
	}
}

func TestConnectingIsRefusedByAllSeedsOnly(t *testing.T) {
	refusing := func(name string) *scripted { return &scripted{name: name, asksLogin: true, refuses: "auth_failed"} }
	ann := PasswordLogin("ann", "x")
	all := startScripted(t, refusing("s1"), refusing("s2"))
	_, err := Connect(t.Context(), Config{Seeds: all, Login: ann, ConnectDeadline: time.Minute})
	wantError(t, err, ErrDenied)
	// A node that has not caught up lets it in: it is better than none.
	mixed := startScripted(t, refusing("s1"), &scripted{name: "s2", asksLogin: true, isEmpty: true})
	if view := connect(t, Config{Seeds: mixed, Login: ann}).ClusterView(); view.Source != "s2" {
		t.Error(view)
	}
	// Where one cannot be reached, or makes the login wait, it is not final before time is up, and told all the same.
	waiting := startScripted(t, &scripted{name: "s3", asksLogin: true, refuses: "too_many"})[0]
	const dead = "127.0.0.1:1" // A port that was in use may be another test's by then.
	var connecting sync.WaitGroup
	for _, seeds := range [][]string{{all[0], dead}, {dead, all[0]}, {all[0], waiting}, {waiting, all[0]}} {
		connecting.Go(func() {
			_, err := Connect(t.Context(), Config{Seeds: seeds, Login: ann, ConnectDeadline: 4 * time.Second})
			if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "cannot get into") {
				t.Error(err)
			}
		})
	}
	connecting.Wait()
}

// cutOff is a client that the first of two nodes refuses, while the second one does not answer its login; calls; and whether a
// login is under way there.
func cutOff(t *testing.T, config Config) (client *Client, asks map[string]func() error, isWaiting func() bool) {
	t.Helper()
	// What failed is tried again at once.
	config.Pool = PoolConfig{FailureMemory: time.Millisecond, FailureMemoryMax: time.Millisecond, ConnectTimeout: time.Hour}
	client, one, two, path := withLogin(t, config)
	ctx := t.Context()
	asks = map[string]func() error{
		"put":       func() error { _, err := client.Put(ctx, path, 1, nil); return err },
		"get":       func() error { _, err := client.Get(ctx, path, nil); return err },
		"freshest":  func() error { _, err := client.Get(ctx, path, &GetOptions{Read: Freshest}); return err },
		"conflicts": func() error { _, err := client.ConflictsList(ctx, path); return err },
	}
	before := len(two.actions("auth"))
	one.refuse("auth_failed")
	two.refuse(silently)
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	return client, asks, func() bool { return len(two.actions("auth")) > before }
}

func TestACallWhoseTimeIsOverIsNotRefused(t *testing.T) {
	_, asks, _ := cutOff(t, Config{Retry: RetryPolicy{TotalDeadline: 300 * time.Millisecond}})
	for name, ask := range asks {
		kind := ErrUnavailable
		if name == "freshest" {
			kind = ErrNoMajority
		}
		if err := ask(); !errors.Is(err, kind) || errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestACallOfAClientThatIsClosedIsNotRefused(t *testing.T) {
	for _, name := range []string{"put", "get", "freshest", "conflicts"} {
		client, asks, isWaiting := cutOff(t, Config{Retry: RetryPolicy{TryDeadline: time.Hour, TotalDeadline: time.Hour}, CloseGrace: 100 * time.Millisecond})
		ended := make(chan error, 1)
		open := func() int {
			client.caller.calls.mu.Lock()
			defer client.caller.calls.mu.Unlock()
			return client.caller.calls.count
		}
		until(t, isWaiting)
		before, calls := client.caller.counters.node("s2").tries.Load(), open()
		go func() { ended <- asks[name]() }()
		until(t, func() bool {
			if name == "put" || name == "get" {
				return client.caller.counters.node("s2").tries.Load() > before && isWaiting()
			}
			return open() > calls && isWaiting() // And the other node refuses it within the grace.
		})
		_ = client.Close(t.Context())
		if err := <-ended; !errors.Is(err, ErrClosed) || errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node refuses at first, lets the client in later, and then none can be reached: none refuses it any more.
func TestARefusalThatNoLongerStandsIsNotTold(t *testing.T) {
	for _, action := range []string{"get_value", "watch"} {
		t.Run(action, func(t *testing.T) {
			client, one, two, path := withLogin(t, quick())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			watch := must[*Watch](t)(client.OpenWatch(ctx, path, nil))
			defer watch.Close()
			ask := func() error { _, err := watch.Next(ctx); return err }
			if action == "get_value" {
				ask = func() error { _, err := client.Get(ctx, path, nil); return err }
			}
			failures := func() uint64 { return client.caller.counters.failed[classUnavailable].Load() }
			notReady := func(node *scripted) {
				node.mu.Lock()
				defer node.mu.Unlock()
				node.script = always(errorReply("not_ready"))
			}
			notReady(one)
			notReady(two)
			one.refuse("auth_failed")
			ended := make(chan error, 1)
			before := failures()
			go func() { ended <- ask() }()
			both := func() { // Each has been asked since: one after the other, in turns.
				t.Helper()
				until(t, func() bool { return len(ended) > 0 || failures() >= before+6 })
				if len(ended) > 0 {
					t.Fatal(<-ended)
				}
			}
			both()
			asked := len(one.actions(action))
			one.letIn()
			until(t, func() bool { return len(one.actions(action)) > asked })
			one.stop()
			two.stop()
			before = failures()
			both()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestFreshestIsRefusedWhereAllRefuseThatHaveNotAnswered(t *testing.T) {
	nodes := make([]*scripted, 3)
	for i, name := range []string{"s1", "s2", "s3"} {
		nodes[i] = &scripted{name: name, asksLogin: true}
	}
	client := connect(t, Config{Seeds: startScripted(t, nodes...), Login: PasswordLogin("ann", "x"), Retry: RetryPolicy{TotalDeadline: time.Minute},
		Pool: PoolConfig{FailureMemory: time.Millisecond, FailureMemoryMax: time.Millisecond}})
	allLive(t, client, 3)
	ask := func(failed string) {
		t.Helper()
		started := time.Now()
		_, err := client.Get(t.Context(), PathOf("a"), &GetOptions{Read: Freshest})
		if told := wantError(t, err, ErrDenied); told.Code != "no_access" || told.Node != failed {
			t.Errorf("%+v", told)
		}
		if took := time.Since(started); took > patient { // Of the minute that it may take.
			t.Error(took)
		}
	}
	nodes[1].refuse("auth_failed")
	nodes[2].refuse("auth_failed")
	until(t, func() bool { return client.Stats().Pool.Connections == 1 })
	ask("s2")
	nodes[1].stop()
	where := client.topology.routing().byName["s2"].address
	until(t, func() bool { return !client.pool.isFailing(where) }) // From then on its refusal is forgotten.
	ask("s3")
}

// What counts is what each of the present nodes said last.
func TestTheVerdictIsOfWhatThePresentNodesSaidLast(t *testing.T) {
	one, two, left := &target{name: "s1", address: address{"h", 1}}, &target{name: "s2", address: address{"h", 2}}, &target{name: "s3", address: address{"h", 3}}
	const (
		notMet = 100 + iota // a refusal before the greeting
		waits               // it makes the login wait
		full
	)
	type said struct {
		by   *target
		kind tryKind
	}
	for name, row := range map[string]struct {
		all  []said
		told string
	}{
		"one has said nothing":       {[]said{{one, tryNoAccess}}, ""},
		"both refuse":                {[]said{{two, tryNoAccess}, {one, tryNoAccess}}, "s1"},
		"one cannot be reached":      {[]said{{one, tryConnect}, {two, tryNoAccess}}, "s2"},
		"one is lost":                {[]said{{one, tryNoAccess}, {two, tryLost}}, "s1"},
		"one is silent":              {[]said{{one, tryNoAccess}, {two, tryTimedOut}}, ""},
		"one cannot do it":           {[]said{{one, tryNoAccess}, {two, tryServer}}, ""},
		"none refuses":               {[]said{{one, tryConnect}, {two, tryLost}}, ""},
		"none refuses any more":      {[]said{{one, tryNoAccess}, {one, tryServer}, {one, tryConnect}, {two, tryConnect}}, ""},
		"one makes it wait":          {[]said{{one, waits}, {two, tryNoAccess}}, "s2"},
		"all make it wait":           {[]said{{one, waits}, {two, waits}}, ""},
		"one is full":                {[]said{{one, full}, {two, tryNoAccess}}, ""},
		"one was full":               {[]said{{one, full}, {two, tryNoAccess}, {one, tryConnect}}, "s2"},
		"only one that left refuses": {[]said{{left, tryNoAccess}, {one, tryConnect}, {two, tryConnect}}, ""},
		"who refuses was not met":    {[]said{{one, notMet}, {two, tryConnect}}, ""},
		"none was met":               {[]said{{one, notMet}, {two, notMet}}, "s1"},
		"one was met":                {[]said{{one, notMet}, {two, tryNoAccess}}, "s2"},
	} {
		var of refusers
		for _, one := range row.all {
			err := &tryError{kind: one.kind}
			switch one.kind {
			case notMet:
				err = &tryError{kind: tryNoAccess, notMet: true}
			case waits, full:
				err = &tryError{kind: tryConnect, code: "too_many", waits: one.kind == waits}
			}
			of.onFailure(one.by, err)
		}
		found := of.verdict([]*target{one, two})
		if (found == nil) != (row.told == "") || (found != nil && found.node != row.told) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
