package distkv

import (
	"context"
	"testing"
	"time"

	"distkv.example/client/distkvtest"
)

// Two nodes that know nothing of each other, as when one has stood still before it could tell the other.

// strangers is a node whose clock is ahead and one whose clock is behind, a client that takes them for one network, and a path
// for which each is preferred.
func strangers(t *testing.T) (client *Client, ahead, behind *distkvtest.Node, there, here Path) {
	t.Helper()
	one, err := distkvtest.StartCluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Stop)
	behind, err = distkvtest.StartNode("n2", "run", "--peer-wait", "0s", "--network", one.Network)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(behind.Stop)
	ahead = one.ByName("n1")
	client = connect(t, Config{Seeds: []string{ahead.Client, behind.Client}, Topology: TopologyConfig{OnlySeeds: true},
		Retry: RetryPolicy{TryDeadline: 4 * time.Second},
		// A node that has stood still is asked once: what was deleted at the other one is purged there after a while.
		Pool: PoolConfig{FailureMemory: time.Hour, FailureMemoryMax: time.Hour}})
	allLive(t, client, 2)
	return client, ahead, behind, preferredPath(t, client, "n1"), preferredPath(t, client, "n2")
}

// tockAfter is the tock in the answer of a node to a request of somebody else.
func tockAfter(t *testing.T, node *distkvtest.Node, action string, fields map[string]any, path Path) int64 {
	t.Helper()
	other := connect(t, Config{Seeds: []string{node.Client}, Topology: TopologyConfig{OnlySeeds: true}})
	reply, err := other.Request(t.Context(), action, fields, &RequestOptions{Path: &path})
	if err != nil {
		t.Fatal(err)
	}
	return reply["tock"].(int64)
}

// change is one that somebody else makes at a node, whose clock then shows this.
func change(t *testing.T, node *distkvtest.Node, path Path, tock int64) {
	t.Helper()
	if made := tockAfter(t, node, "set_value", map[string]any{"value": tock, "above": tock - 1}, path); made != tock {
		t.Fatal(made)
	}
}

func TestWhatIsWrittenElsewhereIsNewerThanWhatWasWrittenBefore(t *testing.T) {
	client, ahead, _, path, _ := strangers(t)
	change(t, ahead, path, 1000)
	older := put(t, client, path, 59, nil)
	ahead.Freeze()
	defer ahead.Thaw()
	newer := put(t, client, path, 60, nil)
	if older.Node != "n1" || newer.Node != "n2" || newer.Version.Term() != older.Version.Term()+1 {
		t.Fatal(older, newer)
	}
}

func TestWhatIsDeletedElsewhereStaysDeleted(t *testing.T) {
	client, ahead, _, path, _ := strangers(t)
	change(t, ahead, path, 1000)
	older := put(t, client, path, 59, nil)
	ahead.Freeze()
	defer ahead.Thaw()
	// There, nothing is known of the path.
	newer := must[Written](t)(client.Delete(t.Context(), path, nil))
	if newer.Node != "n2" || newer.Changed || newer.Version.Compare(older.Version) <= 0 {
		t.Fatal(older, newer)
	}
	if again := must[Written](t)(client.Delete(t.Context(), path, nil)); again.Version != newer.Version {
		t.Fatal(newer, again)
	}
}

func TestATreeAndAnOverrideComeAfterWhatWasRead(t *testing.T) {
	client, ahead, behind, path, other := strangers(t)
	watch := openWatch(t, client, path, nil)
	defer watch.Close()
	writes := []func(ctx context.Context) error{
		func(ctx context.Context) error { _, err := client.Put(ctx, other, 1, nil); return err },
		func(ctx context.Context) error { _, err := client.DeleteTree(ctx, other, nil); return err },
		func(ctx context.Context) error { return client.PreferShard(ctx, other.Shard(), "n2") },
		func(ctx context.Context) error { return client.PreferShard(ctx, other.Shard(), "") },
		func(ctx context.Context) error {
			_, err := client.Request(ctx, "set_value", map[string]any{"value": 1}, &RequestOptions{Path: &other})
			return err
		},
	}
	for number, write := range writes {
		tock := int64(number+1) * 1000
		change(t, ahead, path, tock)
		if number%2 == 0 {
			if value := must[int64](t)(Get[int64](t.Context(), client, path, nil)); value != tock {
				t.Fatal(value)
			}
		} else {
			// What comes in a stream is heard, too.
			collect(t, watch, func(event Event) bool {
				told, _ := event.(Change)
				value, _ := As[int64](told.Value)
				return value == tock
			})
		}
		if err := write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := tockAfter(t, behind, "get_tock", nil, other); now <= tock {
			t.Fatal(number, now)
		}
	}
}

func TestTheGreatestCountsAndNothingThatIsNoTock(t *testing.T) {
	var heard clock
	for _, tock := range []int64{5, 3, -1, tockEnd} {
		heard.hear(tock)
	}
	if latest := heard.latest.Load(); latest != 5 {
		t.Fatal(latest)
	}
}
