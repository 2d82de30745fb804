package distkv

import (
	"math"
	"time"

	"distkv.example/client/internal/msgpack"
)

// Until when a try counts, by the clock of the node that it is sent to (docs/client-protocol.md, "The time of a try"): what a
// network, or a node that stood still, delivers later than that is not carried out.

// tooLate is a node's word for what came later than that.
const tooLate = "too_late"

// clockSlack: of so many milliseconds one is left out, since the clocks of two machines differ by less.
const clockSlack = 4096

// clockRounded: what the node's clock and the count of it are rounded down by, together, milliseconds.
const clockRounded = 2

// timeBytes is by how much a request that says until when it counts is longer at the most: `by` with a number, and a longer head.
const timeBytes = 4 + 9 + 2

// nodeClock is what a node's clock says, counted on from when the node said it. It is never ahead of the node's own, so that nothing
// counts for longer than it should. It may be behind: by as long as a message of the node was on its way, and by a little more each
// hour. Then the node refuses what is still waited for, and says what its clock is.
type nodeClock struct {
	isTold bool // not by nodes of former versions
	clock  int64
	at     instant
}

// clockIn is the clock, in milliseconds, that a node tells in a message; false: it tells none.
func clockIn(m message) (int64, bool) {
	clock, isNumber := msgpack.Integer(m.get("clock"))
	return clock, isNumber && clock >= 0
}

// newNodeClock is that of a node whose greeting has just come.
func newNodeClock(greeting message, moment instant) nodeClock {
	clock, isTold := clockIn(greeting)
	return nodeClock{isTold, clock, moment}
}

// now is what it says at that moment, at the least.
func (n *nodeClock) now(moment instant) int64 {
	since := max(int64((moment-n.at)/time.Millisecond), 0)
	return addUpTo(n.clock, since-(since+clockSlack-1)/clockSlack)
}

// hear: the node says in a message that has just come what its clock is. That counts where it is ahead of what was counted; whether
// it is.
func (n *nodeClock) hear(m message, moment instant) bool {
	clock, ok := clockIn(m)
	isAhead := ok && n.isTold && clock > n.now(moment)
	if isAhead {
		n.clock, n.at = clock, moment
	}
	return isAhead
}

// by is what it will say at that end. All that was rounded down on the way is added: else what has a millisecond would always be too
// late.
func (n *nodeClock) by(end, moment instant) int64 {
	left := max(end-moment, 0)
	whole := int64(left / time.Millisecond)
	if left%time.Millisecond > 0 {
		whole++
	}
	return addUpTo(n.now(moment), whole+clockRounded)
}

// addUpTo is the sum of two numbers that are not negative, or the greatest number.
func addUpTo(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// appendTimed adds a whole request, of which all tries have `body`, up to the value of seq, in common.
func appendTimed(b, body []byte, seq uint64, by int64) []byte {
	head, _ := msgpack.ReadHead(body) // A map, which the client has made itself.
	b = append(msgpack.AppendMapHead(b, head.Len+1), body[head.Size:]...)
	return msgpack.AppendInt(msgpack.AppendString(msgpack.AppendUint(b, seq), "by"), by)
}
