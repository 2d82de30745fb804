package distkv

import (
	"context"
	"strings"
	"testing"
	"time"
)

// For how long an own write that no node has any more is looked for, by all reads together, and what a read takes whose time
// ends before.

// lost is a client whose write of this path no node has any more: both answer reads like this.
func lost(t *testing.T, patience time.Duration, first, second any) (client *Client, path Path) {
	t.Helper()
	config := quick()
	config.OwnWritePatience = patience
	client, one, two, path := pair(t, config, always(with(writtenReply, "tock", 9)))
	put(t, client, path, "new", nil)
	for node, reply := range map[*scripted]any{one: first, two: second} {
		node.mu.Lock()
		node.script = always(reply)
		node.mu.Unlock()
	}
	return client, path
}

var old = fields{"value": "old", "tock": 1, "chain": fields{"node": "x~1", "tick": 1}}

func TestAReadWithLittleTimeTakesWhatThereIs(t *testing.T) {
	const little = 100 * time.Millisecond
	soon := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), little)
		t.Cleanup(cancel)
		return ctx
	}
	for second, reply := range map[string]any{"as old": old, "silent": silence{}, "nothing there": fields{"chain": nil, "tock": 20}} {
		virtually(t, func(t *testing.T) {
			client, path := lost(t, time.Hour, old, reply)
			for mode, read := range map[string]func() (string, error){
				"context": func() (string, error) { return Get[string](soon(t), client, path, nil) },
				"timeout": func() (string, error) {
					return Get[string](t.Context(), client, path, &GetOptions{Timeout: little})
				},
				"both": func() (string, error) {
					return Get[string](soon(t), client, path, &GetOptions{Timeout: time.Hour})
				},
			} {
				started := time.Now()
				found, err := read()
				if took := time.Since(started); found != "old" || err != nil || took != little {
					t.Error(second, mode, found, err, took)
				}
				if client.caller.own.newest(path) < 0 {
					t.Fatal("a read with little time does not give up an own write")
				}
			}
		})
	}
}

func TestAMajorityIsTakenWhereAReadHasLittleTime(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, ctx, path := wroteOnce(t, time.Hour, silence{}, old, old)
		for range 2 {
			found, err := Get[string](ctx, client, path, &GetOptions{Read: Freshest, Timeout: 100 * time.Millisecond})
			if found != "old" || err != nil || client.caller.own.newest(path) < 0 {
				t.Fatal(found, err)
			}
		}
	})
}

func TestAllReadsTogetherAreAsPatientAsOne(t *testing.T) {
	const patience = 300 * time.Millisecond
	for _, mode := range []ReadMode{Preferred, Freshest} {
		virtually(t, func(t *testing.T) {
			client, path := lost(t, patience, old, old)
			started := time.Now()
			until(t, func() bool {
				_, err := client.Get(t.Context(), path, &GetOptions{Read: mode, Timeout: 20 * time.Millisecond})
				if err != nil {
					t.Fatal(mode, err)
				}
				return client.caller.own.newest(path) < 0
			})
			if took := time.Since(started); took < patience {
				t.Error(mode, "it was given up after", took)
			}
		})
	}
}

func TestANewOwnWriteIsLookedForAnew(t *testing.T) {
	own := newOwnWrites(2, &clock{})
	path, here := PathOf("p"), life{"s1", 7}
	own.onWritten(path, 9, here)
	first := own.lackedSince(path)
	until(t, func() bool { return now() > first })
	if again := own.lackedSince(path); again != first {
		t.Error("the patience of all reads begins with the first:", first, again)
	}
	if own.isEnough(path, 9, 8, here) || !own.isEnough(path, 9, 9, life{"s2", 7}) {
		t.Fatal("what is older is not enough, and what has it is")
	}
	if found := own.lackedSince(path); found <= first {
		t.Error("where another node has it, one that lacks it is only behind:", first, found)
	}
	own.onWritten(path, 10, here)
	if !own.isEnough(path, 9, 9, here) || own.isEnough(path, own.newest(path), 9, here) {
		t.Error("a read looks for what was acknowledged before it began")
	}
	if anew := own.lackedSince(path); anew <= first {
		t.Error(first, anew)
	}
	own.giveUp(path, first)
	if own.newest(path) < 0 {
		t.Error("what is given up is the write that was lacked then")
	}
}

func TestAReadThatIsCancelledWhileItLooksForAnOwnWriteSaysThatItWasSent(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		// A majority would have answered.
		client, _, path := wroteOnce(t, time.Hour, silence{}, old, old)
		if mode == Preferred {
			client, path = lost(t, time.Hour, old, old)
		}
		own := client.caller.own
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			until(t, func() bool {
				own.mu.RLock()
				defer own.mu.RUnlock()
				return own.tocks[path].Value.(ownWrite).lackedAt != 0
			})
		}()
		_, err := client.Get(ctx, path, &GetOptions{Read: mode})
		if told := wantError(t, err, context.Canceled); told.Attempts == 0 || strings.Contains(told.Error(), "nothing was sent") {
			t.Error(mode, told.Attempts, told)
		}
		if own.newest(path) < 0 {
			t.Error("who cancels a read does not give up an own write")
		}
	}
}
