package distkv

import (
	"context"
	"time"
)

// Which requests a connection has places for, and how long what comes next waits until it may be written.

// use is for what a place on a connection is.
type use int

const (
	forCall     use = iota // a request with one reply, or a stream that the client needs for itself
	forStream              // a stream of a caller, which leaves room for calls
	forQuestion            // the question whether the node is alive
)

// hasRoom tells whether it has a place for this.
func (c *conn) hasRoom(what use) bool {
	switch open := c.load.Load(); what {
	case forStream:
		return open < openMax && c.openStreams.Load() < streamsMax
	case forQuestion:
		return open < openMax+questionsKept
	default:
		return open < openMax
	}
}

// waitForRoom waits until there is room for one more request, or stream; it is called, and returns, with the lock.
func (c *conn) waitForRoom(ctx context.Context, t tryTime, what use) *tryError {
	for len(c.out) > outgoingBytesMax && c.ended.Load() == nil {
		if err := c.waitDrained(ctx, t); err != nil {
			return err
		}
	}
	if ended := c.ended.Load(); ended != nil {
		return ended
	}
	if !c.hasRoom(what) {
		return tryErrorf(tryBusy, "%d requests, %d of them streams, are open on this connection already", c.load.Load(), len(c.streams))
	}
	return nil
}

// waitDrained waits until what is to be written was taken, once; it is called, and returns, with the lock.
func (c *conn) waitDrained(ctx context.Context, t tryTime) *tryError {
	if c.drained == nil {
		c.drained = make(chan struct{})
	}
	drained := c.drained
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(t.end - now())
	defer timer.Stop()
	for {
		select {
		case <-drained:
			return nil
		case <-c.done:
			return nil
		case <-timer.C:
			next, goesOn := c.arrival.waitsOn(now(), t.longest)
			if !goesOn {
				return tryErrorf(tryBusy, "%s does not take what is sent to it", c.name)
			}
			timer.Reset(next - now())
		case <-ctx.Done():
			return gaveUp(ctx, c.name)
		}
	}
}
