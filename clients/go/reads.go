package distkv

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"distkv.example/client/internal/msgpack"
)

// lookAgain is how long a read waits until it looks for a write of its own again, once all nodes were asked.
const lookAgain = 20 * time.Millisecond

// GetOptions are those of a read; nil is none.
type GetOptions struct {
	// Read is whose answer counts, instead of what the configuration says.
	Read ReadMode
	// Timeout is for all tries; without one (zero) the context's deadline counts, or the configuration. With a negative one, as
	// with a context that has ended, nothing is sent.
	Timeout time.Duration
}

// Get reads a value as a type of yours. An [ErrNotFound]: there is none; an [ErrBadValue]: it is not of this type. A
// stored nil is a value.
func Get[T any](ctx context.Context, c *Client, path Path, options *GetOptions) (T, error) {
	value, err := c.Get(ctx, path, options)
	if err != nil {
		var none T
		return none, err
	}
	return As[T](value)
}

// Get reads a value, byte for byte. An [ErrNotFound]: there is none.
func (c *Client) Get(ctx context.Context, path Path, options *GetOptions) (Value, error) {
	found, node, attempts, err := c.read(ctx, path, options, false)
	if err != nil {
		return nil, err
	}
	if value := found.get("value"); value != nil {
		return Value(value), nil
	}
	return nil, notFound(path, node, attempts)
}

// Entry reads an entry with its version, which IfVersion takes. A deleted entry has no value. An [ErrNotFound]: there
// never was one, or it was deleted and purged. The entry that comes with an error has an untold version, which IfVersion
// refuses: the zero Version would be no condition.
func (c *Client) Entry(ctx context.Context, path Path, options *GetOptions) (Entry, error) {
	found, node, attempts, err := c.read(ctx, path, options, true)
	none := Entry{Version: untold}
	if err != nil {
		return none, err
	}
	entry, malformed := found.entry(node)
	if malformed != nil {
		return none, finalError(malformed, NotDone, node, attempts)
	}
	if entry.Deleted && entry.Version.IsZero() {
		return none, notFound(path, node, attempts)
	}
	return entry, nil
}

func (c *Client) read(ctx context.Context, path Path, options *GetOptions, withChain bool) (message, string, int, error) {
	mode, timeout := c.config.ReadMode, time.Duration(0)
	if options != nil {
		var err error
		if mode, err = options.Read.check(c.config.ReadMode); err != nil {
			return nil, "", 0, err
		}
		timeout = options.Timeout
	}
	r := reader{caller: &c.caller, ctx: ctx, path: path, withChain: withChain, timeout: timeout}
	var found served
	var err *Error
	switch mode {
	case Freshest:
		answer, err := r.freshest()
		if err != nil {
			return nil, "", 0, err
		}
		c.caller.noteAnswer(path, answer.node)
		return answer.message, answer.node, 1, nil
	case AnyNode:
		found, err = r.ask(anyLive(c.caller.topology.routing()), nil)
	default:
		found, err = r.preferred()
	}
	if err != nil {
		return nil, "", 0, err
	}
	c.caller.noteAnswer(path, found.conn.name)
	return found.message, found.conn.name, found.attempts, nil
}

// reader is one read.
type reader struct {
	*caller
	ctx       context.Context
	path      Path
	withChain bool
	timeout   time.Duration
	watched   *watched // of a read of a majority; nil: nobody observes it
}

// bodies are requests in the making, so that a read allocates little.
var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 256); return &b }}

func (r *reader) ask(first *target, last []address) (served, *Error) {
	p := plan{action: "get_value", shard: r.path.Shard(), first: first, last: last, timeout: r.timeout}
	b := bodies.Get().(*[]byte)
	*b = appendGet((*b)[:0], r.path, r.withChain)
	found, err := r.call(r.ctx, &p, *b, nil)
	bodies.Put(b)
	return found, err
}

// preferred: a version older than an own write is not taken while there is hope for a newer one, and time to look for it.
func (r *reader) preferred() (served, *Error) {
	shard := r.path.Shard()
	sought := r.own.newest(r.path)
	if sought < 0 {
		return r.ask(r.home(r.topology.routing(), shard), nil)
	}
	if _, isSet := r.ctx.Deadline(); !isSet && r.timeout == 0 {
		r.timeout = r.config.Retry.TotalDeadline // It is one call, however many nodes are asked.
	}
	end := r.ownEnd()
	r.withChain = true
	var stale []address
	var held served // the newest answer so far
	attempts := 0
	var lackedAt instant // 0: by no answer yet
	for {
		if r.timeout > 0 {
			r.timeout = max(end-now(), 1)
		}
		found, err := r.ask(r.home(r.topology.routing(), shard), stale)
		if err != nil {
			return r.orHeld(held, attempts, err)
		}
		attempts += found.attempts
		found.attempts = attempts
		if r.own.isEnough(r.path, sought, tockOf(found.message), found.life()) {
			return found, nil
		}
		r.counters.staleAnswers.Add(1)
		if held.conn == nil || isOlder(held.message, found.message) {
			held = found
		}
		held.attempts = attempts
		lackedAt = earlier(lackedAt, r.own.lackedSince(r.path))
		if now()-lackedAt >= r.config.OwnWritePatience {
			r.counters.staleTaken.Add(1)
			r.own.giveUp(r.path, lackedAt)
			return held, nil
		}
		if slices.Contains(stale, found.address) {
			// All nodes were asked.
			stale = stale[:0]
			r.pool.pause(r.ctx, min(lookAgain, end-now()))
		}
		if now() >= end {
			r.counters.staleTaken.Add(1)
			return held, nil
		}
		stale = append(stale, found.address)
	}
}

// earlier is since when a read has lacked the own write, which it now lacks since then by what all reads know: one that finds it
// gives the others no more time. 0: it did not before.
func earlier(before, since instant) instant {
	if before == 0 {
		return since
	}
	return min(before, since)
}

// ownEnd is when the time ends that this read itself has, or its context.
func (r *reader) ownEnd() instant {
	if r.timeout > 0 {
		return now() + r.timeout
	}
	if deadline, isSet := r.ctx.Deadline(); isSet {
		return now() + time.Until(deadline)
	}
	return never
}

// orHeld is what a read comes to whose further tries ended like this, and which may have an answer that lacks an own write: that
// counts where there was no more time.
func (r *reader) orHeld(held served, attempts int, err *Error) (served, *Error) {
	switch {
	case held.conn == nil:
		return served{}, err
	case errors.Is(r.ctx.Err(), context.Canceled):
		return served{}, canceledError(r.ctx, NotDone, held.conn.name, attempts+err.Attempts)
	case err.Is(ErrUnavailable):
		r.counters.staleTaken.Add(1)
		held.attempts = attempts + err.Attempts
		return held, nil
	}
	err.Attempts += attempts
	return served{}, err
}

// tockOf is the tock of the entry in an answer, -1 where the node has none.
func tockOf(m message) int64 {
	chain := m.get("chain")
	if m.get("value") == nil && (chain == nil || msgpack.IsNil(chain)) {
		return -1
	}
	return m.tock()
}

func anyLive(r *routing) *target {
	live := make([]*target, 0, len(r.targets))
	for _, one := range r.targets {
		if one.isLive {
			live = append(live, one)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[rand.IntN(len(live))]
}

// isOlder compares two nodes' answers. Nothing at all is older than anything.
func isOlder(known, other message) bool {
	one, _ := known.version()
	two, _ := other.version()
	return !two.IsZero() && (one.IsZero() || one.Compare(two) < 0)
}
