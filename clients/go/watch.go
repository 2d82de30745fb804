package distkv

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"
)

const (
	// doubtsMax is the most paths of which a watch asks what became of them; with more, it starts over.
	doubtsMax = 4096
	// lookInterval is between two questions about late versions.
	lookInterval = 50 * time.Millisecond
)

// Event is what a watch reports: [Change], [UpToDate], [Resumed] or [Restarted].
type Event interface{ isEvent() }

// Change: an entry was created, changed, or deleted.
type Change struct {
	Path Path
	// Value is its value; none if it was deleted.
	Value   Value
	Deleted bool
	// Version is zero for a deletion that was found later, of which nothing else is known; IfVersion refuses it then.
	Version Version
}

// UpToDate: all that was there has come; what follows is what changes.
type UpToDate struct{}

// Resumed: its node was lost, and it continues at another one where it was.
type Resumed struct{ Node string }

// Restarted: it could not continue where it was. Discard what it reported: the whole present state follows.
type Restarted struct{}

func (Change) isEvent()    {}
func (UpToDate) isEvent()  {}
func (Resumed) isEvent()   {}
func (Restarted) isEvent() {}

// WatchOptions are those of a watch; nil is none.
type WatchOptions struct {
	// NoFetch: the state that is there is not reported, only UpToDate and what changes from then on. Where its node is lost
	// before that state was complete, the watch starts over ([Restarted]), and the next one is reported.
	NoFetch bool
	// MinDepth and MaxDepth: entries so many elements below the path; MaxDepth 0 is no bound, -1 the path alone. Others are an
	// [ErrUsage].
	MinDepth, MaxDepth int
}

// Watch continues at another node when its own is lost, without a gap or a repetition. One goroutine reads it; any may close
// it, and somebody must.
//
// For each path, versions come in order, and none is delivered twice: a watch remembers what it has delivered. At the next
// node it gets the whole state, delivers what is newer, and asks about paths that are not shown. If it cannot tell what is
// missing, it starts over and says so ([Restarted]). Versions that were superseded while the watch was away, or was not read
// while its node could send no more, are not delivered, nor deletions in between: only the latest of each path. The pauses between its searches are those between tries (RetryPolicy), and begin
// anew once a node has sent for as long as the longest of them.
type Watch struct {
	*subscription
	path     Path
	memory   *memory
	events   []Event // what one message, or one answer about doubts, has brought: a bounded number
	fetching bool    // the state is coming
	owes     bool    // the state has not come whole yet: UpToDate must follow
	silent   bool    // the state is not reported, since it was not wanted

	older       map[Path]struct{} // that this node shows older than they were delivered
	doubts      []doubt
	doubtsUntil instant
	doubtsPause time.Duration
	wasLive     bool
}

// Watch reports the path and everything below it: the state, [UpToDate], then changes. Leaving the loop ends it; an error
// comes last.
func (c *Client) Watch(ctx context.Context, path Path, options *WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := c.OpenWatch(ctx, path, options)
		if err != nil {
			yield(nil, err)
			return
		}
		defer w.Close()
		for {
			event, err := w.Next(ctx)
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// OpenWatch is for who wants to wait for events one by one, with Next. It must be closed.
func (c *Client) OpenWatch(ctx context.Context, path Path, options *WatchOptions) (*Watch, error) {
	b := pathBody("watch", path).flag("fetch").integer("nchain", 1)
	w := &Watch{path: path, memory: newMemory(c.config.WatchPathsMax, c.config.WatchBytesMax), fetching: true, owes: true,
		older: map[Path]struct{}{}}
	if options != nil {
		if err := depths(b, options.MinDepth, options.MaxDepth); err != nil {
			return nil, err
		}
		w.silent = options.NoFetch
	}
	w.subscription = newSubscription(&c.caller, "watch", "watch", path, b.head())
	if err := w.begin(ctx, w); err != nil {
		return nil, err
	}
	return w, nil
}

// Next is the next event; it waits as long as necessary, also while no node can be reached. Giving up to wait loses nothing.
// An error: the context ended; a node refused for good, or none lets the client in; or the watch or the client was closed.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	for {
		if len(w.events) > 0 {
			event := w.events[0]
			w.events[0] = nil
			if w.events = w.events[1:]; len(w.events) == 0 {
				w.events = nil
			}
			return event, nil
		}
		from, ended := w.now()
		if ended != nil {
			return nil, ended
		}
		if ctx.Err() != nil {
			return nil, canceledError(ctx, NotDone, "", 0)
		}
		w.advance(ctx, from)
	}
}

// advance is one step. The state changes only after the wait, so giving up loses nothing.
func (w *Watch) advance(ctx context.Context, from *opened) {
	if from == nil {
		if found, isDone := w.find(ctx); isDone {
			w.onFound(found)
		}
		return
	}
	if len(w.doubts) > 0 {
		if found, isDone := w.settleDoubts(ctx, from); isDone {
			w.onSettled(found, from)
		}
		return
	}
	found, err := from.stream.next(ctx, exactly(never))
	switch {
	case err != nil && ctx.Err() != nil && (err.kind == tryCanceled || err.kind == tryTimedOut):
		return
	case err != nil:
		if _, ended := w.now(); ended == nil && w.onError(err, from) {
			w.onLost()
		}
	case found == nil:
		if _, ended := w.now(); ended == nil {
			w.onLost()
		}
	case found.hasPath:
		if !w.onVersion(found, from) {
			// It does not keep to the protocol.
			w.onLost()
		}
	case found.state == "uptodate" && w.fetching:
		w.onStateHasCome(from)
	}
}

