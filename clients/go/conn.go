package distkv

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"distkv.example/client/internal/msgpack"
)

// Bounds of one connection.
const (
	openMax          = 4096 // requests and streams that are open at a time
	callsKept        = 256  // places of these that no stream of a caller takes: calls go on however many watches are open
	streamsMax       = openMax - callsKept
	questionsKept    = 64        // further places, for questions whether the node is alive: those must get through where all others are taken
	outgoingBytesMax = 1 << 20   // bytes that wait to be written; further calls wait before they write
	keptBytesMax     = 256 << 10 // a write buffer that is longer is not kept
	writeRoundsMax   = 4         // writes that a caller makes for others before a goroutine takes over
	windowMin        = 2
	windowMax        = 4096
)

// instant is a time of this process's own clock, which never jumps.
type instant = time.Duration

// processStart is atomic for tests only: theirs may be virtual, and a client that has just ended may still ask for the time.
var processStart = func() *atomic.Pointer[time.Time] {
	start, holder := time.Now(), new(atomic.Pointer[time.Time])
	holder.Store(&start)
	return holder
}()

func now() instant { return time.Since(*processStart.Load()) }

const never instant = math.MaxInt64

// conn is one connection to a node's client port, shared by any number of requests and streams.
//
// Replies are told apart by seq, so a cancelled call gives up its reply, not the connection. Deadlines are kept by one
// timer per connection. Whoever has something to send writes it, and what others have added meanwhile. Who reads:
// intake.go.
type conn struct {
	address     address
	name        string // the node's; of a node that has not said it yet, its address
	incarnation int64  // the node's life; -1 from a node that has no action `cluster`
	window      int    // of flow control; 0: none

	usedAt, heardAt atomic.Int64 // instants
	load            atomic.Int32 // open requests and streams
	openStreams     atomic.Int32
	isProbed        atomic.Bool
	ended           atomic.Pointer[tryError] // nil while it lasts
	done            chan struct{}            // closed at its end
	goroutines      *group
	clock           atomic.Pointer[clock] // nil until the pool has taken it: before that, the node may be left again
	arrival         arrival

	net net.Conn
	raw syscall.RawConn // nil: there is no writing without waiting
	try tryWriter

	mu        sync.Mutex
	seq       uint64
	pending   map[uint64]*waiter
	streams   map[uint64]*stream
	out       []byte        // what waits to be written
	spare     []byte        // the other buffer
	isWriting bool          // somebody writes, and will write what is added to out
	drained   chan struct{} // closed when out is taken; nil while nobody waits for that
	sweep     *time.Timer
	sweepAt   instant
	greeting  chan message // nil once it has come
	nodeClock nodeClock
	intake    intake
	// unanswered is how many bytes requests with one reply have that are sent, or wait to be sent, and have no answer; short ones
	// are not counted.
	unanswered int
}

// waiter is who waits for a reply.
type waiter struct {
	reply    chan result
	deadline instant
	longest  instant // the deadline while a message arrives
	until    instant // when the request stops to count; never: it counts whenever it comes
	bytes    int     // those of its request that are counted as unanswered
}

type result struct {
	message message
	err     *tryError
}

// reply is the message, if it tells of no error.
func (r result) reply() (message, *tryError) {
	if r.err != nil {
		return nil, r.err
	}
	if err := r.message.check(); err != nil {
		return nil, err
	}
	return r.message, nil
}

var waiters = sync.Pool{New: func() any { return &waiter{reply: make(chan result, 1)} }}

func newConn(where address, socket net.Conn, goroutines *group) *conn {
	c := &conn{address: where, name: where.String(), incarnation: -1, done: make(chan struct{}), goroutines: goroutines,
		net: socket, pending: map[uint64]*waiter{}, streams: map[uint64]*stream{}, sweepAt: never,
		greeting: make(chan message, 1)}
	c.intake.init(c)
	c.usedAt.Store(int64(now()))
	c.heardAt.Store(int64(now()))
	c.raw = rawOf(socket)
	c.try.init()
	return c
}

// -- requests ------------------------------------------------------------------------------------

// request sends a request and waits for its one reply. `body` is all of it up to the value of seq. It counts for as long as the
// time says, if the node tells its clock. Where the clock was ahead of what was counted here, it is sent once more.
func (c *conn) request(ctx context.Context, body []byte, t tryTime) (message, *tryError) {
	reply, err := c.requestOnce(ctx, body, t, forCall)
	if err != nil && err.isBehind && t.until != never {
		reply, err = c.requestOnce(ctx, body, t, forCall)
	}
	return reply, err
}

