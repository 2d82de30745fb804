package distkv

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
)

// letInShare is the part of a try's time for which a node may take to refuse a stream that it has begun; later, whoever reads it is
// told.
const letInShare = 4

// opened is a stream, and the node that sends it.
type opened struct {
	stream  *stream
	conn    *conn
	address address
	since   instant
}

// search is how streams without an end find a node, and the next one when theirs is lost.
type search struct {
	action string
	shard  int
	head   []byte
	round  tries
	tried  int // since a stream has lasted, the one that is open included
}

// first is the first time: as any call, with its deadline.
func (s *search) first(ctx context.Context, c *caller) (*opened, *Error) {
	p := plan{action: s.action, shard: s.shard, first: c.home(c.topology.routing(), s.shard), place: forStream}
	var found *stream
	where, failed := c.call(ctx, &p, nil, func(ctx context.Context, connection *conn, t tryTime) (err *tryError) {
		if found, err = connection.stream(ctx, s.head, t); err != nil {
			return err
		}
		began := now() // Perhaps behind the end of the try, where a message was arriving.
		if err = found.letIn(ctx, began+min(c.config.Retry.TryDeadline, t.longest-began)/letInShare); err != nil {
			found.close()
		}
		return err
	})
	if failed != nil {
		return nil, failed
	}
	s.tried = 1
	return &opened{found, where.conn, where.address, now()}, nil
}

// again is later: as long as it takes. An error: a node refused for good, or all do not let the client in, or the client was
// closed.
func (s *search) again(ctx context.Context, c *caller) (*opened, *Error) {
	policy := &c.config.Retry
	p := plan{action: s.action, shard: s.shard}
	var refused refusers
	for {
		if s.tried > 0 && !wait(ctx, policy.delay(s.tried, rand.Float64())) {
			return nil, closedError(s.tried)
		}
		if c.pool.closed() || c.isClosing.Load() || ctx.Err() != nil {
			return nil, closedError(s.tried)
		}
		s.tried++
		to := c.choose(c.topology.routing(), &p, &s.round)
		if to == nil {
			return nil, usage("there is no node to ask")
		}
		started := now()
		end := started + policy.TryDeadline
		connection, err := c.pool.getAt(ctx, to.place(), end, forStream)
		if err == nil {
			var found *stream
			t := tryTime{end: end, longest: max(end, started+policy.TotalDeadline), until: never}
			if found, err = connection.stream(ctx, s.head, t); err == nil {
				return &opened{found, connection, to.address, now()}, nil
			}
			if err.kind == tryTimedOut {
				c.pool.onTimeout(to.address, connection, started)
			}
		}
		kind := classOf(err, true)
		c.counters.failed[kind].Add(1)
		if kind == classFinal && err.kind == tryServer {
			return nil, s.refusal(err, to.name)
		}
		refused.onFailure(to, err)
		denied := refused.verdict(c.topology.routing().targets)
		if denied != nil && !c.isClosing.Load() && ctx.Err() == nil { // Its end cuts off tries, too.
			return nil, denied.error(NotDone, s.tried)
		}
	}
}

// onLeft: the stream has ended, or is left. One that has lasted for as long as the longest pause makes a new beginning; any
// other counts like a try that failed, whatever has come: what a node sends first, it sends again each time.
func (s *search) onLeft(left *opened, policy *RetryPolicy) {
	s.round.leaveOut(left.address)
	if now()-left.since >= policy.DelayMax {
		s.tried = 0
	}
}

// refusal is the error of a stream that a node refused for good.
func (s *search) refusal(err *tryError, node string) *Error {
	return finalError(err, NotDone, node, max(s.tried, 1))
}

// subscription is what watches and monitors share: how they begin, follow their node, and end. One goroutine reads it; any
// may close it.
type subscription struct {
	caller *caller
	search search
	what   string
	self   endless

	ctx    context.Context // ends with it
	cancel context.CancelFunc

	mu     sync.Mutex
	opened *opened
	work   chan worked // a search, or a question, under way: it goes on when a wait is given up
	ended  *Error
}

