package distkv

import (
	"context"
	"errors"
	"testing"
	"time"

	"distkv.example/client/internal/msgpack"
)

// What a write tells a node of its conditions and of the copies that it is to wait for, against a scripted one.

// writer is a node with a tree of one entry, and a client.
func writer(t *testing.T, config Config, write any) (*Client, *scripted) {
	t.Helper()
	node := &scripted{name: "s1", script: func(request message) any {
		switch request.text("action") {
		case "get_tree":
			entry := fields{"path": PathOf("a"), "value": 1, "tock": 5}
			if request.get("nchain") != nil {
				entry = with(entry, "chain", writtenReply["chain"])
			}
			return several{{"state": "start"}, entry, {"state": "end"}}
		case "get_value":
			return fields{"value": 1, "tock": 5, "chain": writtenReply["chain"]}
		case "batch":
			return fields{"results": []any{write}}
		}
		return write
	}}
	config.Seeds = startScripted(t, node)
	return connect(t, config), node
}

func TestAVersionThatWasNotToldIsNoPrecondition(t *testing.T) {
	client, node := writer(t, Config{}, fields{"changed": false, "tock": 5})
	ctx, path := t.Context(), PathOf("a")
	entries := must[[]TreeEntry](t)(client.TreeList(ctx, path, nil))
	nothing := must[Written](t)(client.Delete(ctx, path, nil))
	var first TreeEntry
	for entry, err := range client.Tree(ctx, path, &TreeOptions{MaxDepth: 1}) {
		if first = entry; err != nil {
			t.Fatal(err)
		}
	}
	sent := len(node.asked())
	for name, version := range map[string]Version{"listed": entries[0].Version, "one by one": first.Version, "nothing deleted": nothing.Version} {
		if !version.IsZero() || version.String() != "" {
			t.Error(name, version)
		}
		for what, write := range map[string]func() error{
			"put":    func() error { _, err := client.Put(ctx, path, 1, &PutOptions{IfVersion: version}); return err },
			"delete": func() error { _, err := client.Delete(ctx, path, &DeleteOptions{IfVersion: version}); return err },
			"batch": func() error {
				_, err := client.Batch().Put(path, 1, &PutOptions{IfVersion: version}).Run(ctx, nil)
				return err
			},
		} {
			if err := write(); !errors.Is(err, ErrUsage) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	if found := node.asked()[sent:]; len(found) != 0 {
		t.Error("it was sent:", found)
	}
	entries = must[[]TreeEntry](t)(client.TreeList(ctx, path, &TreeOptions{Versions: true}))
	for _, version := range []Version{{}, entries[0].Version} {
		put(t, client, path, 1, &PutOptions{IfVersion: version})
	}
}

func TestTheVersionOfNoEntryIsNoPrecondition(t *testing.T) {
	client := sharedClient(t)
	ctx, path := t.Context(), base()
	missing, err := client.Entry(ctx, path, nil)
	wantError(t, err, ErrNotFound)
	if missing.Version == (Version{}) || !missing.Version.IsZero() {
		t.Errorf("%+v", missing)
	}
	put(t, client, path, "of somebody else", nil)
	if _, err = client.Put(ctx, path, 1, &PutOptions{IfVersion: missing.Version}); err == nil {
		t.Error("it was written over")
	}
	wantError(t, err, ErrUsage)
	if found := get[string](t, client, path); found != "of somebody else" {
		t.Error(found)
	}
}

func TestTheVersionOfADeletedEntryMayBeAPrecondition(t *testing.T) {
	client, node := writer(t, Config{}, writtenReply)
	ctx, path := t.Context(), PathOf("a")
	version := must[Entry](t)(client.Entry(ctx, path, nil)).Version
	for name, row := range map[string]struct {
		options PutOptions
		isSaid  bool
	}{
		"a version": {PutOptions{IfVersion: version}, true}, "none": {PutOptions{}, false}, "it is new": {PutOptions{IfNew: true}, false},
		"a value": {PutOptions{IfValue: 1}, false},
	} {
		put(t, client, path, 1, &row.options)
		requests := node.actions("set_value")
		if !row.options.IfNew {
			_ = must[Written](t)(client.Delete(ctx, path, &DeleteOptions{IfVersion: row.options.IfVersion, IfValue: row.options.IfValue}))
			requests = append(requests, node.actions("delete_value")...)
		}
		_ = must[[]BatchReply](t)(client.Batch().Put(path, 1, &row.options).Run(ctx, nil))
		batches := node.actions("batch")
		msgpack.Items(batches[len(batches)-1].get("ops"), func(item []byte) bool { requests = append(requests, item); return true })
		node.mu.Lock()
		node.requests = nil
		node.mu.Unlock()
		for _, request := range requests {
			if msgpack.IsTrue(request.get("deleted")) != row.isSaid || (request.get("chain") != nil) != (row.isSaid || row.options.IfNew) {
				t.Errorf("%s: %x", name, request)
			}
		}
	}
}

// copiesTimes is for how long a node was told to wait for copies, write after write.
func copiesTimes(t *testing.T, node *scripted) []time.Duration {
	t.Helper()
	var found []time.Duration
	for _, request := range node.actions("set_value") {
		seconds := must[float64](t)(As[float64](Value(request.get("timeout"))))
		found = append(found, time.Duration(seconds*float64(time.Second)))
	}
	return found
}

func TestANodeWaitsForCopiesWithinTheTimeOfItsTry(t *testing.T) {
	for name, row := range map[string]struct {
		timeout, context time.Duration
		most             time.Duration
	}{
		"as a try may take":      {0, 0, 30 * time.Second},
		"a longer time":          {time.Hour, 0, 30 * time.Second},
		"a shorter one":          {20 * time.Second, 0, 15 * time.Second},
		"that of the context":    {0, 20 * time.Second, 15 * time.Second},
		"an option counts first": {20 * time.Second, time.Hour, 15 * time.Second},
	} {
		client, node := writer(t, Config{Retry: RetryPolicy{TryDeadline: 40 * time.Second}}, writtenReply)
		ctx, cancel := t.Context(), func() {}
		if row.context > 0 {
			ctx, cancel = context.WithTimeout(ctx, row.context)
		}
		_, err := client.Put(ctx, PathOf("a"), 1, &PutOptions{Copies: 1, Timeout: row.timeout})
		cancel()
		if found := copiesTimes(t, node); err != nil || len(found) != 1 || found[0] > row.most || found[0] < row.most/2 {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
	// What is left at each try.
	policy := RetryPolicy{InitialDelay: 50 * time.Millisecond, TryDeadline: time.Hour, AttemptsMax: 5}
	client, node := writer(t, Config{Retry: policy}, errorReply("unknown_fate"))
	_, err := client.Put(t.Context(), PathOf("a"), 1, &PutOptions{Copies: 1, Timeout: patient})
	wantError(t, err, ErrFateUnknown)
	found := copiesTimes(t, node)
	for i := 1; i < len(found); i++ {
		if found[i] > found[i-1]-15*time.Millisecond {
			t.Error(found)
		}
	}
	if len(found) < 2 {
		t.Error(found)
	}
}

func TestAShortDeadlineEndsUnconfirmedAndNotUnknown(t *testing.T) {
	client := sharedClient(t) // A try may take longer than the deadline, of which a node waits for three quarters.
	_, err := client.Put(t.Context(), base(), 1, &PutOptions{Copies: 5, Timeout: 12 * time.Second})
	if failed := wantError(t, err, ErrFateUnknown); failed.Fate != Unconfirmed || failed.Code != "unknown_fate" {
		t.Errorf("%+v", failed)
	}
}