func (c *conn) requestOnce(ctx context.Context, body []byte, t tryTime, what use) (message, *tryError) {
	w := waiters.Get().(*waiter)
	seq, mustRead, err := c.send(ctx, body, &t, w, nil, what)
	if err != nil {
		waiters.Put(w)
		return nil, err
	}
	if mustRead {
		if found, isThere := c.readFor(ctx, w); isThere {
			waiters.Put(w)
			return c.replyOf(found)
		}
	}
	select {
	case found := <-w.reply:
		waiters.Put(w)
		return c.replyOf(found)
	case <-ctx.Done():
		c.mu.Lock()
		_, isOpen := c.pending[seq]
		if isOpen {
			c.forget(seq, w)
		}
		c.mu.Unlock()
		if !isOpen {
			<-w.reply // It comes at this moment, or has come.
		}
		waiters.Put(w)
		return nil, gaveUp(ctx, c.name)
	}
}

// replyOf is the reply to a request. Where that came too late, by a clock that is ahead of what was counted, the next one may not.
func (c *conn) replyOf(found result) (message, *tryError) {
	reply, err := found.reply()
	if err != nil && err.kind == tryServer && err.code == tooLate {
		c.mu.Lock()
		err.isBehind = c.nodeClock.hear(found.message, now())
		c.mu.Unlock()
	}
	return reply, err
}

// gaveUp is the error of a try whose caller gave up, or had no more time.
func gaveUp(ctx context.Context, node string) *tryError {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &tryError{kind: tryTimedOut, text: "no answer from " + node + " in time", cause: ctx.Err()}
	}
	return &tryError{kind: tryCanceled, text: "the caller gave up", cause: ctx.Err()}
}

// forget: the request of this waiter is answered, or not waited for any more. With the lock.
func (c *conn) forget(seq uint64, w *waiter) {
	delete(c.pending, seq)
	c.load.Add(-1)
	c.unanswered -= w.bytes
}

// send sends a request for a waiter or a stream, and returns its number, and whether the waiter has to read. The time becomes that
// with all that has to be sent before the node can answer.
func (c *conn) send(ctx context.Context, body []byte, t *tryTime, w *waiter, s *stream, what use) (uint64, bool, *tryError) {
	if length := len(body) + 9 + timeBytes; length > RequestBytesMax {
		return 0, false, tryErrorf(tryTooLarge, "the request is %d bytes long; at most %d can be sent", length, RequestBytesMax)
	}
	counted := 0
	if w != nil && len(body) >= countedMin {
		counted = len(body)
	}
	c.mu.Lock()
	c.unanswered += counted
	*t = t.behind(c.unanswered)
	if err := c.waitForRoom(ctx, *t, what); err != nil {
		c.unanswered -= counted
		c.mu.Unlock()
		return 0, false, err
	}
	open := len(c.pending) + len(c.streams)
	c.seq++
	seq := c.seq
	if s != nil {
		s.seq = seq
		c.streams[seq] = s
		c.openStreams.Add(1)
	} else {
		w.deadline, w.longest, w.until, w.bytes = t.end, t.longest, t.until, counted
		c.pending[seq] = w
		if w.deadline < c.sweepAt {
			c.planSweep(w.deadline)
		}
	}
	c.load.Add(1)
	mustRead := c.intake.onSent(w)
	if w != nil && w.until != never && c.nodeClock.isTold {
		c.out = appendTimed(c.out, body, seq, c.nodeClock.by(w.until, now()))
	} else {
		c.out = msgpack.AppendUint(append(c.out, body...), seq)
	}
	mustWrite := !c.isWriting
	c.isWriting = true
	c.mu.Unlock()
	if mustWrite {
		if open > 0 {
			// Others are about to send, too: it leaves in one write.
			runtime.Gosched()
		}
		c.write()
	}
	return seq, mustRead, nil
}

// post sends what nothing is answered to.
func (c *conn) post(data []byte) {
	c.mu.Lock()
	if c.ended.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.out = append(c.out, data...)
	mustWrite := !c.isWriting
	c.isWriting = true
	c.mu.Unlock()
	if mustWrite {
		c.write()
	}
}

// stream sends a request that is answered with a stream, and waits for its start.
func (c *conn) stream(ctx context.Context, body []byte, t tryTime) (*stream, *tryError) {
	return c.startStream(ctx, body, t, newStream(c))
}

// ownStream is one that the client needs for itself: it may take a place that is kept for calls.
func (c *conn) ownStream(ctx context.Context, body []byte, t tryTime) (*stream, *tryError) {
	s := newStream(c)
	s.isOwn = true
	return c.startStream(ctx, body, t, s)
}

