package distkv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Nodes of another network: none is used, whatever it asks for, and a call goes on looking for those of its own.

// twoNetworks is a node each of the networks "a" and "b", which are prepared before they start.
func twoNetworks(t *testing.T, prepare func(one, other *scripted)) (one, other *scripted) {
	t.Helper()
	script := func(request message) any {
		switch request.text("action") {
		case "watch":
			return several{{"state": "start"}, {"state": "uptodate"}}
		case "msg_monitor":
			return several{{"state": "start"}}
		case "get_tree", "conflicts":
			return several{{"state": "start"}, {"state": "end"}}
		}
		return with(writtenReply, "value", "there")
	}
	one = &scripted{name: "s1", network: "a", script: script}
	other = &scripted{name: "s2", network: "b", script: script}
	if prepare != nil {
		prepare(one, other)
	}
	startScripted(t, one)
	startScripted(t, other)
	return one, other
}

func (s *scripted) seed() string { return s.listener.Addr().String() }

// hasHeard tells whether anything was sent to a node.
func (s *scripted) hasHeard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.came > 0
}

// otherNetwork is how a client of that network says that it does not use a node; source: who has told it which is its own.
func otherNetwork(of *scripted, ours, source string) string {
	text := fmt.Sprintf("cannot use %s: it is a node of the network \"%s\", and this client is of \"%s\"", of.seed(), of.network, ours)
	if source != "" {
		text += ", as its " + source + " says"
	}
	return text
}

// certified is what a node speaks TLS with; clients believe the certificate "node", and "joe" is nobody's they know.
func certified(t *testing.T, name string) *tls.Config {
	pair := must[tls.Certificate](t)(tls.LoadX509KeyPair(fixtures(t, "tls/"+name+".pem"), fixtures(t, "tls/"+name+".key")))
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{tlsProtocol}}
}

// failureAt is how the last attempt to connect to a node failed, if it did.
func failureAt(t *testing.T, client *Client, node *scripted) *tryError {
	where := must[address](t)(parseAddress(node.seed(), 0))
	client.pool.mu.Lock()
	defer client.pool.mu.Unlock()
	if found := client.pool.slots[where]; found != nil {
		return found.failure
	}
	return nil
}

func TestWhatIsForOneNetworkNeverGoesToAnother(t *testing.T) {
	for name, prepare := range map[string]func(one, other *scripted){
		"it is as good": func(_, _ *scripted) {},
		"it asks for a login": func(one, other *scripted) {
			one.asksLogin, other.asksLogin, other.refuses = true, true, "auth_failed"
		},
		"its certificate is not believed": func(one, other *scripted) {
			one.tls, other.tls = certified(t, "node"), certified(t, "joe")
		},
		"it says no in plain text": func(one, other *scripted) {
			one.tls, other.greets = certified(t, "node"), errorReply("denied")
		},
	} {
		t.Run(name, func(t *testing.T) { neverGoesTo(t, prepare) })
	}
}

