package distkv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A read of a majority: all nodes are asked, until enough have answered and one has this client's own write.

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
	ctx, cancel := context.WithCancel(r.ctx)
	found := majority{answered: map[string]bool{}, refused: map[string]bool{}, open: map[string]int{},
		answers: make(chan answer), sought: r.own.newest(r.path)}
	defer func() {
		cancel()
		for range found.open {
			<-found.answers
		}
	}()
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
		found.counted = map[string]bool{}
		for _, node := range view.view.Nodes {
			if node.counts() {
				found.counted[node.Name] = true
			}
		}
		for name := range found.answered {
			if !found.counted[name] {
				delete(found.answered, name)
			}
		}
		asked := found.toAsk(view.targets)
		t := tryTime{end: min(now()+policy.TryDeadline, started+total), longest: started + total, until: never}
		r.askRound(ctx, &found, asked, attempt, t)
		if found.newest.message != nil && found.hasMajority() {
			if !found.hasOwn && r.pauseForOwn(ctx, &found, attempt, started+total) {
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
		if found.refusal != nil {
			// It would answer the same the next time.
			return answer{}, attempt, finalError(found.refusal.err, NotDone, found.refusal.node, attempt)
		}
		missing := found.unanswered(asked)
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
			err := noMajority(&found, found.out.reason(missing), attempt)
			if _, isSet := r.ctx.Deadline(); over != nil || isSet && r.timeout == 0 && attempt != policy.AttemptsMax {
				err.cause = context.DeadlineExceeded // It may be a moment before the context says so itself.
			}
			return answer{}, attempt, err
		}
		r.pool.pause(r.ctx, delay)
	}
}

// pauseForOwn pauses before nodes are asked again, since an own write is missing in what a majority has; those that were asked may
// answer meanwhile. False: one has it, or there is no more time for another round, or there is to be none.
func (r *reader) pauseForOwn(ctx context.Context, found *majority, attempt int, end instant) bool {
	policy := &r.config.Retry
	isLast := policy.AttemptsMax > 0 && attempt >= policy.AttemptsMax
	left := min(found.lackedAt+r.config.OwnWritePatience, end) - now()
	if left <= 0 {
		return false
	}
	pause := left
	if !isLast {
		pause = min(policy.delay(attempt, rand.Float64()), left)
	}
	until := now() + pause
	if len(found.open) > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for waits := true; waits && len(found.open) > 0 && !found.hasOwn; {
			select {
			case one := <-found.answers:
				r.take(found, one)
			case <-timer.C:
				waits = false
			case <-ctx.Done():
				waits = false
			}
		}
	}
	if found.hasOwn || isLast || ctx.Err() != nil {
		return false
	}
	if rest := until - now(); rest > 0 && !r.pool.pause(r.ctx, rest) {
		return false
	}
	return pause < left
}

func noMajority(found *majority, why *tryError, attempts int) *Error {
	text := fmt.Sprintf("of %d nodes %d answered, %d must", len(found.counted), len(found.answered), found.needed())
	if why != nil {
		text += "; " + why.text
	}
	return &Error{Code: "no_majority", text: text, kind: ErrNoMajority, Attempts: attempts}
}

// majority is what has come of a read that asks for one.
type majority struct {
	counted  map[string]bool // of which a majority must answer
	answered map[string]bool
	refused  map[string]bool // for good: they would again
	refusal  *answer         // the first final one of this round
	open     map[string]int  // who has been asked and not answered yet, and in which round; all of them send to answers
	answers  chan answer
	newest   answer
	sought   int64   // the tock of the own write that is looked for, -1: there is none
	hasOwn   bool    // an answer has this client's last write, or is of the node that took it
	lackedAt instant // when an answer was first found to lack it, also of an earlier read: for a while from then it is waited for
	out      refusers
}

// needed is how many nodes must answer.
func (m *majority) needed() int { return len(m.counted)/2 + 1 }

func (m *majority) hasMajority() bool { return len(m.answered) >= m.needed() }

// toAsk is those of these nodes that are asked next: who has not answered; once a majority has, which means that it lacks the own
// write, the others as well, since they may have heard of it meanwhile.
func (m *majority) toAsk(nodes []*target) []*target {
	left := slices.DeleteFunc(slices.Clone(nodes), func(one *target) bool {
		_, isOpen := m.open[one.name]
		return isOpen || !m.counted[one.name] || m.refused[one.name]
	})
	if found := m.unanswered(left); len(found) > 0 && !m.hasMajority() {
		return found
	}
	return left
}

// unanswered is those of these nodes that count, and have not answered.
func (m *majority) unanswered(nodes []*target) []*target {
	var found []*target
	for _, one := range nodes {
		if m.counted[one.name] && !m.answered[one.name] {
			found = append(found, one)
		}
	}
	return found
}

// askRound asks these nodes at once, until enough have answered; the others are not waited for, nor anybody where too many
// refuse it.
func (r *reader) askRound(ctx context.Context, m *majority, asked []*target, attempt int, t tryTime) {
	m.refusal = nil
	for _, one := range asked {
		r.watched.tries(one.name, attempt)
		m.open[one.name] = attempt
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
			m.answers <- found
		}()
	}
	for len(m.open) > 0 && !m.hasMajority() {
		if m.refusal != nil && len(m.answered)+len(m.open) < m.needed() {
			break
		}
		r.take(m, <-m.answers)
	}
}

// take notes one node's answer.
func (r *reader) take(m *majority, found answer) {
	attempt := m.open[found.node]
	delete(m.open, found.node)
	r.counters.toOthers.Add(1)
	if found.err != nil {
		r.watched.failed(found.node, attempt, found.err)
	}
	switch {
	case found.err == nil && !m.counted[found.node]: // It has left meanwhile.
	case found.err == nil:
		m.answered[found.node] = true
		m.newest = newerAnswer(m.newest, found)
		if !m.hasOwn && !r.own.isEnough(r.path, m.sought, tockOf(found.message), found.life) {
			m.lackedAt = earlier(m.lackedAt, r.own.lackedSince(r.path))
		} else {
			m.hasOwn = true
		}
	case classOf(found.err, true) == classFinal:
		m.refused[found.node] = true
		if m.refusal == nil {
			m.refusal = &found
		}
	default:
		m.out.onFailure(found.at, found.err)
	}
}

// newerAnswer is the newer of two nodes' answers.
func newerAnswer(known, other answer) answer {
	if known.message == nil || isOlder(known.message, other.message) {
		return other
	}
	return known
}