func (w *Watch) onFound(found worked) {
	if found.err != nil {
		w.end(found.err)
		return
	}
	w.memory.beginFeed()
	clear(w.older)
	w.fetching = true
}

func (w *Watch) onVersion(found *item, from *opened) bool {
	path, wrong := w.path.behind(found.path)
	entry, err := found.message.entry(from.conn.name)
	if wrong != nil || err != nil {
		return false
	}
	switch w.memory.look(path, entry, w.fetching && !w.owes) {
	case lookNew:
		w.deliver(path, entry, byFeed)
		if w.fetching && w.memory.hasLostEarlier() {
			w.startOver()
		}
	case lookKnown:
		w.caller.counters.watchRepeats.Add(1)
	case lookDoubtful:
		if w.fetching {
			w.startOver() // Of a whole state, too much would have to be asked about.
		} else {
			w.beginDoubts([]doubt{{path, entry.Version, ofArrived}}, true)
		}
	case lookOlder:
		if w.fetching && len(w.older) <= doubtsMax {
			w.older[path] = struct{}{}
			break
		}
		// Another node has told what was delivered, and this one has not heard of it yet, or it is lost.
		if version := w.memory.version(path); !version.IsZero() {
			w.beginDoubts([]doubt{{path, version, ofDelivered}}, true)
		}
	}
	return true
}

func (w *Watch) deliver(path Path, entry Entry, by toldBy) {
	w.memory.onDelivered(path, entry, by)
	w.tell(Change{path, entry.Value, entry.Deleted, entry.Version})
}

// tell reports a change, unless it is of a state that is not wanted.
func (w *Watch) tell(change Change) {
	if !w.silent {
		w.events = append(w.events, change)
	}
}

// onStateHasCome: the state of a node has come whole.
func (w *Watch) onStateHasCome(from *opened) {
	var paths []Path
	for path := range w.memory.notSeen() {
		if paths = append(paths, path); len(paths) > doubtsMax {
			break
		}
	}
	paths = slices.AppendSeq(paths, maps.Keys(w.older))
	clear(w.older)
	if len(paths) > doubtsMax {
		w.startOver()
		return
	}
	var doubts []doubt
	for _, path := range paths {
		if version := w.memory.version(path); !version.IsZero() {
			doubts = append(doubts, doubt{path, version, ofDelivered})
		}
	}
	if len(doubts) > 0 {
		w.beginDoubts(doubts, false)
	} else {
		w.goLive(from)
	}
}

func (w *Watch) beginDoubts(doubts []doubt, wasLive bool) {
	w.doubts, w.wasLive, w.doubtsPause = doubts, wasLive, 0
	w.doubtsUntil = now() + w.caller.config.WatchPatience
}

func (w *Watch) settleDoubts(ctx context.Context, from *opened) (worked, bool) {
	doubts, pause := w.doubts, w.doubtsPause
	return w.run(ctx, func(ctx context.Context) worked {
		if !wait(ctx, pause) {
			return worked{failure: gaveUp(ctx, from.conn.name)}
		}
		found, err := settle(ctx, from.conn, doubts, whileArriving(now()+w.caller.config.Retry.TryDeadline))
		return worked{settled: found, failure: err}
	})
}

func (w *Watch) onSettled(found worked, from *opened) {
	doubts := w.doubts
	w.doubts = nil
	if found.failure != nil {
		if found.failure.kind == tryServer {
			// It cannot answer: that is no reason to leave it.
			w.startOver()
		} else {
			w.onLost()
		}
		return
	}
	var behind []doubt
	for i, one := range doubts {
		entry := found.settled[i].entry
		switch settled := found.settled[i].settled; {
		case settled == settledBehind:
			behind = append(behind, one)
		case settled == settledGone:
			// What arrived and is gone was deleted before anybody was told of it.
			if w.memory.onGone(one.path, one.version, entry.tock) && one.of == ofDelivered {
				w.tell(Change{Path: one.path, Deleted: true, Version: untold})
			}
		case settled == settledSame && one.of == ofDelivered:
			w.memory.onHeld(one.path)
		case one.of == ofArrived && entry.Deleted:
			// That it is deleted was told already, before what has arrived.
			w.memory.onDelivered(one.path, entry, byAnswer)
		default:
			w.deliver(one.path, entry, byAnswer)
		}
	}
	switch {
	case len(behind) == 0 && w.wasLive:
	case len(behind) == 0:
		w.goLive(from)
	case now() < w.doubtsUntil:
		w.doubts, w.doubtsPause = behind, lookInterval
	default:
		w.startOver()
	}
}

func (w *Watch) goLive(from *opened) {
	w.fetching = false
	if w.owes {
		w.owes = false
		w.events = append(w.events, UpToDate{})
	} else {
		w.caller.counters.watchResumed.Add(1)
		w.events = append(w.events, Resumed{from.conn.name})
	}
	w.silent = false
}

// onLost: the stream has ended.
func (w *Watch) onLost() {
	w.caller.counters.watchLost.Add(1)
	w.drop()
	w.doubts = nil
	if w.silent || !w.memory.isWhole() {
		// Of a state that was not reported, and was cut off, nobody knows what the next one shows that is new.
		w.startOver()
	}
}

// startOver: what was reported does not count any more.
func (w *Watch) startOver() {
	w.caller.counters.watchRestarted.Add(1)
	w.drop()
	w.memory.clear()
	clear(w.older)
	w.doubts = nil
	w.owes, w.silent = true, false
	if planted != plantSilentRestart {
		w.events = append(w.events, Restarted{})
	}
}
