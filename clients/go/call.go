package distkv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// plan is what a call wants.
type plan struct {
	action      string
	shard       int
	idempotency idempotency
	needsID     bool          // a second one counts once only because of a write id, which old nodes ignore
	first       *target       // a node that comes before the preferred one
	last        []address     // nodes that come last
	isLong      bool          // a try may take all the time there is, while the node is alive
	timeout     time.Duration // for all tries, instead of what the context or the policy says
	isUntimed   bool          // it counts whenever it comes, also if it may change something
	place       use           // for what a connection must have room
	isOwn       bool          // the client makes it by itself: it is not in the counters, and closing does not wait for it
}

// isTimed: each try says until when it counts.
func (p *plan) isTimed() bool {
	return p.idempotency != reading && !p.isUntimed && planted != plantNotTimed
}

// served is the reply, and the node that sent it.
type served struct {
	message    message
	conn       *conn
	address    address
	attempts   int
	maybeTwice bool // an earlier try, at another node, may have done it, too
	earlier    Fate // what the tries before have left in doubt
}

func (s *served) life() life { return life{s.conn.name, s.conn.incarnation} }

// once is one try of an operation that is more than one request with one reply.
type once func(ctx context.Context, c *conn, t tryTime) *tryError

// caller carries calls out: which node, which connection, how long, and what then. All operations go through here.
type caller struct {
	config   *Config
	pool     *pool
	topology *topology
	own      *ownWrites
	places   *writePlaces
	counters counters

	isClosing atomic.Bool
	calls     group // that are open

	mu      sync.Mutex
	endless map[endless]struct{} // watches and monitors
}

// endless is a watch or a monitor.
type endless interface{ clientClosed() }

// home is the node that acknowledged the last own write of a shard, while that life of it lives.
func (c *caller) home(r *routing, shard int) *target {
	where, isThere := c.own.home(shard)
	if !isThere {
		return nil
	}
	found := r.byName[where.name]
	if found == nil || !found.isLive {
		return nil
	}
	if found.incarnation >= 0 && where.incarnation >= 0 && found.incarnation != where.incarnation {
		return nil
	}
	return found
}

// noteAnswer: an answer of this node about a path counts.
func (c *caller) noteAnswer(path Path, node string) {
	at := c.topology.routing().byName[node]
	if at != nil && at.isApart() {
		c.own.onAnswer(path, node)
	} else if c.own.apartOf(path) != "" {
		c.own.onAnswer(path, "")
	}
}

// noteWrite: a node acknowledged a write.
func (c *caller) noteWrite(path Path, tock int64, where life) {
	c.own.onWritten(path, tock, where)
	c.noteAnswer(path, where.name)
}

// apart is the node that the last answer about a path came from, if it is not live: what it has, the live ones may not have
// heard of, so a change that has a condition goes there.
func (c *caller) apart(path Path) *target {
	name := c.own.apartOf(path)
	if name == "" || planted == plantNotApart {
		return nil
	}
	at := c.topology.routing().byName[name]
	if at == nil || !at.isApart() {
		return nil
	}
	return at
}

// tries is the nodes that were tried since all were. The first one needs no allocation.
type tries struct {
	first  place
	more   []place
	isSome bool
	again  place
	isSame bool // the next try goes to `again`
}

func (t *tries) note(to *target) {
	if !t.isSome {
		t.first, t.isSome = to.place(), true
		return
	}
	t.more = append(t.more, to.place())
}

// has tells whether it was tried. A seed may have become a node of a view meanwhile.
func (t *tries) has(one *target) bool {
	at, seed := one.place(), place{address: one.address}
	return t.isSome && (t.first == at || t.first == seed || slices.Contains(t.more, at) || slices.Contains(t.more, seed))
}

func (t *tries) clear() { t.isSome, t.more = false, t.more[:0] }

// leaveOut: others come before this one.
func (t *tries) leaveOut(where address) {
	t.clear()
	t.first, t.isSome = place{address: where}, true
}

// call carries a call out: `request` as one request with one reply, or `do` for one try. It is tried again, as the policy
// decides, at the next node each time.
func (c *caller) call(ctx context.Context, p *plan, request []byte, do once) (served, *Error) {
	if c.isClosing.Load() {
		return served{}, closedError(0)
	}
	var own *group
	if p.isOwn {
		own = c.pool.goroutines
	} else {
		c.calls.Add(1)
		defer c.calls.Done()
	}
	if c.config.Observer == nil {
		return c.carryOut(ctx, p, request, do, nil)
	}
	w := watchCall(ctx, c.config, p.action, own)
	found, err := c.carryOut(w.ctx, p, request, do, w)
	w.onEnd(found.attempts, err)
	return found, err
}

