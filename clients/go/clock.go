package distkv

import "sync/atomic"

// tockEnd: tocks are below it; nodes take no others.
const tockEnd = 1 << 62

// clock is the greatest tock that a client has heard of, Lamport's clock: what the client writes says so, and comes after all
// that it knows, at whichever node. All connections of a client hear.
type clock struct{ latest atomic.Int64 }

// hear: a node has answered this, or sent it in a stream.
func (c *clock) hear(tock int64) {
	if tock >= tockEnd || planted == plantOwnOrder {
		return
	}
	for {
		latest := c.latest.Load()
		if tock <= latest || c.latest.CompareAndSwap(latest, tock) {
			return
		}
	}
}
