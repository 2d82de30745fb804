package distkv

import (
	"context"
	"errors"
	"os"
	"time"

	"distkv.example/client/internal/msgpack"
)

// Who reads a connection.
//
// A goroutine does, as long as several calls are open at a time, or messages of streams come: then each of its reads
// serves many. Where one call follows the other, it would only hand each answer over, which costs waking a goroutine and
// often a thread. So it steps back after some calls that were alone, and each call reads its own answer. When calls cease for
// a moment, it reads again: somebody has to notice the connection's end, and what comes unasked.

const (
	loneAnswersMin = 4                // answers in a row that came alone, before calls read them themselves
	lonePause      = time.Millisecond // between two of them, at most
	unreadPause    = time.Millisecond // how long there may be neither a reader nor a new call; twice that where it is looked late
)

// longAgo ends a read that waits.
var longAgo = time.Unix(1, 0)

// reads is who reads at the moment, and nobody else.
type reads uint8

const (
	readsGoroutine reads = iota // the goroutine
	readsCall                   // a call
	readsNobody                 // the next call will
)

// intake is the state of that. Most of it belongs to who reads.
type intake struct {
	resume      chan struct{} // tells the goroutine to read again
	interrupt   func()        // makes who reads look up: why must be visible before
	splitter    msgpack.Splitter
	loneAnswers int     // answers in a row that came alone
	unplaced    message // of a stream that has no room: the goroutine waits for that, a call does not
	unplacedIn  *stream

	// With the connection's lock.
	by      reads
	caller  *waiter // who reads, of calls
	look    *time.Timer
	isLook  bool   // the timer is running
	lookSeq uint64 // the last request when it was started
}

func (i *intake) init(c *conn) {
	i.resume = make(chan struct{}, 1) // It is told once, when it does not read.
	i.interrupt = func() { _ = c.net.SetReadDeadline(longAgo) }
}

// onSent tells whether the call that has sent a request must read. A stream is for the goroutine. With the lock.
func (i *intake) onSent(w *waiter) bool {
	if i.by != readsNobody {
		return false
	}
	if w == nil {
		i.giveBack()
		return false
	}
	i.by, i.caller = readsCall, w
	return true
}

// giveBack lets the goroutine read, which does not at the moment. With the lock.
func (i *intake) giveBack() {
	i.by, i.caller = readsGoroutine, nil
	i.resume <- struct{}{}
}

// leaveUnread: the next call reads, or the goroutine if none comes soon. With the lock.
func (c *conn) leaveUnread() {
	i := &c.intake
	i.by, i.caller = readsNobody, nil
	if i.isLook {
		return
	}
	i.isLook, i.lookSeq = true, c.seq
	if i.look == nil {
		i.look = time.AfterFunc(unreadPause, c.onLook)
	} else {
		i.look.Reset(unreadPause)
	}
}

// onLook: has there been a call since the last look?
func (c *conn) onLook() {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &c.intake
	i.isLook = false
	if i.by != readsNobody || c.ended.Load() != nil {
		return
	}
	if c.seq != i.lookSeq {
		c.leaveUnread()
		return
	}
	i.giveBack()
}

// read is the goroutine.
func (c *conn) read() {
	defer c.goroutines.Done()
	for c.readOnce(true) {
		if !c.stepBack() {
			continue
		}
		select {
		case <-c.intake.resume:
		case <-c.done:
			return
		}
		// What a call has read, and left.
		if s := c.intake.unplacedIn; s != nil {
			s.onMessage(c.intake.unplaced, true)
			c.intake.unplaced, c.intake.unplacedIn = nil, nil
			if !c.handOut(true) {
				return
			}
			c.arrival.note(c.intake.splitter.HasPart())
		}
	}
}

// stepBack tells whether the goroutine is to leave reading to calls.
func (c *conn) stepBack() bool {
	if c.intake.loneAnswers < loneAnswersMin || c.raw == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 || c.greeting != nil || c.ended.Load() != nil {
		return false
	}
	c.leaveUnread()
	return true
}

