package distkv

import (
	"context"
	"maps"
	"slices"
)

// Who is told of changes of the view: by a goroutine of its own, so that nothing waits for a listener, which may use the client.

const (
	// listenersMax is the most listeners of one client.
	listenersMax = 1024
	// changesMax is the most changes that wait until listeners have been told of those before: the last takes in further ones.
	changesMax = 64
)

// untoldChange is one of which listeners are to be told: from one routing to another, which may be several later.
type untoldChange struct {
	old, newer *routing
	listeners  []int // who listened when it was made, and nobody who came later and sees it already
}

// listen calls it for each change from now on; what it returns takes it off again.
func (t *topology) listen(call func(TopologyChange)) (func(), error) {
	if call == nil {
		return nil, usage("a listener to topology changes must be a function")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listeners) >= listenersMax {
		return nil, usage("there are too many listeners")
	}
	t.last++
	number := t.last
	t.listeners[number] = call
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.listeners, number)
	}, nil
}

// willTell is called with the lock under which the change is made.
func (t *topology) willTell(old, newer *routing) {
	if len(t.listeners) == 0 {
		return
	}
	listeners := slices.Sorted(maps.Keys(t.listeners))
	if last := len(t.toTell) - 1; last+1 < changesMax {
		t.toTell = append(t.toTell, untoldChange{old, newer, listeners})
	} else {
		t.toTell[last].newer, t.toTell[last].listeners = newer, listeners
	}
	signal(t.isToTell)
}

// tellAll is the goroutine that tells them, one change after the other.
func (t *topology) tellAll(ctx context.Context) {
	for {
		select {
		case <-t.isToTell:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		changes := t.toTell
		t.toTell = nil
		t.mu.Unlock()
		for _, one := range changes {
			t.tell(ctx, one)
		}
	}
}

func (t *topology) tell(ctx context.Context, untold untoldChange) {
	old, newer := untold.old, untold.newer
	change := TopologyChange{PreviousEpoch: old.view.Epoch, Epoch: newer.view.Epoch, Moved: old.movesTo(newer)}
	change.Added, change.Removed, change.Changed = compareViews(old.view.Nodes, newer.view.Nodes)
	if len(change.Added)+len(change.Removed)+len(change.Changed)+len(change.Moved) == 0 {
		return
	}
	t.mu.Lock()
	t.stats.Moved += uint64(len(change.Moved))
	t.mu.Unlock()
	for _, number := range untold.listeners {
		t.mu.Lock()
		call := t.listeners[number]
		t.mu.Unlock()
		if call != nil && ctx.Err() == nil {
			t.tellOne(call, change)
		}
	}
}

func (t *topology) tellOne(call func(TopologyChange), change TopologyChange) {
	defer func() {
		if reason := recover(); reason != nil {
			t.log.Error("distkv: a listener to topology changes failed", "panic", panicShown(reason))
		}
	}()
	t.pool.goroutines.outside(func() { call(change) })
}
