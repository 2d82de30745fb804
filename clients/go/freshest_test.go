package distkv

import (
	"context"
	"testing"
	"time"
)

// For how long a read of the freshest looks for this client's own write, where one of three nodes is silent.

// gone is what a node answers of an entry that was deleted and purged.
var gone = fields{"chain": nil, "tock": 20}

// wroteOnce is a client that wrote a path at the first of three nodes; they answer reads like this from then on.
func wroteOnce(t *testing.T, patience time.Duration, reads ...any) (client *Client, ctx context.Context, path Path) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var nodes []*scripted
	for i, name := range []string{"s1", "s2", "s3"} {
		nodes = append(nodes, &scripted{name: name, script: func(request message) any {
			if request.text("action") == "get_value" {
				return reads[i]
			}
			return with(writtenReply, "tock", 9)
		}})
	}
	client = connect(t, Config{Seeds: startScripted(t, nodes...), OwnWritePatience: patience, Retry: RetryPolicy{TryDeadline: time.Hour}})
	allLive(t, client, 3)
	path = preferredPath(t, client, "s1")
	if written := put(t, client, path, 1, nil); written.Node != "s1" {
		t.Fatalf("%+v", written)
	}
	return client, ctx, path
}

func TestAnEntryThatIsGoneWhereItWasWrittenIsNotLookedFor(t *testing.T) {
	client, ctx, path := wroteOnce(t, time.Hour, gone, gone, silence{})
	started := time.Now()
	for range 3 {
		_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
		wantError(t, err, ErrNotFound)
	}
	if took := time.Since(started); took > 5*time.Second || client.Stats().Reads.StaleTaken != 0 { // Of the hour that it may take.
		t.Error(took, client.Stats().Reads)
	}
}

func TestFreshestLooksForAnOwnWriteForAWhileOnce(t *testing.T) {
	const patience = 200 * time.Millisecond
	client, ctx, path := wroteOnce(t, patience, silence{}, gone, gone)
	started := time.Now()
	_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
	wantError(t, err, ErrNotFound)
	if took := time.Since(started); took < patience || client.Stats().Reads.StaleTaken != 1 || client.caller.own.wrote(path) {
		t.Error(took, client.Stats().Reads)
	}
	_, err = client.Get(ctx, path, &GetOptions{Read: Freshest})
	wantError(t, err, ErrNotFound)
	if reads := client.Stats().Reads; reads.StaleTaken != 1 {
		t.Error(reads)
	}
}

func TestFreshestWaitsForItsOwnWrite(t *testing.T) {
	own := with(with(writtenReply, "value", "own"), "tock", 9)
	old := fields{"value": "old", "tock": 1, "chain": fields{"node": "x~7", "tick": 1, "prev": nil}}
	client, ctx, path := wroteOnce(t, time.Hour, own, old, old)
	for range 20 {
		found, err := Get[string](ctx, client, path, &GetOptions{Read: Freshest})
		if found != "own" || err != nil {
			t.Fatal(found, err)
		}
	}
}
