package distkv

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestCallsGoOnWhenANodeIsKilled(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds()})
	allLive(t, client, 3)
	path := MustPath("k")
	for number := range 60 {
		put(t, client, path.MustJoin(number), number, &PutOptions{Copies: 2})
	}
	preferred := client.Preferred(path)
	nodes.ByName(preferred).Kill()
	for number := range 60 {
		if found := get[int](t, client, path.MustJoin(number)); found != number {
			t.Error(found)
		}
		put(t, client, path.MustJoin(number), number+1, nil)
	}
	allLive(t, client, 2)
	if client.Preferred(path) == preferred {
		t.Error("a dead node is preferred")
	}
}

func TestANodeThatJoinsAndOneThatGoesAreToldInOneEventEach(t *testing.T) {
	nodes := cluster(t, 2)
	client := connect(t, Config{Seeds: nodes.Seeds()[:1]})
	allLive(t, client, 2)
	var mu sync.Mutex
	var events []TopologyChange
	stop := must[func()](t)(client.OnTopologyChange(func(change TopologyChange) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, change)
	}))
	must[func()](t)(client.OnTopologyChange(func(TopologyChange) { panic("a listener's own") }))
	if _, err := nodes.Add(""); err != nil {
		t.Fatal(err)
	}
	allLive(t, client, 3)
	nodes.ByName("n3").Kill()
	allLive(t, client, 2)
	until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		if len(events) == 0 {
			return false
		}
		last := events[len(events)-1]
		return slices.ContainsFunc(last.Moved, func(move Move) bool { return move.Before == "n3" })
	})
	stop()
	mu.Lock()
	added, gained := 0, false
	for i, event := range events {
		if event.PreviousEpoch >= event.Epoch || (i > 0 && event.Epoch <= events[i-1].Epoch) {
			t.Error("epochs rise by each view:", event.PreviousEpoch, event.Epoch)
		}
		added += len(event.Added)
		gained = gained || slices.ContainsFunc(event.Moved, func(move Move) bool { return move.After == "n3" })
	}
	count := len(events)
	mu.Unlock()
	if added != 1 || !gained {
		t.Error(added, gained)
	}
	if _, err := nodes.Add("n4"); err != nil {
		t.Fatal(err)
	}
	allLive(t, client, 3)
	mu.Lock()
	defer mu.Unlock()
	if len(events) != count {
		t.Error("it was told after it was taken off")
	}
}

func TestOneSeedLearnsAllAndSurvivesItsEnd(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds()[:1]})
	allLive(t, client, 3)
	nodes.Nodes[0].Kill()
	put(t, client, MustPath("a"), 1, nil)
	if found := get[int](t, client, MustPath("a")); found != 1 {
		t.Error(found)
	}
}

