package distkv

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// What a read takes whose time ends while it looks for an own write, and how long it may look where it has no time of its own.

// soonest gives up a test whose read does not end.
func soonest[T any](t *testing.T, read func() (T, error)) (found T, err error, took time.Duration) {
	t.Helper()
	done, started := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		found, err = read()
	}()
	select {
	case <-done:
	case <-time.After(patient):
		t.Fatal("the read does not end")
	}
	return found, err, time.Since(started)
}

// The own write is on a node that is killed; the two others answer.
func TestAReadTakesWhatItHasHoweverLittleTimeItHas(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		client, nodes := readers(t, time.Hour, old, old, old)
		path := preferredPath(t, client, "s1")
		put(t, client, path, "new", nil)
		nodes[0].stop()
		for _, little := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
			300 * time.Millisecond, time.Second} {
			// No try begins that would have no time, and the pause before it is 10 ms at most.
			least := little - 12*time.Millisecond
			for name, read := range map[string]func() (string, error){
				"timeout": func() (string, error) {
					return Get[string](t.Context(), client, path, &GetOptions{Read: mode, Timeout: little})
				},
				"context": func() (string, error) {
					ctx, cancel := context.WithTimeout(t.Context(), little)
					defer cancel()
					return Get[string](ctx, client, path, &GetOptions{Read: mode})
				},
			} {
				until(t, func() bool {
					before := client.Stats().Reads
					found, err, took := soonest(t, read)
					after := client.Stats().Reads
					switch {
					case err == nil && (found != "old" || took < least || after.StaleTaken != before.StaleTaken+1):
						t.Fatal(mode, name, little, found, took, before, after)
					case err != nil && (mode == Preferred && after.StaleAnswers > before.StaleAnswers || took > 10*little):
						t.Fatal(mode, name, little, "it had an answer:", err, took)
					case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNoMajority):
						t.Fatal(mode, name, little, err)
					}
					return err == nil // Else this machine stood still for all of that time.
				})
			}
		}
		if client.caller.own.newest(path) < 0 {
			t.Error(mode, "a read with little time does not give up an own write")
		}
	}
}

func TestAReadWithoutATimeOfItsOwnLooksForAnOwnWriteAsLongAsACallMayTake(t *testing.T) {
	const total, lastPause = 500 * time.Millisecond, 12 * time.Millisecond // No try begins that would have no time.
	for _, mode := range []ReadMode{Preferred, Freshest} {
		virtually(t, func(t *testing.T) {
			client, nodes := readersOf(t, Config{OwnWritePatience: time.Hour, Retry: RetryPolicy{TotalDeadline: total}}, old, old, old)
			path := preferredPath(t, client, "s1")
			put(t, client, path, "new", nil)
			nodes[0].stop()
			found, err, took := soonest(t, func() (string, error) {
				return Get[string](context.Background(), client, path, &GetOptions{Read: mode})
			})
			if found != "old" || err != nil || took < total-lastPause || client.Stats().Reads.StaleTaken != 1 {
				t.Error(mode, found, err, took, client.Stats().Reads)
			}
		})
	}
}

// own is what a node answers that has what wroteOnce wrote.
var own = with(with(writtenReply, "value", "own"), "tock", 9)

func TestFreshestAsksAgainWhoFailedWhileTheOwnWriteIsMissing(t *testing.T) {
	client, nodes := readers(t, time.Hour, nil, old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	asked := 0
	nodes[0].mu.Lock()
	nodes[0].script = func(message) any { // Of one connection, one after the other.
		if asked++; asked < 4 {
			return errorReply("not_ready")
		}
		return own
	}
	nodes[0].mu.Unlock()
	found, err, _ := soonest(t, func() (string, error) {
		return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest})
	})
	if reads := client.Stats().Reads; found != "own" || err != nil || reads.StaleTaken != 0 {
		t.Error(found, err, reads)
	}
}

// The node that took the write is away; the others hear of it a moment after they have answered.
func TestFreshestAsksThoseAgainThatHaveAnsweredWithoutTheOwnWrite(t *testing.T) {
	for _, isKilled := range []bool{true, false} {
		client, nodes := readers(t, time.Hour, silence{}, nil, nil)
		path := preferredPath(t, client, "s1")
		put(t, client, path, "new", nil)
		for _, node := range nodes[1:] {
			asked := 0
			node.mu.Lock()
			node.script = func(message) any {
				if asked++; asked == 1 {
					return old
				}
				return own
			}
			node.mu.Unlock()
		}
		if isKilled {
			nodes[0].stop()
		}
		found, err, _ := soonest(t, func() (string, error) {
			return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest, Timeout: time.Hour})
		})
		if reads := client.Stats().Reads; found != "own" || err != nil || reads.StaleTaken != 0 {
			t.Error(isKilled, found, err, reads)
		}
	}
}

