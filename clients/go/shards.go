package distkv

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"distkv.example/client/internal/msgpack"
)

// The pauses until a fetch of the table that failed is repeated.
const (
	tableBackoffFirst = time.Second
	tableBackoffMax   = 30 * time.Second
)

// tablePagesMax is the most pages of a table; each has at least one row.
const tablePagesMax = ShardCount

// tableShard stands for the table among the shards whose last own write is remembered.
const tableShard = ShardCount

// ShardRow is a run of adjacent shards with the same preferred node, as a range of a 128-bit space.
type ShardRow struct {
	// ID changes as soon as anything in the row changes.
	ID uint64
	// Start and End (inclusive) are big-endian.
	Start, End [16]byte
	// First and Last are the shards' numbers, inclusive.
	First, Last int
	// Prefer is the node that an override names; "": none.
	Prefer string
}

// shardTable is the table of virtual shards that nodes export: which have a preferred node of their own. It is fetched again
// when it is older than the configuration says, by one goroutine, with a growing pause where that fails; until a new one is
// here, the old one counts.
type shardTable struct {
	caller *caller
	wanted chan struct{}

	mu           sync.Mutex
	begun, ended uint64        // fetches
	fetched      chan struct{} // closed when the next one has ended
}

func newShardTable(c *caller) *shardTable {
	return &shardTable{caller: c, wanted: make(chan struct{}, 1), fetched: make(chan struct{})}
}

// fetch is the table of now, from a node, page by page; isOwn: the client wants it itself.
func (t *shardTable) fetch(ctx context.Context, isOwn bool) ([]ShardRow, *Error) {
	var rows []ShardRow
	var after []byte
	for range tablePagesMax {
		b := newBody("list_shards").integer("limit", ShardCount)
		if after != nil {
			b.binary("after", after)
		}
		// The node that took an override has it first.
		p := plan{action: "list_shards", isOwn: isOwn, first: t.caller.home(t.caller.topology.routing(), tableShard)}
		found, err := t.caller.call(ctx, &p, b.head(), nil)
		if err != nil {
			return nil, err
		}
		msgpack.Items(found.message.get("result"), func(item []byte) bool {
			if row, ok := shardRowOf(item); ok {
				rows = append(rows, row)
			}
			return len(rows) < ShardCount
		})
		var isMore bool
		if after, isMore = msgpack.Bytes(found.message.get("next")); !isMore {
			break
		}
	}
	return rows, nil
}

func shardRowOf(m message) (ShardRow, bool) {
	start, isStart := msgpack.Bytes(m.get("start"))
	end, isEnd := msgpack.Bytes(m.get("end"))
	head, err := msgpack.ReadHead(m.get("id"))
	first, last := m.integer("first", -1), m.integer("last", -1)
	if !isStart || !isEnd || len(start) != 16 || len(end) != 16 || err != nil ||
		(head.Kind != msgpack.Int && head.Kind != msgpack.Uint) || first < 0 || last < 0 || last >= ShardCount {
		return ShardRow{}, false
	}
	return ShardRow{head.Bits, [16]byte(start), [16]byte(end), int(first), int(last), m.text("prefer")}, true
}

// fetching marks the contexts with which observers are told of the client's own fetches.
type fetching struct{}

// isWithin tells whether a context is that of a fetch of this very table, of which an observer is told: whoever waited there for the
// table would wait for himself.
func (t *shardTable) isWithin(ctx context.Context) bool { return ctx.Value(fetching{}) == t }

var errWithin = usage("an Observer that is told of the client's own list_shards cannot wait for the table of shards")

// refresh fetches it again, and waits until that has ended: a fetch that was under way already may be too old. It waits no longer
// than any call: an observer that is told of a fetch, and uses another context, waits for itself. Fate is that of what was done before.
func (t *shardTable) refresh(ctx context.Context, fate Fate) error {
	if t.isWithin(ctx) {
		return errWithin
	}
	total, late := t.caller.total(ctx, 0)
	if late != nil {
		return unfetched(late.cause, fate)
	}
	timer := time.NewTimer(total)
	defer timer.Stop()
	t.mu.Lock()
	mine := t.begun + 1
	t.mu.Unlock()
	signal(t.wanted)
	for {
		t.mu.Lock()
		ended, fetched := t.ended, t.fetched
		t.mu.Unlock()
		if ended >= mine {
			return nil
		}
		select {
		case <-fetched:
		case <-t.caller.pool.ctx.Done():
			err := closedError(0)
			err.Fate = fate
			return err
		case <-ctx.Done():
			return canceledError(ctx, fate, "", 0)
		case <-timer.C:
			var cause error
			if _, isSet := ctx.Deadline(); isSet {
				cause = context.DeadlineExceeded // It may be a moment before the context says so itself.
			}
			return unfetched(cause, fate)
		}
	}
}

