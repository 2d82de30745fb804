package distkv

import (
	"context"
	"errors"
	"fmt"
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
		return answer.message, answer.node, 1, nil
	case AnyNode:
		found, err = r.ask(anyLive(c.caller.topology.routing()), nil)
	default:
		found, err = r.preferred()
	}
	if err != nil {
		return nil, "", 0, err
	}
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
	if !r.own.wrote(r.path) {
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
		if r.own.isEnough(r.path, tockOf(found.message), found.life()) {
			return found, nil
		}
		r.counters.staleAnswers.Add(1)
		if held.conn == nil || isOlder(held.message, found.message) {
			held = found
		}
		held.attempts = attempts
		if since := r.own.lackedSince(r.path); now()-since >= r.config.OwnWritePatience {
			r.counters.staleTaken.Add(1)
			r.own.giveUp(r.path, since)
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

// answer is one node's.
type answer struct {
	node    string
	at      *target
	life    life
	message message
	err     *tryError
}

// freshest asks all live nodes until a majority of those in the view has answered.
func (r *reader) freshest() (answer, *Error) {
	if r.isClosing.Load() {
		return answer{}, closedError(0)
	}
	r.calls.Add(1)
	defer r.calls.Done()
	r.watched = r.watch(&r.ctx, "get_value")
	found, attempts, err := r.askMajority()
	r.watched.ended(attempts, err)
	return found, err
}

func (r *reader) askMajority() (answer, int, *Error) {
	policy := &r.config.Retry
	r.counters.calls.Add(1)
	total, refused := r.total(r.ctx, r.timeout)
	if refused != nil {
		return answer{}, 0, refused
	}
	started := now()
	found := majority{answered: map[string]bool{}, refused: map[string]bool{}}
	for attempt := 1; ; attempt++ {
		view := r.topology.routing()
		if view.view.Source == "" {
			return answer{}, attempt - 1, usage("this client does not know which nodes there are, so not what a " +
				"majority of them is, which read mode 'freshest' needs: nodes of old versions cannot tell it, and with OnlySeeds they are " +
				"not asked")
		}
		if r.pool.closed() {
			return answer{}, attempt - 1, closedError(attempt - 1)
		}
		counted := map[string]bool{}
		for _, node := range view.view.Nodes {
			if node.counts() {
				counted[node.Name] = true
			}
		}
		needed := len(counted)/2 + 1
		for name := range found.answered {
			if !counted[name] {
				delete(found.answered, name)
			}
		}
		asked := found.toAsk(view.targets, counted)
		t := tryTime{end: min(now()+policy.TryDeadline, started+total), longest: started + total, until: never}
		refused := r.askRound(&found, asked, attempt, needed, t)
		if found.newest.message != nil && len(found.answered) >= needed {
			if !found.hasOwn && r.pauseForOwn(&found, attempt, started+total) {
				continue
			}
			if !found.hasOwn && errors.Is(r.ctx.Err(), context.Canceled) {
				return answer{}, attempt, canceledError(r.ctx, NotDone, "", attempt) // Else it would still wait.
			}
			if !found.hasOwn {
				r.counters.staleTaken.Add(1)
				if now()-found.lackedAt >= r.config.OwnWritePatience {
					r.own.giveUp(r.path, found.lackedAt)
				}
			}
			return found.newest, attempt, nil
		}
		if refused != nil {
			// It would answer the same the next time.
			return answer{}, attempt, finalError(refused.err, NotDone, refused.node, attempt)
		}
		missing := found.unanswered(asked, counted)
		over := r.ctx.Err()
		if over != nil && !errors.Is(over, context.DeadlineExceeded) {
			return answer{}, attempt, canceledError(r.ctx, NotDone, "", attempt).because(found.out.reason(missing))
		}
		// Whom the client's end, or the call's, has cut off has said nothing.
		denied := found.out.verdict(missing)
		if denied != nil && denied.why.notMet && len(found.answered) > 0 {
			denied = nil // Nobody knows whose those nodes are, and one lets the client in.
		}
		if denied != nil && over == nil && now()-started < total {
			if r.isClosing.Load() {
				return answer{}, attempt, closedError(attempt)
			}
			return answer{}, attempt, denied.error(NotDone, attempt)
		}
		verdict, delay := policy.decide(classUnavailable, attempt, now()-started, total, reading, rand.Float64())
		if verdict != tryAgain || over != nil {
			// Whether a round, or the pause before the next one, was cut off by the context's end is chance: it is the same error.
			r.counters.deadlines.Add(1)
			err := noMajority(&found, needed, len(counted), found.out.reason(missing), attempt)
			if _, isSet := r.ctx.Deadline(); over != nil || isSet && r.timeout == 0 && attempt != policy.AttemptsMax {
				err.cause = context.DeadlineExceeded // It may be a moment before the context says so itself.
			}
			return answer{}, attempt, err
		}
		r.pool.pause(r.ctx, delay)
	}
}

// pauseForOwn pauses before nodes are asked again, since an own write is missing in what a majority has.
// False: there is no more time for that, or no further try.
func (r *reader) pauseForOwn(found *majority, attempt int, end instant) bool {
	policy := &r.config.Retry
	isLast := policy.AttemptsMax > 0 && attempt >= policy.AttemptsMax
	left := min(found.lackedAt+r.config.OwnWritePatience, end) - now()
	if isLast || left <= 0 {
		return false
	}
	pause := min(policy.delay(attempt, rand.Float64()), left)
	return r.pool.pause(r.ctx, pause) && pause < left
}

func noMajority(found *majority, needed, nodes int, why *tryError, attempts int) *Error {
	text := fmt.Sprintf("of %d nodes %d answered, %d must", nodes, len(found.answered), needed)
	if why != nil {
		text += "; " + why.text
	}
	return &Error{Code: "no_majority", text: text, kind: ErrNoMajority, Attempts: attempts}
}

// majority is what has come of a read that asks for one.
type majority struct {
	answered map[string]bool
	refused  map[string]bool // for good: they would again
	newest   answer
	hasOwn   bool    // an answer has this client's last write, or is of the node that took it
	lackedAt instant // when an answer was first found to lack it, also of an earlier read: for a while from then it is waited for
	out      refusers
}

// toAsk is those of these nodes that are asked next: who has not answered; if all have, which means that all lack the own write, all
// again.
func (m *majority) toAsk(nodes []*target, counted map[string]bool) []*target {
	left := slices.DeleteFunc(slices.Clone(nodes), func(one *target) bool { return !counted[one.name] || m.refused[one.name] })
	if found := m.unanswered(left, counted); len(found) > 0 {
		return found
	}
	return left
}

// unanswered is those of these nodes that count, and have not answered.
func (m *majority) unanswered(nodes []*target, counted map[string]bool) []*target {
	var found []*target
	for _, one := range nodes {
		if counted[one.name] && !m.answered[one.name] {
			found = append(found, one)
		}
	}
	return found
}

// askRound asks these nodes at once, until enough have answered; the others are not waited for, nor anybody where too many
// refuse it. It returns the first final refusal.
func (r *reader) askRound(m *majority, asked []*target, attempt, needed int, t tryTime) *answer {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	answers := make(chan answer, len(asked))
	for _, one := range asked {
		r.watched.tries(one.name, attempt)
		go func() {
			found := answer{node: one.name, at: one}
			c, err := r.pool.getAt(ctx, one.place(), t.end, forCall)
			if err == nil {
				found.life = life{c.name, c.incarnation}
				sent := now()
				found.message, err = c.request(ctx, appendGet(nil, r.path, true), t)
				if err != nil && err.kind == tryTimedOut && ctx.Err() == nil {
					r.pool.onTimeout(one.address, c, sent)
				}
			}
			if err != nil && ctx.Err() == nil {
				r.counters.failed[classOf(err, true)].Add(1)
			}
			found.err = err
			answers <- found
		}()
	}
	open := len(asked)
	var refused *answer
	var late <-chan time.Time
	// More are waited for only if this client knows that there is something newer, and for a while.
	for open > 0 && (len(m.answered) < needed || !m.hasOwn) {
		if refused != nil && len(m.answered)+open < needed {
			break
		}
		if len(m.answered) >= needed && late == nil {
			timer := time.NewTimer(m.lackedAt + r.config.OwnWritePatience - now())
			defer timer.Stop()
			late = timer.C
		}
		var found answer
		select {
		case found = <-answers:
		case <-late:
		}
		if found.at == nil {
			break
		}
		open--
		r.counters.toOthers.Add(1)
		if found.err != nil {
			r.watched.failed(found.node, attempt, found.err)
		}
		switch {
		case found.err == nil:
			m.answered[found.node] = true
			m.newest = newerAnswer(m.newest, found)
			if !m.hasOwn && !r.own.isEnough(r.path, tockOf(found.message), found.life) {
				m.lackedAt = r.own.lackedSince(r.path)
			} else {
				m.hasOwn = true
			}
		case classOf(found.err, true) == classFinal:
			m.refused[found.node] = true
			if refused == nil {
				refused = &found
			}
		default:
			m.out.onFailure(found.at, found.err)
		}
	}
	cancel()
	for ; open > 0; open-- {
		<-answers
	}
	return refused
}

// newerAnswer is the newer of two nodes' answers.
func newerAnswer(known, other answer) answer {
	if known.message == nil || isOlder(known.message, other.message) {
		return other
	}
	return known
}

// isOlder compares two nodes' answers. Nothing at all is older than anything.
func isOlder(known, other message) bool {
	one, _ := known.version()
	two, _ := other.version()
	return !two.IsZero() && (one.IsZero() || one.Compare(two) < 0)
}