// Each time that nodes are asked, another write of the path has just been acknowledged: they have those before it.
func TestWhatIsWrittenWhileAReadIsUnderWayDoesNotHoldItUp(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		client, nodes := readers(t, time.Hour, silence{}, nil, nil)
		path := preferredPath(t, client, "s1")
		put(t, client, path, "new", nil)
		var tock atomic.Int64
		tock.Store(9)
		for i, node := range nodes {
			node.mu.Lock()
			if mode == Preferred || i > 0 {
				node.script = func(message) any {
					newest := tock.Add(1)
					client.caller.own.onWritten(path, newest, life{"s1", 7})
					return with(own, "tock", newest-1)
				}
			}
			node.mu.Unlock()
		}
		found, err, _ := soonest(t, func() (string, error) {
			return Get[string](t.Context(), client, path, &GetOptions{Read: mode, Timeout: time.Hour})
		})
		if reads := client.Stats().Reads; found != "own" || err != nil || reads.StaleTaken+reads.StaleAnswers != 0 {
			t.Error(mode, found, err, reads)
		}
	}
}

func TestFreshestTakesAnAnswerWithoutTheOwnWriteWhenItsPatienceIsOver(t *testing.T) {
	const patience = 200 * time.Millisecond
	client, nodes := readers(t, patience, nil, old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	nodes[0].stop()
	for turn := range 2 {
		found, err, took := soonest(t, func() (string, error) {
			return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest})
		})
		if found != "old" || err != nil || (turn == 0 && took < patience) || client.Stats().Reads.StaleTaken != 1 {
			t.Error(turn, found, err, took, client.Stats().Reads)
		}
		if client.caller.own.newest(path) >= 0 {
			t.Error("it is not looked for again")
		}
	}
}

func TestFreshestAsksAllAgainWhereAllLackTheOwnWrite(t *testing.T) {
	client, nodes := readers(t, time.Hour, old, old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	asked := 0
	nodes[2].mu.Lock()
	nodes[2].script = func(message) any { // Of one connection, one after the other.
		if asked++; asked < 4 {
			return old
		}
		return own
	}
	nodes[2].mu.Unlock()
	read := func() (string, error) {
		return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest})
	}
	if found, err, _ := soonest(t, read); found != "own" || err != nil || client.Stats().Reads.StaleTaken != 0 {
		t.Error(found, err, client.Stats().Reads)
	}
	// Where it is nowhere, that is told when the patience is over.
	const patience = 200 * time.Millisecond
	client, _ = readers(t, patience, old, old, old)
	put(t, client, path, "new", nil)
	if found, err, took := soonest(t, read); found != "old" || err != nil || took < patience || client.Stats().Reads.StaleTaken != 1 {
		t.Error(found, err, took, client.Stats().Reads)
	}
}

func TestFreshestAsksNobodyAgainWhoRefusesForGood(t *testing.T) {
	client, nodes := readers(t, 200*time.Millisecond, errorReply("denied"), old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	found, err, _ := soonest(t, func() (string, error) {
		return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest})
	})
	if tries := len(nodes[0].actions("get_value")); found != "old" || err != nil || tries != 1 || client.Stats().Reads.StaleTaken != 1 {
		t.Error(found, err, tries, client.Stats().Reads)
	}
	if again := len(nodes[1].actions("get_value")); again < 2 {
		t.Error("the others are asked again:", again)
	}
}

func TestFreshestTriesNoMoreOftenThanACallMayForItsOwnWrite(t *testing.T) {
	client, nodes := readersOf(t, Config{OwnWritePatience: time.Hour, Retry: RetryPolicy{AttemptsMax: 3}}, errorReply("not_ready"), old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	found, err, _ := soonest(t, func() (string, error) {
		return Get[string](t.Context(), client, path, &GetOptions{Read: Freshest})
	})
	if tries := len(nodes[0].actions("get_value")); found != "old" || err != nil || tries != 3 || client.Stats().Reads.StaleTaken != 1 {
		t.Error(found, err, tries, client.Stats().Reads)
	}
}

func TestAReadOfAMajorityThatIsCancelledWhileItPausesIsCancelled(t *testing.T) {
	config := Config{OwnWritePatience: time.Hour, Retry: RetryPolicy{InitialDelay: time.Minute, DelayMax: time.Minute, TotalDeadline: time.Hour}}
	client, nodes := readersOf(t, config, errorReply("not_ready"), old, old)
	path := preferredPath(t, client, "s1")
	put(t, client, path, "new", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		until(t, func() bool { return len(nodes[0].actions("get_value")) == 1 && client.Stats().Pool.OpenRequests == 1 })
	}()
	_, err, _ := soonest(t, func() (string, error) {
		return Get[string](ctx, client, path, &GetOptions{Read: Freshest})
	})
	wantError(t, err, context.Canceled)
}