// total is how long a call may take. An error: it may not begin, since its context has ended, or there is no time.
func (c *caller) total(ctx context.Context, timeout time.Duration) (time.Duration, *Error) {
	if cause := ctx.Err(); cause != nil {
		return 0, notBegun(cause)
	}
	total := timeout
	if timeout == 0 {
		total = c.config.Retry.TotalDeadline
		if deadline, isSet := ctx.Deadline(); isSet {
			total = time.Until(deadline)
		}
	}
	if total <= 0 {
		// It may be a moment before a context says so itself.
		return 0, notBegun(context.DeadlineExceeded)
	}
	return total, nil
}

func (c *caller) carryOut(ctx context.Context, p *plan, request []byte, do once, w *watched) (served, *Error) {
	policy := &c.config.Retry
	counters := &c.counters
	if !p.isOwn {
		counters.calls.Add(1)
	}
	total, late := c.total(ctx, p.timeout)
	if late != nil {
		return served{}, late
	}
	started := now()
	moment := started
	var round tries
	var inDoubt []address
	var refused refusers
	var unconfirmed answer // what a node said last of a change that it has made
	fate := NotDone
	for attempts := 1; ; attempts++ {
		routing := c.topology.routing()
		to := c.choose(routing, p, &round)
		if to == nil {
			return served{}, usage("there is no node to ask")
		}
		if c.pool.closed() {
			err := closedError(attempts - 1)
			err.Fate = fate
			return served{}, err
		}
		node := c.countTry(routing, p, to, attempts)
		if w != nil {
			w.onTry(to.name, attempts)
		}
		end := min(moment+policy.TryDeadline, started+total)
		sent := instant(-1)
		connection, failure := c.pool.getAt(ctx, to.place(), end, p.place)
		if failure == nil {
			sent = now()
			t := tryTime{end: end, longest: started + total, until: never}
			if p.isLong {
				t.end = t.longest
			}
			if p.isTimed() {
				t.until = min(t.end, sent+policy.TryDeadline)
			}
			var reply message
			if do == nil {
				reply, failure = connection.request(ctx, request, t)
			} else {
				failure = do(ctx, connection, t)
			}
			if failure == nil {
				node.note(now() - sent)
				elsewhere := slices.ContainsFunc(inDoubt, func(other address) bool { return other != to.address })
				return served{reply, connection, to.address, attempts, elsewhere, fate}, nil
			}
		}
		if failure.kind == tryTimedOut && connection != nil {
			c.pool.onTimeout(to.address, connection, sent)
		}
		node.failures.Add(1)
		kind := classOf(failure, sent >= 0)
		what := p.idempotency
		if p.needsID && connection != nil && connection.incarnation < 0 && planted != plantOld {
			// Old nodes heed no write ids.
			what = unguarded
		}
		if failure.kind == tryCanceled && sent < 0 {
			kind = classUnavailable
		}
		if this := fateOf(kind, failure.made, what); this != NotDone {
			inDoubt = append(inDoubt, to.address)
			fate = fate.worse(this)
		}
		if w != nil {
			w.onFailed(to.name, attempts, kind, failure)
		}
		if !p.isOwn {
			counters.failed[kind].Add(1)
		}
		if failure.kind == tryCanceled {
			if c.pool.closed() && ctx.Err() == nil {
				err := closedError(attempts)
				err.Fate = fate
				return served{}, err
			}
			return served{}, canceledError(ctx, fate, to.name, attempts)
		}
		refused.onFailure(to, failure)
		moment = now()
		denied := refused.verdict(c.topology.routing().targets)
		if failure.kind == tryFull {
			denied = refused.noRoom(c.topology.routing().targets)
		}
		// Whom the client's end, or the call's, has cut off has said nothing.
		if denied != nil && moment-started < total && ctx.Err() == nil {
			if c.isClosing.Load() {
				err := closedError(attempts)
				err.Fate = fate
				return served{}, err
			}
			return served{}, denied.error(fate, attempts)
		}
		verdict, delay := policy.decide(kind, attempts, moment-started, total, what, rand.Float64())
		if verdict != tryAgain {
			switch verdict {
			case giveUpDeadline:
				counters.deadlines.Add(1)
			case giveUpFate:
				counters.unsafeToRetry.Add(1)
			}
			if c.pool.closed() && failure.kind != tryServer {
				err := closedError(attempts)
				err.Fate = fate
				return served{}, err
			}
			if failure.kind == tryTimedOut && unconfirmed.err != nil && unconfirmed.node == to.name {
				failure = unconfirmed.err // It says more than that the call's time has cut off the last try.
			}
			err := finalError(failure, fate, to.name, attempts)
			if fate == Unconfirmed && err.kind == ErrFateUnknown {
				// A node tells how long it has waited itself, in a try that may have been short.
				err.text = fmt.Sprintf("not confirmed within %v; the last try: %s", (moment - started).Round(time.Millisecond), failure.text)
			}
			if why := refused.reason(c.topology.routing().targets); why.weight() > failure.weight() {
				err = err.because(why)
				if why.outOfFiles() && err.cause == failure {
					// For errors.Is: that the deadline has cut off the last try says less.
					told := *failure
					told.cause = errors.Join(failure.cause, why.cause)
					failure, err.cause = &told, &told
				}
			}
			reason := ctx.Err()
			if _, isSet := ctx.Deadline(); isSet && p.timeout == 0 && verdict == giveUpDeadline && attempts != policy.AttemptsMax {
				// It may be a moment before the context says so itself.
				reason = context.DeadlineExceeded
			}
			if reason != nil && err.cause == failure && !errors.Is(failure, reason) {
				// For errors.Is: its time was the context's.
				timed := *failure
				timed.cause = errors.Join(failure.cause, reason)
				err.cause = &timed
			}
			return served{}, err
		}
		if kind == classUnknownThere {
			unconfirmed = answer{node: to.name, err: failure}
		}
		if kind.isSameNode() {
			round.again, round.isSame = to.place(), true
		}
		if failure.kind == tryFull {
			delay = 0 // No node was asked, and the next one may be at once.
		}
		if !c.pool.pause(ctx, delay) {
			why := refused.reason(c.topology.routing().targets)
			return served{}, canceledError(ctx, fate, to.name, attempts).because(why)
		}
		moment = now()
	}
}