func TestAFrozenNodeLosesItsCallersAndGetsThemBack(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds(), Pool: PoolConfig{ProbeAfter: time.Second, ProbeTimeout: 500 * time.Millisecond},
		Retry: RetryPolicy{TryDeadline: 500 * time.Millisecond}})
	allLive(t, client, 3)
	path := MustPath("f")
	put(t, client, path, 1, &PutOptions{Copies: 2})
	victim := nodes.ByName(client.Preferred(path))
	victim.Freeze()
	defer victim.Thaw()
	started := time.Now()
	if found := get[int](t, client, path); found != 1 || time.Since(started) > patient { // Of the minute that it may take.
		t.Error(found, time.Since(started))
	}
	var writing sync.WaitGroup
	for number := range 64 {
		writing.Go(func() {
			if _, err := client.Put(t.Context(), path.MustJoin(number), number, nil); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	until(t, func() bool { return client.Stats().Pool.SilentClosed >= 1 })
	victim.Thaw()
	allLive(t, client, 3)
	until(t, func() bool { return client.Preferred(path) == victim.Name })
	until(t, func() bool { return put(t, client, path, 2, nil).Node == victim.Name })
}

func TestAllAreGoneThenOneReturns(t *testing.T) {
	nodes := cluster(t, 2)
	client := connect(t, Config{Seeds: nodes.Seeds(), Retry: RetryPolicy{TotalDeadline: 4 * time.Second}})
	allLive(t, client, 2)
	for _, node := range nodes.Nodes {
		node.Kill()
	}
	path := MustPath("a")
	_, err := client.Put(t.Context(), path, 1, nil)
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrFateUnknown) {
		t.Error(err)
	}
	_, err = client.Get(t.Context(), path, nil)
	if failed := wantError(t, err, ErrUnavailable); failed.Fate != NotDone || failed.Attempts < 2 || failed.Node == "" {
		t.Errorf("%+v", failed)
	}
	if err := nodes.Nodes[0].Restart("run", "--peer-wait", "0s", "--network", nodes.Network); err != nil {
		t.Fatal(err)
	}
	put(t, client, path, 2, nil)
	if found := get[int](t, client, path); found != 2 {
		t.Error(found)
	}
}

func TestFreshestNeedsAMajority(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds()})
	allLive(t, client, 3)
	path := MustPath("m")
	put(t, client, path, 1, &PutOptions{Copies: 2})
	for _, victim := range nodes.Nodes[1:] {
		if found, err := Get[int](t.Context(), client, path, &GetOptions{Read: Freshest}); found != 1 || err != nil {
			t.Error(found, err)
		}
		victim.Kill()
	}
	_, err := client.Get(t.Context(), path, &GetOptions{Read: Freshest, Timeout: time.Second})
	if failed := wantError(t, err, ErrNoMajority); failed.Code != "no_majority" {
		t.Errorf("%+v", failed)
	}
}

func TestAWriteWaitsForCopiesOrSaysThatItIsNotConfirmed(t *testing.T) {
	client := connect(t, Config{Seeds: shared(t), Retry: RetryPolicy{TryDeadline: 4 * time.Second}})
	allLive(t, client, 3)
	path := base()
	_, err := client.Put(t.Context(), path, 1, &PutOptions{Copies: 5, Timeout: 7 * time.Second})
	if failed := wantError(t, err, ErrFateUnknown); failed.Fate != Unconfirmed || failed.Attempts < 1 {
		t.Errorf("%+v", failed)
	}
	if found := get[int](t, client, path); found != 1 {
		t.Error(found)
	}
}