// neverGoesTo: a client of the first one's network sends nothing to the other one, and does not take its refusal for one of
// its own nodes'.
func neverGoesTo(t *testing.T, prepare func(one, other *scripted)) {
	one, other := twoNetworks(t, prepare)
	config := quick()
	refused := otherNetwork(other, "a", "")
	if one.asksLogin {
		config.Login = PasswordLogin("ann", "her secret")
	}
	if one.tls != nil {
		config.TLS = &TLS{CAFile: fixtures(t, "tls/ca.pem")}
		refused = "cannot get into " + other.seed()
	}
	config.Seeds = []string{one.seed(), other.seed()}
	client := connect(t, config)
	path := PathOf("p")
	put(t, client, path, 1, nil)
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	monitor := must[*Monitor](t)(client.OpenMonitor(t.Context(), path))
	defer monitor.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if event := must[Event](t)(watch.Next(ctx)); !is[UpToDate](event) {
		t.Fatal(event)
	}
	one.stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })

	var asking sync.WaitGroup
	for _, isNew := range []bool{false, true} {
		asking.Go(func() {
			_, err := client.Put(t.Context(), path, 2, &PutOptions{IfNew: isNew, Timeout: 2 * time.Second})
			var failed *Error
			if !errors.As(err, &failed) || failed.Code != "unavailable" || failed.Fate != NotDone || failed.Attempts < 3 {
				t.Errorf("%v", err)
				return
			}
			// Of the last try, which may be cut off.
			said := []string{refused, "cannot connect to " + one.seed(), "no connection to "}
			if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(err.Error(), text) }) {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	// That all of its own nodes are down is no refusal: whatever is asked goes on until its time is up.
	asks := operations(client, path)
	delete(asks, "connect") // It is another client's.
	delete(asks, "shards")  // They are fetched behind it.
	asks["next of the watch"] = func(ctx context.Context) error { _, err := watch.Next(ctx); return err }
	asks["next of the monitor"] = func(ctx context.Context) error { _, err := monitor.Next(ctx); return err }
	const soon = 600 * time.Millisecond
	ends := time.Now().Add(soon)
	ctx, cancel = context.WithDeadline(t.Context(), ends)
	defer cancel()
	for name, ask := range asks {
		asking.Go(func() {
			err := ask(ctx)
			left := time.Until(ends)
			var failed *Error
			if !errors.As(err, &failed) || errors.Is(err, ErrRefused) || failed.Fate != NotDone {
				t.Errorf("%s: %v", name, err)
			}
			// The conflicts are of the nodes that answer: those are asked once.
			if left > soon*2/3 && !strings.HasPrefix(name, "conflicts") {
				t.Errorf("%s was given up %v before its end: %v", name, left, err)
			}
		})
	}
	asking.Wait()
	if failed := failureAt(t, client, other); failed == nil || !strings.HasPrefix(failed.text, refused) {
		t.Error("it was tried:", failed)
	}

	ended := make(chan error, 1)
	asking.Go(func() {
		written, err := client.Put(t.Context(), path, 3, nil)
		if written.Node != "s1" {
			t.Error(written)
		}
		ended <- err
	})
	time.Sleep(50 * time.Millisecond)
	if len(ended) > 0 {
		t.Fatal(<-ended)
	}
	one.startAgain(t)
	asking.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if event, err := watch.Next(ctx); err != nil || !is[Resumed](event) {
		t.Error(event, err)
	}
	if event, err := monitor.Next(ctx); err != nil || event != (Gap{"s1"}) {
		t.Error(event, err)
	}
	if written := put(t, client, path, 3, nil); written.Attempts > 1 {
		t.Errorf("%+v", written)
	}
	if len(other.actions("auth"))+len(other.actions("cluster")) > 0 || (other.greets == nil && other.hasHeard()) {
		t.Error("it is left when it has greeted:", other.requests)
	}
}

func TestOnlyANodeThatLetsTheClientInSaysOfWhichNetworkItIs(t *testing.T) {
	const huge = 1 << 40
	one, other := twoNetworks(t, func(one, other *scripted) {
		one.asksLogin, other.asksLogin, other.refuses, other.tock = true, true, "auth_failed", huge
	})
	config := quick()
	config.Seeds, config.Login = []string{other.seed(), one.seed()}, PasswordLogin("ann", "her secret")
	client := connect(t, config)
	if name := client.pool.network.name; name != "a" {
		t.Fatal(name)
	}
	before := len(other.actions("auth"))
	other.letIn()
	where := must[address](t)(parseAddress(other.seed(), 0))
	until(t, func() bool {
		_, err := client.pool.get(t.Context(), where, never)
		return err != nil && err.other
	})
	if len(other.actions("auth")) > before || len(other.actions("cluster")) > 0 {
		t.Error("something was sent to it:", other.requests)
	}
	put(t, client, PathOf("p"), 1, nil)
	if above := one.actions("set_value")[0].integer("above", 0); above >= huge {
		t.Error("what is no node of its network has no say:", above)
	}
}

func TestOfTwoNodesThatAreMetAtOnceTheLaterOneIsLeft(t *testing.T) {
	const huge = 1 << 40
	answers := make(later, 1)
	one, other := twoNetworks(t, func(_, other *scripted) { other.cluster = answers })
	config := quick()
	config.fill()
	var goroutines group
	p := newPool(&config, &goroutines)
	get := func(node *scripted) *tryError {
		_, err := p.get(t.Context(), must[address](t)(parseAddress(node.seed(), 0)), now()+20*time.Second)
		return err
	}
	ended := make(chan *tryError, 1)
	go func() { ended <- get(other) }()
	until(t, func() bool { return len(other.actions("cluster")) > 0 })
	if err := get(one); err != nil {
		t.Error(err)
	}
	answers <- with(other.view(), "tock", int64(huge))
	if err := <-ended; err == nil || err.text != otherNetwork(other, "a", "") {
		t.Error(err)
	}
	if latest := p.clock.latest.Load(); latest >= huge {
		t.Error(latest)
	}
	p.close()
	<-goroutines.none()
}

func TestWhoIsLetInNowhereByTLSIsToldAtOnce(t *testing.T) {
	one, other := twoNetworks(t, func(one, other *scripted) {
		other.network = "a"
		one.tls, other.tls = certified(t, "node"), certified(t, "node")
	})
	config := quick()
	config.Seeds, config.TLS = []string{one.seed(), other.seed()}, &TLS{CAFile: fixtures(t, "tls/ca.pem")}
	client := connect(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	path := PathOf("p")
	put(t, client, path, 1, nil)
	watch := must[*Watch](t)(client.OpenWatch(ctx, path, nil))
	defer watch.Close()
	monitor := must[*Monitor](t)(client.OpenMonitor(ctx, path))
	defer monitor.Close()
	if event := must[Event](t)(watch.Next(ctx)); !is[UpToDate](event) {
		t.Fatal(event)
	}
	one.stop()
	other.stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	one.tls, other.tls = certified(t, "joe"), certified(t, "joe")
	one.startAgain(t)
	// One that nobody has met refuses the client, and the other one may be there again in a moment.
	_, err := client.Put(ctx, path, 2, &PutOptions{Timeout: 300 * time.Millisecond})
	wantError(t, err, ErrUnavailable)
	other.startAgain(t)
	started := time.Now()
	for name, ask := range map[string]func() error{
		"put":                  func() error { _, err := client.Put(ctx, path, 2, nil); return err },
		"get":                  func() error { _, err := client.Get(ctx, path, nil); return err },
		"watch that is open":   func() error { _, err := watch.Next(ctx); return err },
		"monitor that is open": func() error { _, err := monitor.Next(ctx); return err },
	} {
		if failed := wantError(t, ask(), ErrDenied); failed.Code != "no_access" || !strings.Contains(failed.text, "cannot get into") {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Error(took)
	}
}

// A node whose certificate is over may be anybody's. One has let the client in.
func TestFreshestLacksAMajorityWhereNoTLSComesAboutWithTheOthers(t *testing.T) {
	script := func(message) any { return with(writtenReply, "value", "there") }
	nodes := []*scripted{{name: "s1", script: script}, {name: "s2", script: script}, {name: "s3", script: script}}
	for i, node := range nodes {
		node.tls = certified(t, []string{"node", "joe", "joe"}[i])
	}
	config := quick()
	config.Seeds, config.TLS = startScripted(t, nodes...)[:1], &TLS{CAFile: fixtures(t, "tls/ca.pem")}
	config.Retry.AttemptsMax = 5
	client := connect(t, config)
	allLive(t, client, 3)
	_, err := client.Get(t.Context(), PathOf("p"), &GetOptions{Read: Freshest})
	told := wantError(t, err, ErrNoMajority)
	if !strings.Contains(told.Error(), "of 3 nodes 1 answered, 2 must") || !strings.Contains(told.Error(), "cannot get into") {
		t.Error(told)
	}
	// Where nobody lets it in, that is told at once.
	nodes[0].stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	nodes[0].tls = certified(t, "joe")
	nodes[0].startAgain(t)
	_, err = client.Get(t.Context(), PathOf("p"), &GetOptions{Read: Freshest})
	wantError(t, err, ErrDenied)
}

func TestTheFirstNetworkStaysTheClients(t *testing.T) {
	one, other := twoNetworks(t, nil)
	config := quick()
	config.Seeds = []string{one.seed(), other.seed()}
	client := connect(t, config)
	one.stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	client.pool.retain(func(address) bool { return false })
	// Another network's node is where its own was.
	one.network = "c"
	one.startAgain(t)
	_, err := client.Put(t.Context(), PathOf("p"), 1, &PutOptions{Timeout: time.Second})
	wantError(t, err, ErrUnavailable)
	if len(one.actions("set_value")) > 0 || other.hasHeard() {
		t.Error(one.requests, other.requests)
	}
}

// Whoever comes first, all connections are to nodes of one network.
func TestNodesOfTwoNetworksThatAreFoundAtOnceAreNotBothUsed(t *testing.T) {
	one, other := twoNetworks(t, nil)
	for range 20 {
		config := quick()
		config.fill()
		var goroutines group
		p := newPool(&config, &goroutines)
		var used [2]bool
		var connecting sync.WaitGroup
		for i, node := range []*scripted{one, other} {
			where, err := parseAddress(node.seed(), 0)
			if err != nil {
				t.Fatal(err)
			}
			connecting.Go(func() {
				c, failure := p.get(t.Context(), where, now()+20*time.Second)
				used[i] = c != nil
				if failure != nil && !failure.isRefusal() {
					t.Error(failure)
				}
			})
		}
		connecting.Wait()
		if used[0] == used[1] {
			t.Error("both are used, or none is")
		}
		p.close()
		<-goroutines.none()
	}
}

func TestWhoIsOfNoSeedsNetworkIsToldAtOnce(t *testing.T) {
	one, other := twoNetworks(t, nil)
	seeds := []string{one.seed(), other.seed()}
	started := time.Now()
	failed := denied(t, Config{Seeds: seeds, Network: "ours", ConnectDeadline: time.Minute})
	if failed.Code != "no_access" || failed.Fate != NotDone || failed.text != otherNetwork(one, "ours", "configuration") {
		t.Errorf("%+v", failed)
	}
	// One refuses it, the other one is another network's.
	one.asksLogin = true
	one.refuse("auth_failed")
	denied(t, Config{Seeds: seeds, Network: "a", Login: PasswordLogin("ann", "x"), ConnectDeadline: time.Minute})
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if other.hasHeard() {
		t.Error(other.requests)
	}
}

func TestASeedOfAnotherNetworkIsPassedOver(t *testing.T) {
	one, other := twoNetworks(t, nil)
	seeds := []string{one.seed(), other.seed()}
	client := connect(t, Config{Seeds: seeds, Network: "b"})
	put(t, client, PathOf("p"), 1, nil)
	if source := client.ClusterView().Source; source != "s2" || one.hasHeard() {
		t.Error(source, one.requests)
	}
	// While its own cannot be reached, it looks for them until time is up.
	other.stop()
	_, err := Connect(t.Context(), Config{Seeds: seeds, Network: "b", ConnectDeadline: 4 * time.Second})
	if wantError(t, err, ErrUnavailable); !strings.Contains(err.Error(), otherNetwork(one, "b", "configuration")) {
		t.Error(err)
	}
}

func TestANodeThatDoesNotTellItsNetworkIsUsed(t *testing.T) {
	for _, node := range []*scripted{{tellsNone: true}, {isOld: true}, {greets: fields{"network": ""}}, {greets: fields{"network": 5}}} {
		node.name, node.script = "s1", always(writtenReply)
		seeds := startScripted(t, node)
		for _, network := range []string{"", "ours"} {
			put(t, connect(t, Config{Seeds: seeds, Network: network}), PathOf("p"), 1, nil)
		}
	}
}

func TestATicketsNetworkCountsUnlessAnotherOneIsConfigured(t *testing.T) {
	one, _ := twoNetworks(t, nil)
	ticket := func(network string) string {
		return ticketFrom(fields{"addresses": []any{one.seed()}, "network": network})
	}
	for _, row := range []struct{ configured, ofTicket, refused, source string }{
		{"", "of the ticket", "of the ticket", "ticket"}, {"a", "of the ticket", "", ""}, {"", "a", "", ""}, {"", "", "", ""},
		{"ours", "a", "ours", "configuration"},
	} {
		config := Config{Ticket: ticket(row.ofTicket), Network: row.configured}
		if row.refused == "" {
			put(t, connect(t, config), PathOf("p"), 1, nil)
		} else if failed := denied(t, config); failed.text != otherNetwork(one, row.refused, row.source) {
			t.Error(failed)
		}
	}
	t.Setenv("DISTKV_TICKET", ticket("of the ticket"))
	if failed := denied(t, Config{}); failed.text != otherNetwork(one, "of the ticket", "ticket") {
		t.Error(failed)
	}
}
