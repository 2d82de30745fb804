package distkv

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// life is a node's name and incarnation; -1 where the node has not told it.
type life struct {
	name        string
	incarnation int64
}

// ownWrites is the writes of this client, so that it reads them back and later ones come after them; all tables are bounded. The first says per shard which life
// of which node acknowledged the last write: reads of the shard go there first. The second says per path which tock the last
// own write got: another node's answer must have at least that.
//
// The third is about writes with a condition: which node the last answer about a path came from, where that node is not
// live. It is cut off from the node that tells which ones are, and clients reach it. What it has, the others may not have
// heard of, and so would refuse each change of it until the split is over.
type ownWrites struct {
	max   int
	clock *clock

	mu     sync.RWMutex
	turn   uint64       // counts acknowledgements
	homes  map[int]home // at most one per shard
	tocks  map[Path]*list.Element
	oldest *list.List // of ownWrite

	hasApart atomic.Bool     // apart has something; it rarely does
	apart    map[Path]string // by path the name of the node that is not live; at most max
}

// home is a life of a node, and the turn at which it became the home of its shard.
type home struct {
	life
	since uint64
}

type ownWrite struct {
	path Path
	tock int64
	turn uint64 // of its acknowledgement
	// lackedAt is when an answer was first found to lack it, of all reads since one that had it; 0: none was. The patience
	// of all begins there.
	lackedAt instant
}

func newOwnWrites(max int, heard *clock) *ownWrites {
	return &ownWrites{max: max, clock: heard, homes: map[int]home{}, tocks: map[Path]*list.Element{}, oldest: list.New(),
		apart: map[Path]string{}}
}

// onWritten: a node acknowledged a write.
func (o *ownWrites) onWritten(path Path, tock int64, where life) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moveTo(path.Shard(), where)
	if o.max <= 0 {
		return
	}
	written := ownWrite{path: path, tock: tock, turn: o.turn}
	if known := o.tocks[path]; known != nil {
		// Two writes at once are acknowledged in any order.
		if tock >= known.Value.(ownWrite).tock {
			known.Value = written
		}
		o.oldest.MoveToBack(known)
		return
	}
	o.tocks[path] = o.oldest.PushBack(written)
	if len(o.tocks) > o.max {
		delete(o.tocks, o.oldest.Remove(o.oldest.Front()).(ownWrite).path)
	}
}

// onTree: a node changed many entries of a shard, or the table of shards.
func (o *ownWrites) onTree(shard int, where life) {
	o.mu.Lock()
	o.moveTo(shard, where)
	o.mu.Unlock()
}

// moveTo is called with the lock.
func (o *ownWrites) moveTo(shard int, where life) {
	o.turn++
	if o.homes[shard].life != where {
		o.homes[shard] = home{where, o.turn}
	}
}

func (o *ownWrites) home(shard int) (life, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	found, isThere := o.homes[shard]
	return found.life, isThere
}

// onAnswer: an answer about a path counts, of this node, which is not live, or of a live one ("").
func (o *ownWrites) onAnswer(path Path, apart string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if apart == "" {
		delete(o.apart, path)
	} else if o.max > 0 {
		if _, isThere := o.apart[path]; !isThere && len(o.apart) >= o.max {
			clear(o.apart) // Nothing is lost but a try: who is refused reads again.
		}
		o.apart[path] = apart
	}
	o.hasApart.Store(len(o.apart) > 0)
}

// apartOf is the name of the node that the last answer about a path came from, if it was not live then; else "".
func (o *ownWrites) apartOf(path Path) string {
	if !o.hasApart.Load() {
		return ""
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.apart[path]
}

// orderInto adds what a write says of what this client knows: it comes after that. Where it may seem to be done already, the
// node is also told of the last own write of the path, of which it may not have heard.
func (o *ownWrites) orderInto(b *body, path Path, mayBeDone bool) *body {
	if latest := o.clock.latest.Load(); latest > 0 {
		b.integer("above", latest)
	}
	if mayBeDone {
		o.mu.RLock()
		defer o.mu.RUnlock()
		if known := o.tocks[path]; known != nil {
			b.integer("own", known.Value.(ownWrite).tock)
		}
	}
	return b
}

// newest is the tock of the last own write of the path, which a read that begins now looks for; -1: none is remembered.
func (o *ownWrites) newest(path Path) int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if own := o.tocks[path]; own != nil {
		return own.Value.(ownWrite).tock
	}
	return -1
}

// isEnough tells whether an answer is good enough for a read that looks for the own write with the tock sought: the last one that
// was acknowledged before the read began (-1: there is none). Of what is written meanwhile, each answer may lack some, so a read
// that looked for that as well might never end. `tock` is the entry's, -1 if the node has none.
func (o *ownWrites) isEnough(path Path, sought, tock int64, where life) bool {
	if planted == plantOwnWrites || sought < 0 {
		return true
	}
	o.mu.RLock()
	isEnough, wasLacked := true, false
	if own := o.tocks[path]; own != nil {
		written := own.Value.(ownWrite)
		isEnough, wasLacked = tock >= sought, written.lackedAt != 0 && written.tock == sought
		if tock < 0 {
			// At the node that took the write, it was deleted and purged since. One that became the shard's home later took
			// writes of other paths, and may not have heard of this one.
			at := o.homes[path.Shard()]
			isEnough = where.incarnation >= 0 && at.life == where && written.turn >= at.since
		}
	}
	o.mu.RUnlock()
	if isEnough && wasLacked {
		o.onFound(path)
	}
	return isEnough
}

// onFound: an answer has the own write, so who lacks it is only behind.
func (o *ownWrites) onFound(path Path) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.tocks[path]; known != nil {
		own := known.Value.(ownWrite)
		own.lackedAt = 0
		known.Value = own
	}
}

// lackedSince: an answer lacks the own write. It returns when one did first.
func (o *ownWrites) lackedSince(path Path) instant {
	moment := now()
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.tocks[path]
	if known == nil {
		return moment // Another read has just given it up.
	}
	own := known.Value.(ownWrite)
	if own.lackedAt == 0 {
		own.lackedAt = moment
		known.Value = own
	}
	return own.lackedAt
}

// giveUp: the write that answers have lacked since then is nowhere to be found; it is not looked for again.
func (o *ownWrites) giveUp(path Path, lackedAt instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.tocks[path]; known != nil && known.Value.(ownWrite).lackedAt == lackedAt {
		o.oldest.Remove(known)
		delete(o.tocks, path)
	}
}
