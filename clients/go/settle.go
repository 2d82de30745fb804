package distkv

import (
	"context"
	"maps"
	"slices"
	"sync"

	"distkv.example/client/internal/msgpack"
)

// looksAtOnce is how many requests are open at a time.
const looksAtOnce = 64

// What became of a path that another node does not show, or shows older: deleted meanwhile, or not there yet? And of a version
// that comes behind a deletion: is it its past, or was it created again?
type settled uint8

const (
	settledNewer settled = iota
	settledSame
	settledGone   // it was deleted so long ago that nothing is left of it
	settledBehind // the node has not heard of this version
)

// doubtOf is what there is doubt about.
type doubtOf uint8

const (
	ofDelivered doubtOf = iota // what was delivered: whether it is still there, and the newest
	ofArrived                  // what came in the node's stream, and is not delivered before it is known to be there still
)

// doubt is a version that a node is asked about.
type doubt struct {
	path    Path
	version Version
	of      doubtOf
}

type settlement struct {
	settled settled
	entry   Entry
}

// settle asks a node about these versions. First what the node knows, then what it has: a version that arrives in between is
// found by the second question. In the other order, such a version would seem to have been deleted.
func settle(ctx context.Context, c *conn, doubts []doubt, t tryTime) ([]settlement, *tryError) {
	knowsAll, err := knowsAll(ctx, c, doubts, t)
	if err != nil {
		return nil, err
	}
	found := make([]settlement, len(doubts))
	for start := 0; start < len(doubts); start += looksAtOnce {
		part := doubts[start:min(start+looksAtOnce, len(doubts))]
		errs := make([]*tryError, len(part))
		var asked sync.WaitGroup
		for i, one := range part {
			asked.Go(func() {
				reply, err := c.request(ctx, appendGet(nil, one.path, true), t)
				if err == nil {
					var entry Entry
					if entry, err = reply.entry(c.name); err == nil {
						found[start+i] = settlement{judge(entry.Version, one.version, knowsAll), entry}
					}
				}
				errs[i] = err
			})
		}
		asked.Wait()
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func judge(version, asked Version, knowsAll bool) settled {
	switch {
	case version.IsZero() && knowsAll:
		return settledGone
	case version.IsZero():
		return settledBehind
	case version == asked:
		return settledSame
	case asked.Compare(version) < 0:
		return settledNewer
	}
	return settledBehind
}

// knowsAll tells whether a node has accounted for all of these events.
func knowsAll(ctx context.Context, c *conn, doubts []doubt, t tryTime) (bool, *tryError) {
	ticks := map[string]map[int64]bool{}
	for _, one := range doubts {
		if one.version.tick >= 0 {
			if ticks[one.version.node] == nil {
				ticks[one.version.node] = map[int64]bool{}
			}
			ticks[one.version.node][one.version.tick] = true
		}
	}
	nodes := msgpack.AppendMapHead(nil, len(ticks))
	for _, node := range slices.Sorted(maps.Keys(ticks)) {
		nodes = msgpack.AppendArrayHead(msgpack.AppendString(nodes, node), len(ticks[node]))
		for _, tick := range slices.Sorted(maps.Keys(ticks[node])) {
			nodes = msgpack.AppendInt(nodes, tick)
		}
	}
	reply, err := c.request(ctx, newBody("check_deleted").raw("nodes", nodes).head(), t)
	if err != nil {
		return false, err
	}
	// A node that does not say so does not know it.
	missing, wrong := msgpack.ReadHead(reply.get("missing"))
	return wrong == nil && missing.Kind == msgpack.Map && missing.Len == 0, nil
}
