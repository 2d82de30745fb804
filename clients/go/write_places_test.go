package distkv

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// told is what an id says: its client, its number, and which writes are settled: all of a lesser number.
type told struct {
	client          [7]byte
	number, settled uint32
}

func placeIn(t *testing.T, id []byte) told {
	t.Helper()
	if len(id) != 16 || id[0] != 0xd1 || id[1] != 0x5c {
		t.Fatalf("% x", id)
	}
	number := binary.BigEndian.Uint32(id[9:])
	span := uint32(id[13])<<16 | uint32(id[14])<<8 | uint32(id[15])
	return told{[7]byte(id[2:9]), number, number - span}
}

func nextPlace(t *testing.T, of *turn) told {
	t.Helper()
	id := of.id()
	return placeIn(t, id[:])
}

func TestWritesOneAfterTheOtherSettleAllBeforeThem(t *testing.T) {
	places := newWritePlaces()
	var client [7]byte
	for number := range uint32(10) {
		one := places.begin(1)
		place := nextPlace(t, &one)
		if number == 0 {
			client = place.client
		}
		if place != (told{client, number, number}) {
			t.Fatal(place)
		}
		one.end()
	}
	other := newWritePlaces().begin(1)
	if nextPlace(t, &other).client == client {
		t.Fatal("two clients have one place")
	}
}

func TestNothingIsSettledThatIsWaitedForAndAllIsInTheEnd(t *testing.T) {
	places, chance := newWritePlaces(), rand.New(rand.NewPCG(1, 2))
	var turns []turn
	probe := func() told {
		one := places.begin(1)
		defer one.end()
		return nextPlace(t, &one)
	}
	for range 5_000 {
		if chance.IntN(2) == 0 && len(turns) < 20 {
			turns = append(turns, places.begin(chance.IntN(4)))
		} else if len(turns) > 0 {
			which := chance.IntN(len(turns))
			turns[which].end()
			turns = append(turns[:which], turns[which+1:]...)
		}
		oldest := uint32(math.MaxUint32)
		for _, one := range turns {
			oldest = min(oldest, one.next)
		}
		if place := probe(); place.settled > oldest {
			t.Fatal(place, oldest)
		}
	}
	for _, one := range turns {
		one.end()
	}
	if place := probe(); place.settled != place.number {
		t.Fatal(place)
	}
}

func TestNumbersThatAreUsedUpBeginAnewAsAnotherClient(t *testing.T) {
	places := newWritePlaces()
	places.next = math.MaxUint32 - 1
	last := places.begin(1)
	first := places.begin(1)
	before, after := nextPlace(t, &last), nextPlace(t, &first)
	if before.number != math.MaxUint32-1 || after.number != 0 || after.settled != 0 || before.client == after.client {
		t.Fatal(before, after)
	}
	last.end() // It counts for nothing there.
	if place := places.begin(1); place.settled != 0 {
		t.Fatal("the other one is waited for", place)
	}
	far := newWritePlaces()
	far.begin(1)
	far.next += 1 << 24
	one := far.begin(1)
	if id := one.id(); id[13] != 0xff || id[14] != 0xff || id[15] != 0xff {
		t.Fatal(id)
	}
}

func TestACallThatHasEndedIsNotWaitedForHoweverItEnded(t *testing.T) {
	virtually(t, callsThatHaveEnded)
}

func callsThatHaveEnded(t *testing.T) {
	client, one, two, path := pair(t, quick(), always(silence{}))
	placed := func(action string) (all []told) {
		for _, request := range append(one.actions(action), two.actions(action)...) {
			all = append(all, placeIn(t, request.get("wid")[2:]))
		}
		return all
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := client.Put(ctx, path, 1, nil)
		ended <- err
	}()
	until(t, func() bool { return len(placed("set_value")) > 0 })
	cancel()
	<-ended
	_, err := client.Delete(t.Context(), path, &DeleteOptions{Timeout: 50 * time.Millisecond})
	wantError(t, err, ErrFateUnknown)
	batch := client.Batch().Put(path, 2, nil).Get(path).Put(path, 3, nil)
	_, err = batch.Run(t.Context(), &BatchOptions{Timeout: 50 * time.Millisecond})
	wantError(t, err, ErrFateUnknown)
	for _, node := range []*scripted{one, two} {
		node.mu.Lock()
		node.script = always(writtenReply)
		node.mu.Unlock()
	}
	put(t, client, path, 4, nil)
	var last told
	for _, place := range placed("set_value") {
		if place.number >= last.number {
			last = place
		}
	}
	if last.number != 5 || last.settled != 5 {
		t.Fatal(last)
	}
}