func TestAThousandFirstCallsOpenOneConnection(t *testing.T) {
	nodes := []*scripted{{name: "s0"}, {name: "s1"}, {name: "s2"}}
	client := connect(t, Config{Seeds: startScripted(t, nodes...)})
	// To the node that neither the view nor the table of shards comes from: there is no connection yet.
	routing := client.topology.routing()
	used := []string{routing.view.Source, routing.preferredName(0)}
	at := slices.IndexFunc(nodes, func(node *scripted) bool { return !slices.Contains(used, node.name) })
	path := preferredPath(t, client, nodes[at].name)
	accepted := func() int {
		nodes[at].mu.Lock()
		defer nodes[at].mu.Unlock()
		return nodes[at].accepted
	}
	var calls sync.WaitGroup
	ask := func(count int) {
		for range count {
			calls.Go(func() {
				if _, err := client.Get(t.Context(), path, nil); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	if found := accepted(); found != 0 {
		t.Fatal(found)
	}
	if ask(60); accepted() != 1 {
		t.Error(accepted())
	}
	if ask(1000); accepted() > 2 {
		t.Error(accepted())
	}
}

// operations are all that a client does, once each.
func operations(client *Client, path Path) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"get":   func(ctx context.Context) error { _, err := client.Get(ctx, path, nil); return err },
		"entry": func(ctx context.Context) error { _, err := client.Entry(ctx, path, nil); return err },
		"freshest": func(ctx context.Context) error {
			_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
			return err
		},
		"put": func(ctx context.Context) error {
			_, err := client.Put(ctx, path, 2, &PutOptions{Copies: 1})
			return err
		},
		"delete": func(ctx context.Context) error { _, err := client.Delete(ctx, path.MustJoin("no"), nil); return err },
		"batch": func(ctx context.Context) error {
			_, err := client.Batch().Put(path, 1, nil).Get(path).Run(ctx, nil)
			return err
		},
		"tree": func(ctx context.Context) error {
			for _, err := range client.Tree(ctx, path, nil) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"tree list": func(ctx context.Context) error { _, err := client.TreeList(ctx, path, nil); return err },
		"watch": func(ctx context.Context) error {
			for event, err := range client.Watch(ctx, path, nil) {
				if err != nil {
					return err
				}
				if is[UpToDate](event) {
					break
				}
			}
			return nil
		},
		"monitor": func(ctx context.Context) error {
			monitor, err := client.OpenMonitor(ctx, path)
			if err == nil {
				monitor.Close()
			}
			return err
		},
		"conflicts": func(ctx context.Context) error { _, err := client.ConflictsList(ctx, path); return err },
		"conflicts one by one": func(ctx context.Context) error {
			for _, err := range client.Conflicts(ctx, path) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"children": func(ctx context.Context) error { _, err := client.Children(ctx, path); return err },
		"delete tree": func(ctx context.Context) error {
			_, err := client.DeleteTree(ctx, path.MustJoin("no"), nil)
			return err
		},
		"send":        func(ctx context.Context) error { return client.Send(ctx, path, 1) },
		"request":     func(ctx context.Context) error { _, err := client.Request(ctx, "status", nil, nil); return err },
		"list shards": func(ctx context.Context) error { _, err := client.ListShards(ctx); return err },
		"shards":      client.RefreshShards,
		"connect": func(ctx context.Context) error {
			other, err := Connect(ctx, Config{Seeds: client.config.Seeds})
			if err == nil {
				err = other.Close(ctx)
			}
			return err
		},
	}
}

// countdown is a context that ends when it was looked at so many times: so a call is cancelled at each place where it waits.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func countTo(ctx context.Context, looks int) *countdown {
	c := &countdown{}
	c.Context, c.cancel = context.WithCancel(ctx)
	c.left.Store(int64(looks))
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) <= 0 {
		c.cancel()
	}
}

func (c *countdown) Done() <-chan struct{} { c.look(); return c.Context.Done() }

func (c *countdown) Err() error { c.look(); return c.Context.Err() }

func TestEveryOperationCancelledAtEveryWaitLeavesNothing(t *testing.T) {
	client := sharedClient(t)
	path := base()
	put(t, client, path, 1, &PutOptions{Copies: 2})
	for name, operation := range operations(client, path) {
		for looks := 1; ; looks++ {
			ctx := countTo(t.Context(), looks)
			err := operation(ctx)
			isWhole := ctx.left.Load() > 0
			ctx.cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at wait %d: %v", name, looks, err)
			}
			if err == nil && isWhole {
				break
			}
			if looks > 200 {
				t.Errorf("%s never ends", name)
				break
			}
		}
		// And after a while, wherever it is then.
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
			_ = operation(ctx)
			cancel()
		}
	}
	put(t, client, path, "alive", nil)
	if found := get[string](t, client, path); found != "alive" {
		t.Error(found)
	}
	// What stays open is the watch of the cluster view.
	until(t, func() bool { return client.Stats().Pool.OpenRequests == 1 })
}

func TestOpenCallsMayEndWhenTheClientIsClosed(t *testing.T) {
	before := footprint()
	one := &scripted{name: "s1"}
	release := make(chan struct{})
	one.script = func(request message) any {
		<-release
		return writtenReply
	}
	client, err := Connect(t.Context(), Config{Seeds: startScripted(t, one), CloseGrace: patient, Retry: RetryPolicy{TryDeadline: patient}})
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 2)
	go func() {
		_, err := client.Put(t.Context(), PathOf("a"), 1, nil)
		result <- err
	}()
	until(t, func() bool { return len(one.actions("set_value")) == 1 })
	closing := make(chan error)
	go func() { closing <- client.Close(t.Context()) }()
	until(t, client.Closed)
	_, err = client.Put(t.Context(), PathOf("a"), 1, nil)
	wantError(t, err, ErrClosed)
	close(release)
	if err := <-result; err != nil {
		t.Error("an open call may end:", err)
	}
	if err := <-closing; err != nil {
		t.Error(err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Error("it may be closed again:", err)
	}
	one.stop()
	nothingLeft(t, before)
}