func (c *conn) startStream(ctx context.Context, body []byte, t tryTime, s *stream) (*stream, *tryError) {
	what := forStream
	if s.isOwn {
		what = forCall
	}
	if _, _, err := c.send(ctx, body, &t, nil, s, what); err != nil {
		return nil, err
	}
	if err := s.started(ctx, t); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// forgetStream: a stream has ended, or is not wanted any more.
func (c *conn) forgetStream(seq uint64, stop bool) {
	c.mu.Lock()
	if _, isThere := c.streams[seq]; isThere {
		delete(c.streams, seq)
		c.load.Add(-1)
		c.openStreams.Add(-1)
	}
	if !stop || c.ended.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.seq++
	body := newBody("stop").integer("task", int64(seq)).head()
	c.out = msgpack.AppendUint(append(c.out, body...), c.seq)
	mustWrite := !c.isWriting
	c.isWriting = true
	c.mu.Unlock()
	if mustWrite {
		c.write()
	}
}

// -- writing -------------------------------------------------------------------------------------

// take returns what is to be written; nil, and nobody writes any more, where there is nothing.
func (c *conn) take(written []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if written != nil && cap(written) <= keptBytesMax {
		c.spare = written[:0]
	}
	if c.drained != nil {
		close(c.drained)
		c.drained = nil
	}
	if len(c.out) == 0 || c.ended.Load() != nil {
		c.isWriting = false
		return nil
	}
	data := c.out
	c.out, c.spare = c.spare[:0], nil
	return data
}

// write writes what is there without waiting; where that does not do, a goroutine does the rest.
func (c *conn) write() {
	data := c.take(nil)
	for round := 0; data != nil; round++ {
		if c.raw == nil || round == writeRoundsMax {
			break
		}
		count, err := c.try.write(c.raw, data)
		if err != nil {
			c.end(c.lost(err))
		}
		if count < len(data) && err == nil {
			data = data[count:]
			break
		}
		data = c.take(data)
	}
	if data != nil {
		c.goroutines.Add(1)
		go c.writeOn(data)
	}
}

// writeOn writes and waits, until nothing is left.
func (c *conn) writeOn(data []byte) {
	defer c.goroutines.Done()
	for data != nil {
		if _, err := c.net.Write(data); err != nil {
			c.end(c.lost(err))
		}
		data = c.take(data)
	}
}

// -- deadlines -----------------------------------------------------------------------------------

// planSweep is called with the lock.
func (c *conn) planSweep(at instant) {
	c.sweepAt = at
	if c.sweep == nil {
		c.sweep = time.AfterFunc(at-now(), c.onSweep)
	} else {
		c.sweep.Reset(at - now())
	}
}

func (c *conn) onSweep() {
	moment := now()
	next := never
	var late []*waiter
	c.mu.Lock()
	if c.ended.Load() != nil {
		c.mu.Unlock()
		return
	}
	for seq, w := range c.pending {
		if w.deadline <= moment {
			waitsOn := false
			if w.deadline, waitsOn = c.arrival.waitsOn(moment, w.longest); !waitsOn {
				c.forget(seq, w)
				late = append(late, w)
				continue
			}
		}
		next = min(next, w.deadline)
	}
	c.sweepAt = never
	if next != never {
		c.planSweep(next)
	}
	isReader := c.intake.caller != nil && slices.Contains(late, c.intake.caller)
	c.mu.Unlock()
	for _, w := range late {
		w.reply <- result{err: tryErrorf(tryTimedOut, "no answer from %s in time", c.name)}
	}
	if isReader {
		c.intake.interrupt()
	}
}

// -- the end -------------------------------------------------------------------------------------

func (c *conn) lost(err error) *tryError {
	lost := tryErrorf(tryLost, "the connection to %s is lost: %v", c.address, err)
	lost.cause = err
	return lost
}

func (c *conn) protocol(text string) *tryError {
	return tryErrorf(tryProtocol, "%s does not speak the client protocol: %s", c.address, text)
}

// close ends the connection for all its users.
func (c *conn) close(reason string) {
	c.end(tryErrorf(tryLost, "the connection to %s is lost: %s", c.address, reason))
}

func (c *conn) end(err *tryError) {
	c.mu.Lock()
	if c.ended.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.ended.Store(err)
	pending, streams := c.pending, c.streams
	c.pending, c.streams = nil, nil
	c.load.Store(0)
	c.openStreams.Store(0)
	if c.sweep != nil {
		c.sweep.Stop()
	}
	if c.intake.look != nil {
		c.intake.look.Stop()
	}
	c.out = nil
	close(c.done)
	c.mu.Unlock()
	for _, w := range pending {
		w.reply <- result{err: err}
	}
	for _, s := range streams {
		s.onEnd(err)
	}
	_ = c.net.Close()
}
