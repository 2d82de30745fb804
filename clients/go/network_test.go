package distkv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Nodes of another network: none is used, and a call goes on looking for those of its own.

// twoNetworks is a node each of the networks "a" and "b".
func twoNetworks(t *testing.T) (one, other *scripted) {
	t.Helper()
	script := func(request message) any {
		switch request.text("action") {
		case "watch", "msg_monitor":
			return several{{"state": "start"}}
		case "get_tree", "conflicts":
			return several{{"state": "start"}, {"state": "end"}}
		}
		return with(writtenReply, "value", "there")
	}
	one = &scripted{name: "s1", network: "a", script: script}
	other = &scripted{name: "s2", network: "b", script: script}
	startScripted(t, one)
	startScripted(t, other)
	return one, other
}

func (s *scripted) seed() string { return s.listener.Addr().String() }

// onlyAsked tells whether nothing was asked of a node but who it is.
func (s *scripted) onlyAsked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if request.text("action") != "cluster" {
			return false
		}
	}
	return true
}

func otherNetwork(of *scripted, ours string) string {
	return fmt.Sprintf("cannot use %s: it is a node of the network \"%s\", and this client is of \"%s\"", of.seed(), of.network, ours)
}

func TestWhatIsForOneNetworkNeverGoesToAnother(t *testing.T) {
	one, other := twoNetworks(t)
	config := quick()
	config.Seeds = []string{one.seed(), other.seed()}
	config.Retry.TotalDeadline = 400 * time.Millisecond
	client := connect(t, config)
	path := PathOf("p")
	put(t, client, path, 1, nil)
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	monitor := must[*Monitor](t)(client.OpenMonitor(t.Context(), path))
	defer monitor.Close()
	one.stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })

	for _, options := range []*PutOptions{nil, {IfNew: true}} {
		_, err := client.Put(t.Context(), path, 2, options)
		failed := wantError(t, err, ErrUnavailable)
		if failed.Code != "unavailable" || failed.Fate != NotDone || failed.Attempts < 3 {
			t.Errorf("%+v", failed)
		}
		// Of the last try, which may be cut off.
		said := []string{otherNetwork(other, "a"), "cannot connect to " + one.seed(), "no connection to "}
		if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(err.Error(), text) }) {
			t.Error(err)
		}
	}
	// That all of its own nodes are down is no refusal: whatever is asked goes on until its time is up.
	asks := operations(client, path)
	delete(asks, "connect") // It is another client's.
	delete(asks, "shards")  // They are fetched behind it.
	asks["next of the watch"] = func(ctx context.Context) error { _, err := watch.Next(ctx); return err }
	asks["next of the monitor"] = func(ctx context.Context) error { _, err := monitor.Next(ctx); return err }
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	var asking sync.WaitGroup
	for name, ask := range asks {
		asking.Go(func() {
			started := time.Now()
			err := ask(ctx)
			var failed *Error
			if !errors.As(err, &failed) || errors.Is(err, ErrRefused) || failed.Fate != NotDone {
				t.Errorf("%s: %v", name, err)
			}
			// The conflicts are of the nodes that answer: those are asked once.
			if took := time.Since(started); took < 200*time.Millisecond && !strings.HasPrefix(name, "conflicts") {
				t.Errorf("%s was given up after %v: %v", name, took, err)
			}
		})
	}
	asking.Wait()

	one.startAgain(t)
	until(t, func() bool {
		found, err := Get[string](t.Context(), client, path, nil)
		return found == "there" && err == nil
	})
	if written := put(t, client, path, 3, nil); written.Attempts > 1 {
		t.Errorf("%+v", written)
	}
	if !other.onlyAsked() || len(other.actions("set_value")) > 0 || len(other.actions("cluster")) == 0 {
		t.Error(other.requests)
	}
}

func TestTheFirstNetworkStaysTheClients(t *testing.T) {
	one, other := twoNetworks(t)
	config := quick()
	config.Seeds = []string{one.seed(), other.seed()}
	client := connect(t, config)
	one.stop()
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	client.pool.retain(func(address) bool { return false })
	// Another network's node is where its own was.
	one.network = "c"
	one.startAgain(t)
	_, err := client.Put(t.Context(), PathOf("p"), 1, nil)
	wantError(t, err, ErrUnavailable)
	if len(one.actions("set_value")) > 0 || !other.onlyAsked() {
		t.Error(one.requests, other.requests)
	}
}

// Whoever comes first, all connections are to nodes of one network.
func TestNodesOfTwoNetworksThatAreFoundAtOnceAreNotBothUsed(t *testing.T) {
	one, other := twoNetworks(t)
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
	one, other := twoNetworks(t)
	seeds := []string{one.seed(), other.seed()}
	started := time.Now()
	failed := denied(t, Config{Seeds: seeds, Network: "ours", ConnectDeadline: time.Minute})
	if failed.Code != "no_access" || failed.Fate != NotDone || failed.text != otherNetwork(one, "ours") {
		t.Errorf("%+v", failed)
	}
	// One refuses it, the other one is another network's.
	one.asksLogin = true
	one.refuse("auth_failed")
	denied(t, Config{Seeds: seeds, Network: "a", Login: PasswordLogin("ann", "x"), ConnectDeadline: time.Minute})
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if !other.onlyAsked() {
		t.Error(other.requests)
	}
}

func TestASeedOfAnotherNetworkIsPassedOver(t *testing.T) {
	one, other := twoNetworks(t)
	seeds := []string{one.seed(), other.seed()}
	client := connect(t, Config{Seeds: seeds, Network: "b"})
	put(t, client, PathOf("p"), 1, nil)
	if source := client.ClusterView().Source; source != "s2" || !one.onlyAsked() {
		t.Error(source, one.requests)
	}
	// While its own cannot be reached, it looks for them until time is up.
	other.stop()
	_, err := Connect(t.Context(), Config{Seeds: seeds, Network: "b", ConnectDeadline: 300 * time.Millisecond})
	if wantError(t, err, ErrUnavailable); !strings.Contains(err.Error(), otherNetwork(one, "b")) {
		t.Error(err)
	}
}

func TestANodeThatDoesNotTellItsNetworkIsUsed(t *testing.T) {
	for _, node := range []*scripted{{name: "s1", script: always(writtenReply)}, {name: "s1", script: always(writtenReply), isOld: true}} {
		seeds := startScripted(t, node)
		for _, network := range []string{"", "ours"} {
			put(t, connect(t, Config{Seeds: seeds, Network: network}), PathOf("p"), 1, nil)
		}
	}
}

func TestATicketsNetworkCountsUnlessAnotherOneIsConfigured(t *testing.T) {
	one, _ := twoNetworks(t)
	ticket := func(network string) string {
		return ticketFrom(fields{"addresses": []any{one.seed()}, "network": network})
	}
	for _, row := range []struct{ configured, ofTicket, refused string }{
		{"", "of the ticket", "of the ticket"}, {"a", "of the ticket", ""}, {"", "a", ""}, {"", "", ""}, {"ours", "a", "ours"},
	} {
		config := Config{Ticket: ticket(row.ofTicket), Network: row.configured}
		if row.refused == "" {
			put(t, connect(t, config), PathOf("p"), 1, nil)
		} else if failed := denied(t, config); failed.text != otherNetwork(one, row.refused) {
			t.Error(failed)
		}
	}
	t.Setenv("DISTKV_TICKET", ticket("of the ticket"))
	if failed := denied(t, Config{}); failed.text != otherNetwork(one, "of the ticket") {
		t.Error(failed)
	}
}
