package distkv

import (
	"context"
	"sync"
	"time"

	"distkv.example/client/internal/msgpack"
)

const (
	// streamMessagesMax is how many messages of a stream are kept for its reader where flow control does not say.
	streamMessagesMax = 64
	// windowSlack is how many more there may be: a stream's end, or an error, need not wait for acknowledgements.
	windowSlack = 8
)

// stream is the messages of one stream, in order, with flow control. It must be read to its end or closed. One goroutine
// reads it; another one may close it.
type stream struct {
	conn     *conn
	seq      uint64
	capacity int
	isOwn    bool // the client needs it for itself

	mu     sync.Mutex
	queue  []message
	err    *tryError // how the connection ended
	isDone bool
	wake   chan struct{} // its reader waits
	room   chan struct{} // the connection waits

	// Of its reader.
	taken, acknowledged int64
	last                Path
}

// item is a message of a stream: its path below the request's, and its content; or the node's word of a state.
type item struct {
	message message
	path    Path
	hasPath bool
	state   string
}

func newStream(c *conn) *stream {
	s := &stream{conn: c, capacity: streamMessagesMax, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if c.window > 0 {
		s.capacity = c.window + windowSlack
	}
	return s
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// -- the connection's side -----------------------------------------------------------------------

// onMessage takes a message. Where there is no room, which only a node brings about that heeds no flow control, the
// connection waits, or, if it may not, the message is not taken.
func (s *stream) onMessage(m message, mayWait bool) bool {
	s.mu.Lock()
	for len(s.queue) >= s.capacity && !s.isDone {
		s.mu.Unlock()
		if !mayWait {
			return false
		}
		select {
		case <-s.room:
		case <-s.conn.done:
			return true
		}
		s.mu.Lock()
	}
	if !s.isDone {
		s.queue = append(s.queue, m)
	}
	s.mu.Unlock()
	signal(s.wake)
	return true
}

// onEnd: the connection ended; what has come before can still be taken.
func (s *stream) onEnd(err *tryError) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	signal(s.wake)
}

// -- the reader's side ---------------------------------------------------------------------------

// started takes the message that says that the stream begins.
func (s *stream) started(ctx context.Context, t tryTime) *tryError {
	m, err := s.take(ctx, t)
	if err != nil {
		return err
	}
	if m.text("state") == "start" {
		return nil
	}
	if err := m.check(); err != nil {
		s.finish()
		return err
	}
	return &tryError{kind: tryProtocol, text: "no stream came as the answer"}
}

// letIn waits until it is clear that the node has not refused the stream, which it does behind its start: the error. The node is
// asked something that everybody may ask, and answers that behind what it says of the stream at once. One that says neither in
// time has begun it; what has come is the next.
func (s *stream) letIn(ctx context.Context, end instant) *tryError {
	_, _ = s.conn.request(ctx, newBody("auth_info").head(), exactly(end)) // If the connection has ended, the next message tells that.
	if ctx.Err() != nil {
		return gaveUp(ctx, s.conn.name)
	}
	s.mu.Lock()
	var first message
	if len(s.queue) > 0 {
		first = s.queue[0]
	}
	s.mu.Unlock()
	if first == nil || !isRefusal(first) {
		return nil
	}
	s.finish()
	return first.check()
}

// isRefusal tells whether a message ends its stream. A monitored one that cannot be decoded carries an error of its own, and a topic.
func isRefusal(m message) bool { return m.get("error") != nil && m.get("topic") == nil }

// next is the next message; nil after the last. Messages returned before are acknowledged. After the node's error, or
// the connection's end, nothing comes. Giving up to wait loses nothing.
func (s *stream) next(ctx context.Context, t tryTime) (*item, *tryError) {
	s.acknowledge()
	m, err := s.take(ctx, t)
	if err != nil {
		if err.kind != tryTimedOut && err.kind != tryCanceled {
			s.finish()
		}
		return nil, err
	}
	if m == nil {
		return nil, nil
	}
	if state := m.text("state"); state != "" {
		if state == "end" {
			s.finish()
			return nil, nil
		}
		return &item{message: m, state: state}, nil
	}
	if isRefusal(m) {
		s.finish()
		return nil, m.check()
	}
	path, hasPath, err := s.pathOf(m)
	if err != nil {
		return nil, err
	}
	return &item{message: m, path: path, hasPath: hasPath}, nil
}

// close makes the node stop, unless the stream has ended.
func (s *stream) close() {
	s.mu.Lock()
	if s.isDone {
		s.mu.Unlock()
		return
	}
	s.isDone = true
	s.queue = nil
	stop := s.err == nil
	s.mu.Unlock()
	if planted != plantNotStopped {
		s.conn.forgetStream(s.seq, stop)
	}
	signal(s.room)
	signal(s.wake)
}

func (s *stream) finish() {
	s.mu.Lock()
	s.isDone = true
	s.mu.Unlock()
	s.conn.forgetStream(s.seq, false)
	signal(s.room)
}

// take is the next message; nil if the stream is done.
func (s *stream) take(ctx context.Context, t tryTime) (message, *tryError) {
	var timer *time.Timer
	var timeout <-chan time.Time
	isLate := false
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			m := s.queue[0]
			s.queue[0] = nil
			s.queue = s.queue[1:]
			if len(s.queue) == 0 {
				s.queue = nil
			}
			s.mu.Unlock()
			signal(s.room)
			s.taken = max(s.taken, m.integer("wseq", 0))
			return m, nil
		}
		err, isDone := s.err, s.isDone
		s.mu.Unlock()
		if err != nil && !isDone {
			return nil, err
		}
		if isDone {
			return nil, nil
		}
		if isLate {
			return nil, tryErrorf(tryTimedOut, "%s sent nothing for long", s.conn.name)
		}
		if timer == nil && t.end != never {
			timer = time.NewTimer(t.end - now())
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-s.wake:
		case <-timeout:
			next, waitsOn := s.conn.arrival.waitsOn(now(), t.longest)
			isLate = !waitsOn // It may have come at this moment: the queue is looked at once more.
			timer.Reset(next - now())
		case <-ctx.Done():
			return nil, gaveUp(ctx, s.conn.name)
		}
	}
}

// acknowledge tells the node how far the stream was read, once per half window.
func (s *stream) acknowledge() {
	if s.conn.window > 0 && s.taken-s.acknowledged >= int64(max(s.conn.window/2, 1)) {
		s.acknowledged = s.taken
		b := msgpack.AppendMapHead(nil, 3)
		b = msgpack.AppendUint(msgpack.AppendString(b, "seq"), s.seq)
		b = msgpack.AppendString(msgpack.AppendString(b, "state"), "ack")
		b = msgpack.AppendInt(msgpack.AppendString(b, "ack"), s.taken)
		s.conn.post(b)
	}
}

// pathOf is the message's path, made whole from a shortened one.
func (s *stream) pathOf(m message) (Path, bool, *tryError) {
	rest := m.get("path")
	if rest == nil || msgpack.IsNil(rest) {
		return Path{}, false, nil
	}
	found, err := pathOfValue(rest)
	depth, isShortened := msgpack.Integer(m.get("depth"))
	if err == nil && isShortened {
		if depth < 0 || depth > int64(s.last.Len()) {
			return Path{}, false, &tryError{kind: tryProtocol, text: "a path is shortened by more than the one before it has"}
		}
		found, err = s.last.first(int(depth)).behind(found)
		s.last = found
	}
	if err != nil {
		return Path{}, false, &tryError{kind: tryProtocol, text: "a path is none: " + err.Error()}
	}
	return found, true, nil
}