// readFor reads until the answer of this call is there. Not if it is given up, or the connection ends: whoever waits has
// been told then.
func (c *conn) readFor(ctx context.Context, w *waiter) (result, bool) {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, c.intake.interrupt)
		defer stop()
	}
	for {
		goesOn := c.readOnce(false)
		select {
		case found := <-w.reply:
			c.stopReading()
			return found, true
		default:
		}
		if !goesOn || ctx.Err() != nil {
			c.stopReading()
			return result{}, false
		}
	}
}

// stopReading: a call reads no more.
func (c *conn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) > 0 || c.intake.loneAnswers < loneAnswersMin {
		c.intake.giveBack()
	} else {
		c.leaveUnread()
	}
}

// readOnce reads once, and hands out what has come. False: the connection has ended, or (a call's) goroutine has to go on.
func (c *conn) readOnce(mayWait bool) bool {
	splitter := &c.intake.splitter
	count, err := c.net.Read(splitter.Room())
	splitter.Read(count)
	if !c.handOut(mayWait) {
		return false
	}
	if count > 0 { // An interruption brings nothing.
		c.arrival.note(splitter.HasPart())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// An interruption, perhaps a late one of the reader before.
		_ = c.net.SetReadDeadline(time.Time{})
		return true
	}
	if err != nil {
		c.end(c.lost(err))
		return false
	}
	return true
}

// handOut hands whole messages to whoever waits for them.
func (c *conn) handOut(mayWait bool) bool {
	for {
		m, malformed := c.intake.splitter.Next()
		if malformed != nil {
			c.end(c.protocol("what came is no message: " + malformed.Error()))
			return false
		}
		if m == nil {
			return true
		}
		if head, _ := msgpack.ReadHead(m); head.Kind != msgpack.Map {
			c.end(c.protocol("a message is no map"))
			return false
		}
		// Part of a message is nothing yet: it may announce more than ever comes.
		moment := now()
		if moment-instant(c.heardAt.Swap(int64(moment))) > lonePause {
			c.intake.loneAnswers = 0
		}
		if !c.onMessage(append(make(message, 0, len(m)), m...), mayWait) {
			return false
		}
	}
}

// onMessage is false where a stream has no room for it, and it may not wait.
func (c *conn) onMessage(m message, mayWait bool) bool {
	number := m.integer("seq", 0)
	seq := uint64(max(number, 0))
	if clock := c.clock.Load(); clock != nil && seq > 0 {
		clock.hear(m.tock())
	}
	c.mu.Lock()
	if w := c.pending[seq]; w != nil {
		c.forget(seq, w)
		isAlone := len(c.pending) == 0
		c.mu.Unlock()
		c.intake.loneAnswers = (c.intake.loneAnswers + 1) * boolean(isAlone)
		if m.get("state") != nil && m.get("error") == nil {
			w.reply <- result{err: &tryError{kind: tryProtocol, text: "a stream came as the answer to a request"}}
			c.forgetStream(seq, true) // Nobody will read it.
		} else {
			w.reply <- result{message: m}
		}
		return true
	}
	s, greeting := c.streams[seq], c.greeting
	if s == nil {
		c.greeting = nil
	}
	c.mu.Unlock()
	c.intake.loneAnswers = 0
	switch {
	case s != nil:
		if !s.onMessage(m, mayWait) {
			c.intake.unplaced, c.intake.unplacedIn = m, s
			return false
		}
	case greeting != nil:
		greeting <- m
	case m.get("error") != nil && number == 0:
		// Its last words: it says why, and closes.
		told := m.check()
		c.end(&tryError{kind: tryLost, code: told.code,
			text: "the connection to " + c.address.String() + " is lost: the node says: " + told.text})
	}
	return true
}
