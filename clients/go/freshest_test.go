package distkv

import (
	"context"
	"errors"
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
	client, _ = readers(t, patience, reads...)
	path = preferredPath(t, client, "s1")
	if written := put(t, client, path, 1, nil); written.Node != "s1" {
		t.Fatalf("%+v", written)
	}
	return client, ctx, path
}

// readers is three nodes that take writes, and answer reads like this.
func readers(t *testing.T, patience time.Duration, reads ...any) (client *Client, nodes []*scripted) {
	t.Helper()
	return readersOf(t, Config{OwnWritePatience: patience, Retry: RetryPolicy{TryDeadline: time.Hour}}, reads...)
}

// readersOf is the same with a client of this configuration.
func readersOf(t *testing.T, config Config, reads ...any) (client *Client, nodes []*scripted) {
	t.Helper()
	for i, name := range []string{"s1", "s2", "s3"} {
		nodes = append(nodes, &scripted{name: name, script: func(request message) any {
			if request.text("action") == "get_value" {
				return reads[i]
			}
			return with(writtenReply, "tock", 9)
		}})
	}
	client = joined(t, config, nodes...)
	allLive(t, client, 3)
	return client, nodes
}

// besides is another path of the same shard.
func besides(path Path) Path {
	for n := int64(0); ; n++ {
		if other := PathOf("q" + itemText(n)); other.Shard() == path.Shard() {
			return other
		}
	}
}

// A path is written at the second node, and then another one of its shard at the first: where that has nothing of the path,
// it may not have heard of it.
func TestOnlyTheNodeThatTookAWriteKnowsThatItIsGone(t *testing.T) {
	own := with(with(writtenReply, "value", "own"), "tock", 9)
	for mode, last := range map[ReadMode]any{Preferred: own, Freshest: silence{}} {
		patience := 200 * time.Millisecond
		if mode == Preferred {
			patience = time.Hour // It is found.
		}
		client, nodes := readers(t, patience, gone, last, gone)
		path := preferredPath(t, client, "s1")
		first := nodes[0].script
		nodes[0].mu.Lock()
		nodes[0].script = always(errorReply("not_ready"))
		nodes[0].mu.Unlock()
		nodes[2].mu.Lock()
		third := nodes[2].script
		nodes[2].script = always(errorReply("not_ready"))
		nodes[2].mu.Unlock()
		if written := put(t, client, path, 1, nil); written.Node != "s2" {
			t.Fatalf("%+v", written)
		}
		for i, script := range map[int]func(message) any{0: first, 2: third} {
			nodes[i].mu.Lock()
			nodes[i].script = script
			nodes[i].mu.Unlock()
		}
		if written := put(t, client, besides(path), 1, nil); written.Node != "s1" {
			t.Fatalf("%+v", written)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		started := time.Now()
		found, err := Get[string](ctx, client, path, &GetOptions{Read: mode})
		cancel()
		switch reads := client.Stats().Reads; {
		case mode == Preferred && (found != "own" || err != nil):
			t.Error(found, err)
		case mode == Freshest && (!errors.Is(err, ErrNotFound) || reads.StaleTaken != 1 || time.Since(started) < patience):
			t.Error(err, reads, time.Since(started))
		}
	}
}

func TestAnEntryThatIsGoneWhereItWasWrittenIsNotLookedFor(t *testing.T) {
	client, ctx, path := wroteOnce(t, time.Hour, gone, gone, silence{})
	started := time.Now()
	for range 3 {
		_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
		wantError(t, err, ErrNotFound)
	}
	if took := time.Since(started); took > patient || client.Stats().Reads.StaleTaken != 0 { // Of the hour that it may take.
		t.Error(took, client.Stats().Reads)
	}
}

func TestFreshestLooksForAnOwnWriteForAWhileOnce(t *testing.T) {
	const patience = 200 * time.Millisecond
	client, ctx, path := wroteOnce(t, patience, silence{}, gone, gone)
	started := time.Now()
	_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
	wantError(t, err, ErrNotFound)
	if took := time.Since(started); took < patience || client.Stats().Reads.StaleTaken != 1 || client.caller.own.newest(path) >= 0 {
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

// The context's end comes in the middle of a round, of which one node of three has answered.
func TestAMajorityThatDoesNotAnswerInTimeIsTheSameErrorWheneverTheContextEnds(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, _ := readers(t, time.Hour, gone, silence{}, silence{})
		for _, timeout := range []time.Duration{0, time.Hour} {
			for cause, end := range map[error]func() (context.Context, context.CancelFunc){
				context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
					return context.WithTimeout(t.Context(), 100*time.Millisecond)
				},
				context.Canceled: func() (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(100*time.Millisecond, cancel)
					return ctx, cancel
				},
			} {
				ctx, cancel := end()
				_, err := client.Get(ctx, PathOf("p"), &GetOptions{Read: Freshest, Timeout: timeout})
				cancel()
				if !errors.Is(err, cause) || errors.Is(err, ErrNoMajority) != (cause == context.DeadlineExceeded) {
					t.Error(timeout, cause, err)
				}
			}
		}
	})
}