func (c *caller) countTry(r *routing, p *plan, to *target, attempts int) *nodeCounters {
	node := c.counters.node(to.name)
	node.tries.Add(1)
	if !p.isOwn {
		if r.preferred(p.shard) == to {
			c.counters.toPreferred.Add(1)
		} else {
			c.counters.toOthers.Add(1)
		}
		if attempts > 1 {
			c.counters.retries.Add(1)
		}
	}
	return node
}

// choose is the next node to try: in the router's order, each once, those that fail just now last; when all were tried, from
// the beginning. The first choice allocates nothing.
func (c *caller) choose(r *routing, p *plan, round *tries) *target {
	if !round.isSome && len(p.last) == 0 && !round.isSame {
		best := p.first
		if best == nil {
			best = r.preferred(p.shard)
		}
		if best != nil && !c.pool.isFailingAt(best.place()) {
			round.note(best)
			return best
		}
	}
	if round.isSame {
		round.isSame = false
		if found := r.at(round.again); found != nil {
			return found
		}
	}
	order := r.order(p.shard)
	if p.first != nil {
		order = slices.Insert(order, 0, p.first)
	}
	for range 2 {
		var untried, wanted *target
		for _, one := range order {
			if round.has(one) {
				continue
			}
			if untried == nil {
				untried = one
			}
			if slices.Contains(p.last, one.address) {
				continue
			}
			if wanted == nil {
				wanted = one
			}
			if !c.pool.isFailingAt(one.place()) {
				round.note(one)
				return one
			}
		}
		if wanted == nil {
			wanted = untried
		}
		if wanted != nil {
			round.note(wanted)
			return wanted
		}
		round.clear()
	}
	return nil
}

// -- watches and monitors ------------------------------------------------------------------------

// begin keeps a watch or a monitor until it ends; false where the client is closed.
func (c *caller) begin(one endless) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosing.Load() {
		return false
	}
	c.endless[one] = struct{}{}
	return true
}

func (c *caller) forget(one endless) {
	c.mu.Lock()
	delete(c.endless, one)
	c.mu.Unlock()
}

// closeEndless tells them all that the client is closed.
func (c *caller) closeEndless() {
	c.mu.Lock()
	all := c.endless
	c.endless = map[endless]struct{}{}
	c.mu.Unlock()
	for one := range all {
		one.clientClosed()
	}
}