// unfetched is the error of a refresh that had no time, after what has this fate; cause: the context's error, if it was its time.
func unfetched(cause error, fate Fate) *Error {
	if errors.Is(cause, context.Canceled) {
		return contextError(cause, "the table of shards was not waited for", fate, "", 0)
	}
	err := &Error{Code: "unavailable", text: "the table of shards was not fetched in time", kind: ErrUnavailable, cause: cause}
	if fate != NotDone {
		err.Code, err.kind, err.Fate = "fate_unknown", ErrFateUnknown, fate
		err.text = "the override was made, but " + err.text
	}
	return err
}

// keep is the goroutine that fetches it.
func (t *shardTable) keep(ctx context.Context) {
	failures := 0
	counters := &t.caller.counters
	for ctx.Err() == nil {
		select {
		case <-t.wanted:
		default:
		}
		t.mu.Lock()
		t.begun++
		t.mu.Unlock()
		counters.shardFetches.Add(1)
		pause := t.caller.config.ShardTableAge
		rows, err := t.fetch(context.WithValue(ctx, fetching{}, t), true)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			counters.shardRows.Store(uint64(len(rows)))
			t.take(rows)
		default:
			// Nodes without such a table have no overrides either.
			failures++
			counters.shardFailures.Add(1)
			pause = backoff(tableBackoffFirst, 2, tableBackoffMax, failures, mathrand.Float64())
			t.caller.config.Logger.Debug("distkv: the table of shards could not be fetched", "err", withoutWords(err))
		}
		t.mu.Lock()
		t.ended++
		close(t.fetched)
		t.fetched = make(chan struct{})
		t.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-t.wanted:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (t *shardTable) take(rows []ShardRow) {
	overrides := map[int]string{}
	for _, row := range rows {
		if row.Prefer != "" {
			for shard := row.First; shard <= row.Last; shard++ {
				overrides[shard] = row.Prefer
			}
		}
	}
	t.caller.counters.overrides.Store(uint64(len(overrides)))
	t.caller.topology.prefer(overrides)
}

// ListShards is the virtual shards with their overrides, as a node has them now.
func (c *Client) ListShards(ctx context.Context) ([]ShardRow, error) {
	rows, err := c.shards.fetch(ctx, false)
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// PreferShard makes a node the preferred one of a shard for all clients; "" takes that back. For admins. Then it waits until this
// client has fetched the table anew: an error of that leaves the Fate Unknown.
func (c *Client) PreferShard(ctx context.Context, shard int, node string) error {
	if shard < 0 || shard >= ShardCount {
		return usage(fmt.Sprintf("there is no shard %d; shards are 0 to %d", shard, ShardCount-1))
	}
	if c.shards.isWithin(ctx) {
		return errWithin // Before anything is done.
	}
	turn := c.caller.places.begin(1)
	defer turn.end()
	id := turn.id()
	action := "set_internal"
	if node == "" {
		action = "delete_internal"
	}
	path := PathOf("shards", shard)
	b := c.caller.own.orderInto(pathBody(action, path), path, false).binary("wid", id[:])
	if node != "" {
		b.text("value", node)
	}
	p := plan{action: action, shard: shard, idempotency: guarded, needsID: true}
	found, err := c.caller.call(ctx, &p, b.head(), nil)
	if err != nil {
		return err
	}
	c.caller.own.onTree(tableShard, found.life())
	return c.shards.refresh(ctx, Unknown)
}

// RefreshShards fetches the table of overrides again, which happens by itself now and then. It waits for that until the context's
// deadline; without one, as long as any call.
func (c *Client) RefreshShards(ctx context.Context) error { return c.shards.refresh(ctx, NotDone) }
