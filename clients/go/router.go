package distkv

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Which node serves a path, and which ones come next if it does not. Pure.
//
// Every node can serve every path. The router only sees to it that all clients take a path to the same node: its writers
// then meet there. A shard has a preferred node: the one that an override names, else the first live one by rendezvous
// hashing. Clients that rank otherwise would write the same paths at other nodes, so the ranks may not change.

// routerNodesMax is the most nodes that are ranked; further ones are left out.
const routerNodesMax = 4096

// target is a node that requests can go to.
type target struct {
	name        string
	incarnation int64 // -1: not known
	address     address
	isLive      bool
	isSeed      bool   // nobody says which node is there
	hash        uint64 // of the name
}

// place is where a node is to be reached. name: the one that must answer there; "": any, as at a seed.
type place struct {
	address address
	name    string
}

func (t *target) place() place {
	if t.isSeed {
		return place{address: t.address}
	}
	return place{t.address, t.name}
}

// isApart tells whether the view calls it not live, wherever clients reach it all the same. Of a seed, nobody says that.
func (t *target) isApart() bool { return !t.isLive && !t.isSeed }

// rank is the rank of a node for a shard, from the hash of its name: splitmix64's finalizer. The greatest is first.
func rank(nameHash uint64, shard int) uint64 {
	x := nameHash + uint64(shard+1)*0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	if planted == plantRank {
		x ^= 1 << 63
	}
	return x
}

// routing is one view combined with one table of overrides. It never changes; a shard's preferred node is decided when
// it is first asked for.
type routing struct {
	view ClusterView
	// targets: the nodes with a known address, in the order of names; then the seeds that none of them is.
	targets   []*target
	byName    map[string]*target
	addresses map[address]*target
	overrides map[int]string
	// preferredOf has the target's number + 1, or -1 where no node is live; 0: not decided yet.
	preferredOf [ShardCount]atomic.Int32
}

func newRouting(view ClusterView, seeds []address, overrides map[int]string) *routing {
	r := &routing{view: view, overrides: overrides, byName: map[string]*target{}, addresses: map[address]*target{}}
	add := func(t *target) {
		if len(r.targets) >= routerNodesMax {
			return
		}
		t.hash = hashKey(t.name)
		r.targets = append(r.targets, t)
		if r.byName[t.name] == nil {
			r.byName[t.name] = t
		}
		if r.addresses[t.address] == nil {
			r.addresses[t.address] = t
		}
	}
	for _, node := range view.Nodes {
		if node.hasAddress {
			add(&target{name: node.Name, incarnation: node.incarnation, address: node.address, isLive: node.IsLive(),
				isSeed: node.State == "seed"})
		}
	}
	for _, seed := range seeds {
		if r.addresses[seed] == nil {
			add(&target{name: seed.String(), incarnation: -1, address: seed, isLive: view.Epoch == 0, isSeed: true})
		}
	}
	return r
}

// at is the node that is to be reached there; nil: there is none any more.
func (r *routing) at(where place) *target {
	for _, t := range r.targets {
		if t.place() == where {
			return t
		}
	}
	return nil
}

// preferred is the node that serves a shard; nil if none is live. It allocates nothing once it is decided.
func (r *routing) preferred(shard int) *target {
	if shard < 0 || shard >= ShardCount {
		return nil
	}
	number := r.preferredOf[shard].Load()
	if number == 0 {
		number = int32(r.decide(shard))
		r.preferredOf[shard].Store(number)
	}
	if number < 0 {
		return nil
	}
	return r.targets[number-1]
}

func (r *routing) decide(shard int) int {
	best := -1
	for i, t := range r.targets {
		if !t.isLive {
			continue
		}
		if name, isSet := r.overrides[shard]; isSet && name == t.name {
			return i + 1
		}
		if best < 0 || compareRanks(t, r.targets[best], shard) < 0 {
			best = i
		}
	}
	if best < 0 {
		return -1
	}
	return best + 1
}

// compareRanks is negative where the first comes first.
func compareRanks(a, b *target, shard int) int {
	return cmp.Or(cmp.Compare(rank(b.hash, shard), rank(a.hash, shard)), cmp.Compare(a.name, b.name))
}

// order is all nodes, each once: the preferred one, the other live ones by rank, then those not live.
func (r *routing) order(shard int) []*target {
	preferred := r.preferred(shard)
	found := slices.Clone(r.targets)
	slices.SortStableFunc(found, func(a, b *target) int {
		if a == b {
			return 0
		}
		if a == preferred || b == preferred {
			return cmp.Compare(boolean(b == preferred), boolean(a == preferred))
		}
		return cmp.Or(cmp.Compare(boolean(b.isLive), boolean(a.isLive)), compareRanks(a, b, shard))
	})
	return found
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// preferredName is the same by name; "" where no node is live.
func (r *routing) preferredName(shard int) string {
	if t := r.preferred(shard); t != nil {
		return t.name
	}
	return ""
}

// movesTo is what moved from this one to a newer one.
func (r *routing) movesTo(newer *routing) []Move {
	var moved []Move
	for shard := range ShardCount {
		if before, after := r.preferredName(shard), newer.preferredName(shard); before != after {
			moved = append(moved, Move{shard, before, after})
		}
	}
	return moved
}