// worked is what a work has come to.
type worked struct {
	opened  *opened
	settled []settlement
	failure *tryError
	err     *Error
}

// Format tells what it is, and reads nothing that changes.
func (s *subscription) Format(to fmt.State, _ rune) {
	if s == nil {
		_, _ = io.WriteString(to, "<nil>")
		return
	}
	_, _ = io.WriteString(to, "a "+s.what)
}

func newSubscription(c *caller, what, action string, path Path, head []byte) *subscription {
	s := &subscription{caller: c, what: what, search: search{action: action, shard: path.Shard(), head: head}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// begin opens the stream for the first time.
func (s *subscription) begin(ctx context.Context, self endless) *Error {
	found, err := s.search.first(ctx, s.caller)
	if err != nil {
		s.cancel()
		return err
	}
	s.opened, s.self = found, self
	if !s.caller.begin(self) {
		s.clientClosed()
		return s.ended
	}
	return nil
}

// now is where it stands.
func (s *subscription) now() (*opened, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened, s.ended
}

// run does something in the background, unless that is going on, and waits for it. False: the wait was given up, or it has
// ended.
func (s *subscription) run(ctx context.Context, do func(ctx context.Context) worked) (worked, bool) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return worked{}, false
	}
	work := s.work
	if work == nil {
		work = make(chan worked, 1)
		s.work = work
		s.caller.pool.goroutines.Add(1)
		go func() {
			defer s.caller.pool.goroutines.Done()
			found := do(s.ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.ended != nil {
				if found.opened != nil {
					found.opened.stream.close()
				}
				return
			}
			work <- found
		}()
	}
	s.mu.Unlock()
	select {
	case found := <-work:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.work = nil
		if s.ended != nil && found.opened != nil {
			found.opened.stream.close()
		}
		if s.ended == nil {
			if found.opened != nil {
				s.opened = found.opened
			}
			return found, true
		}
		return worked{}, false
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return worked{}, false
}

// find looks for another node.
func (s *subscription) find(ctx context.Context) (worked, bool) {
	return s.run(ctx, func(ctx context.Context) worked {
		found, err := s.search.again(ctx, s.caller)
		return worked{opened: found, err: err}
	})
}

// drop leaves its node; others come first then.
func (s *subscription) drop() {
	s.mu.Lock()
	left := s.opened
	s.opened = nil
	s.mu.Unlock()
	if left != nil {
		s.search.onLeft(left, &s.caller.config.Retry)
		left.stream.close()
	}
}

// end ends it, with this for whoever waits.
func (s *subscription) end(err *Error) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return
	}
	s.ended = err
	left := s.opened
	s.opened = nil
	if s.work != nil {
		select {
		case found := <-s.work:
			if found.opened != nil {
				found.opened.stream.close()
			}
		default:
		}
	}
	s.mu.Unlock()
	s.cancel()
	if left != nil {
		left.stream.close()
	}
	s.caller.forget(s.self)
}

// clientClosed: what ends it is no try that failed.
func (s *subscription) clientClosed() { s.end(closedError(0)) }

// Close ends it; whoever waits for it gets an [ErrClosed].
func (s *subscription) Close() {
	s.end(&Error{Code: "closed", text: "the " + s.what + " was closed", kind: ErrClosed})
}

// Node is the node that sends at present; "" if there is none.
func (s *subscription) Node() string {
	if found, _ := s.now(); found != nil {
		return found.conn.name
	}
	return ""
}

// onError: the stream has failed. It tells whether another node is to be looked for.
func (s *subscription) onError(err *tryError, from *opened) bool {
	switch {
	case s.caller.pool.closed() || s.caller.isClosing.Load():
		s.clientClosed()
		return false
	case err.kind == tryServer && classOf(err, true) == classFinal:
		s.end(s.search.refusal(err, from.conn.name))
		return false
	}
	return true
}