func TestCallsThatDoNotEndAreClosed(t *testing.T) {
	one := &scripted{name: "s1", script: always(silence{})}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	result := make(chan error, 1)
	go func() {
		_, err := client.Put(t.Context(), PathOf("a"), 1, nil)
		result <- err
	}()
	until(t, func() bool { return len(one.actions("set_value")) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_ = client.Close(ctx)
	if failed := wantError(t, <-result, ErrClosed); failed.Fate != Unknown || !errors.Is(failed, ErrFateUnknown) {
		t.Errorf("%+v", failed)
	}
}

func TestClosingAFrozenNodesClientLeavesNothing(t *testing.T) {
	nodes := cluster(t, 1)
	before := footprint()
	client, err := Connect(t.Context(), Config{Seeds: nodes.Seeds()})
	if err != nil {
		t.Fatal(err)
	}
	w := openWatch(t, client, MustPath("x"), nil)
	nodes.Nodes[0].Freeze()
	defer nodes.Nodes[0].Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	// More than the socket takes.
	for range 24 {
		calls.Go(func() { _, _ = client.Put(ctx, MustPath("x.y"), make([]byte, 1<<20), nil) })
	}
	calls.Wait()
	_ = client.Close(ctx)
	_, err = w.Next(t.Context())
	for err == nil {
		_, err = w.Next(t.Context())
	}
	wantError(t, err, ErrClosed)
	nothingLeft(t, before)
}

func TestNobodyListens(t *testing.T) {
	before := footprint()
	_, err := Connect(t.Context(), Config{Seeds: []string{"127.0.0.1:1"}, ConnectDeadline: 300 * time.Millisecond})
	wantError(t, err, ErrUnavailable)
	for _, bad := range []Config{{Seeds: []string{"x:y"}}, {Seeds: make([]string, SeedsMax+1)}, {ReadMode: "linearizable"},
		{Ticket: "x"}, {TLS: &TLS{}}} {
		_, err := Connect(t.Context(), bad)
		wantError(t, err, ErrUsage)
	}
	nothingLeft(t, before)
}

func TestConflictsAreFoundAndToldOnce(t *testing.T) {
	nodes := cluster(t, 2)
	path := MustPath("both")
	ends := make([]*Client, 2)
	for i, seed := range nodes.Seeds() {
		ends[i] = connect(t, Config{Seeds: []string{seed}, Topology: TopologyConfig{OnlySeeds: true}})
	}
	client := connect(t, Config{Seeds: nodes.Seeds()})
	allLive(t, client, 2)
	var found ConflictsFound
	until(t, func() bool {
		// At two nodes at once.
		var writing sync.WaitGroup
		for i, end := range ends {
			writing.Go(func() { put(t, end, path, i, nil) })
		}
		writing.Wait()
		found = must[ConflictsFound](t)(client.ConflictsList(t.Context(), Path{}))
		return len(found.Conflicts) > 0
	})
	one := found.Conflicts[0]
	if one.Path != path || one.Winner.Version.Compare(one.Loser.Version) <= 0 || len(found.Nodes) != 2 || len(found.Missing) != 0 {
		t.Errorf("%+v", found)
	}
	known := map[string]bool{}
	for conflict, err := range client.Conflicts(t.Context(), path) {
		if err != nil || known[conflict.key()] || conflict.Path != path {
			t.Error(conflict, err)
		}
		known[conflict.key()] = true
	}
	if !known[one.key()] {
		t.Error("it is told one by one, too")
	}
	nodes.Nodes[1].Freeze()
	defer nodes.Nodes[1].Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	found, err := client.ConflictsList(ctx, path)
	if err != nil || len(found.Nodes) != 1 || found.Missing["n2"] == nil {
		t.Error("who does not answer is named:", found, err)
	}
}
