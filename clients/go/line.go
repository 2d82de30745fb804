package distkv

import (
	"sync/atomic"
	"time"

	"distkv.example/client/internal/msgpack"
)

// A slow line: what has to be sent before a node can answer, and an answer that is still arriving, are not the node's silence
// (docs/client-behaviour.md, "Slow lines").

const (
	// lineBytesPerS is how many bytes a line carries in a second, at least. Whoever has a slower one gives each try more time.
	lineBytesPerS = 500_000
	// countedMin is the length from which a request is counted as on its way. A shorter one takes half a millisecond at most.
	countedMin = 256
	// arrivingFor: a message of which nothing has come for so long is not arriving any more.
	arrivingFor = time.Second
	// glance is how often it is looked whether one is.
	glance = 100 * time.Millisecond
	// longestArrival is how long a message can take to arrive over such a line.
	longestArrival = (msgpack.MessageBytesMax/lineBytesPerS + 1) * time.Second
)

// sending is how long so many bytes may take to get to a node.
func sending(bytes int) time.Duration {
	if planted == plantSlowLine {
		return 0
	}
	return time.Duration(bytes) * (time.Second / lineBytesPerS)
}

// tryTime is how long one try may take, and how long it counts.
type tryTime struct {
	end     instant // where nothing long has to be sent; never: it has no end
	longest instant // the end with all that has to be sent, and while a message arrives; not before `end`
	until   instant // when the request stops to count, where nothing long has to be sent; not after `end`, or never: it always counts
}

// exactly is a time that nothing makes longer.
func exactly(end instant) tryTime { return tryTime{end, end, never} }

// whileArriving is a time that goes on while a message arrives.
func whileArriving(end instant) tryTime { return tryTime{end, end + longestArrival, never} }

// behind is the time of a try where so many bytes have to be sent before it is answered, its own included.
func (t tryTime) behind(bytes int) tryTime {
	if bytes == 0 {
		return t
	}
	more := sending(bytes)
	if t.until != never {
		t.until += min(more, t.longest-t.until)
	}
	t.end += min(more, t.longest-t.end)
	return t
}

// arrival is whether a part of a message has come whose rest is still to come.
type arrival struct{ at atomic.Int64 } // the instant when the last bytes of it came; 0: there is none

// note: bytes have come. isPart: with those before, they are more than whole messages.
func (a *arrival) note(isPart bool) {
	if isPart {
		a.at.Store(int64(max(now(), 1)))
	} else if a.at.Load() != 0 { // Nearly all reads bring whole messages, and write nothing here.
		a.at.Store(0)
	}
}

// goesOn: the rest of a message is coming.
func (a *arrival) goesOn(moment instant) bool {
	at := instant(a.at.Load())
	return at > 0 && moment-at < arrivingFor && planted != plantArriving
}

// waitsOn is until when whoever has waited until this moment waits on, since a message is arriving: the one that is waited for, or
// another one that comes first. False: no longer.
func (a *arrival) waitsOn(moment, longest instant) (instant, bool) {
	if moment >= longest || !a.goesOn(moment) {
		return moment, false
	}
	return moment + min(glance, longest-moment), true
}
