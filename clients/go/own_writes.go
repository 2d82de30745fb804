package distkv

import (
	"container/list"
	"sync"
)

// life is a node's name and incarnation; -1 where the node has not told it.
type life struct {
	name        string
	incarnation int64
}

// ownWrites is the writes of this client, so that it reads them back; both tables are bounded. One says per shard which life
// of which node acknowledged the last write: reads of the shard go there first. The other says per path which tock the last
// own write got: another node's answer must have at least that.
type ownWrites struct {
	max int

	mu     sync.RWMutex
	homes  map[int]life // at most one per shard
	tocks  map[Path]*list.Element
	oldest *list.List // of ownWrite
}

type ownWrite struct {
	path Path
	tock int64
}

func newOwnWrites(max int) *ownWrites {
	return &ownWrites{max: max, homes: map[int]life{}, tocks: map[Path]*list.Element{}, oldest: list.New()}
}

// onWritten: a node acknowledged a write.
func (o *ownWrites) onWritten(path Path, tock int64, where life) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.homes[path.Shard()] = where
	if o.max <= 0 {
		return
	}
	if known := o.tocks[path]; known != nil {
		// Two writes at once are acknowledged in any order.
		known.Value = ownWrite{path, max(tock, known.Value.(ownWrite).tock)}
		o.oldest.MoveToBack(known)
		return
	}
	o.tocks[path] = o.oldest.PushBack(ownWrite{path, tock})
	if len(o.tocks) > o.max {
		delete(o.tocks, o.oldest.Remove(o.oldest.Front()).(ownWrite).path)
	}
}

// onTree: a node changed many entries of a shard, or the table of shards.
func (o *ownWrites) onTree(shard int, where life) {
	o.mu.Lock()
	o.homes[shard] = where
	o.mu.Unlock()
}

func (o *ownWrites) home(shard int) (life, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	found, isThere := o.homes[shard]
	return found, isThere
}

// wrote tells whether an own write of the path is remembered.
func (o *ownWrites) wrote(path Path) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.tocks[path] != nil
}

// isEnough tells whether an answer is good enough; `tock` is the entry's, -1 if the node has none.
func (o *ownWrites) isEnough(path Path, tock int64, where life) bool {
	if planted == plantOwnWrites {
		return true
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	own := o.tocks[path]
	if own == nil {
		return true
	}
	if tock < 0 {
		// At the node that took the write, it was deleted and purged since.
		return where.incarnation >= 0 && o.homes[path.Shard()] == where
	}
	return tock >= own.Value.(ownWrite).tock
}

// giveUp: the write is nowhere to be found; it is not looked for again.
func (o *ownWrites) giveUp(path Path) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known := o.tocks[path]; known != nil {
		o.oldest.Remove(known)
		delete(o.tocks, path)
	}
}
