package distkv

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync"
)

// writePlaces makes the ids of this client's writes. Each says the write's place among the client's, and for which older ones
// the client still waits (docs/client-protocol.md, "A client's own order"): so a node refuses a write that comes late, from a
// buffer that nobody could empty in time, instead of making it on top of what the client has written since.
//
// What the client waits for is known by generations, each with a count, and not write by write: a generation ends when a call
// begins and nothing of the one before it is waited for any more. So what an id says may be less than the truth, never more.
type writePlaces struct {
	mu    sync.Mutex
	next  uint64 // the number of the next write
	older *generation
	newer *generation
	head  [9]byte
}

// generation is calls that began at about the same time.
type generation struct {
	first uint32 // of its writes
	open  int    // calls that have not ended
}

// turn is a call that writes: until its end, the client waits for its writes.
type turn struct {
	places  *writePlaces
	of      *generation
	head    [9]byte
	next    uint32
	settled uint32
}

const (
	// spanUntold is how many writes apart the two numbers can be; this one: more than that.
	spanUntold = 1<<24 - 1
	// placeMark stands first in an id that says a place. No text begins like that.
	placeMark = 0xd15c
)

func newWritePlaces() *writePlaces {
	p := &writePlaces{}
	p.renew()
	return p
}

// renew goes on as a client that has written nothing: of the one before, nothing more will be said.
func (p *writePlaces) renew() {
	binary.BigEndian.PutUint16(p.head[:], placeMark)
	_, _ = rand.Read(p.head[2:]) // It never fails.
	p.next, p.older, p.newer = 0, &generation{}, &generation{}
}

// begin: a call begins that makes so many writes.
func (p *writePlaces) begin(writes int) turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next+uint64(writes) > math.MaxUint32 {
		p.renew()
	}
	if p.older.open == 0 {
		// None of its calls is left, so it can be used again.
		p.older, p.newer = p.newer, p.older
		*p.newer = generation{first: uint32(p.next)}
	}
	p.newer.open++
	oldest := p.older
	if oldest.open == 0 {
		oldest = p.newer
	}
	t := turn{places: p, of: p.newer, head: p.head, next: uint32(p.next), settled: oldest.first}
	p.next += uint64(writes)
	if planted == plantNotGivenUp {
		t.settled = 0
	}
	return t
}

// id is that of its next write.
func (t *turn) id() (id [16]byte) {
	copy(id[:], t.head[:])
	binary.BigEndian.PutUint32(id[9:], t.next)
	span := min(t.next-t.settled, spanUntold)
	id[13], id[14], id[15] = byte(span>>16), byte(span>>8), byte(span)
	t.next++
	return id
}

// end: nobody waits for the call any more, however it has ended.
func (t *turn) end() {
	t.places.mu.Lock()
	t.of.open--
	t.places.mu.Unlock()
}
