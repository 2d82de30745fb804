package distkv

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Slow lines: how much longer who waits for a node waits while a message of it arrives.

// slowPause is almost as long as a pause may be, and such that no piece comes at the moment of a glance.
const slowPause = 885 * time.Millisecond

// inPieces is an answer that takes much longer than a try, though it never stops for a second.
func inPieces(reply fields) slowly {
	return slowly{slow: with(reply, "filler", make([]byte, 1000)), piece: 100, pause: slowPause}
}

// isStopped tells whether a wait of 2 s for an answer that stopped after so many pieces ended when it should: it is seen at a
// glance that nothing has come for a second.
func isStopped(took time.Duration, pieces int) bool {
	end := max(2*second, time.Duration(pieces-1)*slowPause+arrivingFor)
	return took >= end && took <= end+glance
}

// stops is the same, but after so many pieces nothing more comes.
func (s slowly) stops(pieces int) slowly {
	s.pieces = pieces
	return s
}

// within is the same in the midst of others.
func (s slowly) within(first, last several) slowly {
	s.first, s.last = first, last
	return s
}

// slowAt is two nodes of which the first answers what is about the path like this; the other one is well.
func slowAt(t *testing.T, config Config, answer func(request message) any) (client *Client, one, two *scripted, path Path) {
	t.Helper()
	setDefault(&config.Retry.TryDeadline, 2*second)
	one = &scripted{name: "s1", script: answer}
	two = &scripted{name: "s2", script: always(with(writtenReply, "value", "two"))}
	client = connectVirtually(t, config, one, two)
	return client, one, two, preferredPath(t, client, "s1")
}

// slowReply is an answer to a read that arrives slowly.
var slowReply = with(with(writtenReply, "value", "slow"), "tock", 200)

func TestAReadWaitsForAnAnswerThatIsArriving(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		virtually(t, func(t *testing.T) {
			client, one, two, path := slowAt(t, Config{}, always(inPieces(slowReply)))
			begun := now()
			found, err := Get[string](t.Context(), client, path, &GetOptions{Read: mode})
			if took := now() - begun; found != "slow" || err != nil || took < 8*second {
				t.Error(mode, found, err, took)
			}
			if tries := len(one.actions("get_value")); tries != 1 || mode == Preferred && len(two.actions("get_value")) != 0 {
				t.Error(mode, "tries:", tries)
			}
		})
	}
}

func TestAReadDoesNotWaitForAnAnswerThatHasStoppedToArrive(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		for _, pieces := range []int{1, 5} {
			virtually(t, func(t *testing.T) {
				client, _, _, path := slowAt(t, oneTry(), always(inPieces(slowReply).stops(pieces)))
				begun := now()
				_, err := client.Get(t.Context(), path, &GetOptions{Read: mode})
				if took := now() - begun; err == nil || !isStopped(took, pieces) {
					t.Error(mode, pieces, err, took)
				}
			})
		}
	}
}

func TestAReadDoesNotWaitForWhatArrivesBeyondTheEndOfItsCall(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		virtually(t, func(t *testing.T) {
			client, one, _, path := slowAt(t, Config{}, always(inPieces(slowReply)))
			time.Sleep(second) // What was heard of the node was before.
			begun := now()
			_, err := client.Get(t.Context(), path, &GetOptions{Read: mode, Timeout: 5 * second})
			if took := now() - begun; err == nil || took != 5*second {
				t.Error(mode, err, took)
			}
			// Meanwhile the node has sent something all the time.
			if client.Stats().Pool.Probes != 0 || client.pool.isFailing(client.addressOf(one)) {
				t.Error(mode, "it is taken for silent")
			}
			if found := len(one.actions("get_value")); found != 1 {
				t.Error(mode, found)
			}
		})
	}
}

// What arrives is another call's: the answer to a read comes behind it.
func TestACallWaitsBehindAnotherAnswerThatIsArriving(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, client *Client, path Path) error{
		"put": func(ctx context.Context, client *Client, path Path) error {
			_, err := client.Put(ctx, path, 1, &PutOptions{WriteID: NoWriteID})
			return err
		},
		"batch": func(ctx context.Context, client *Client, path Path) error {
			_, err := client.Batch().Put(path, 1, &PutOptions{WriteID: NoWriteID}).Run(ctx, nil)
			return err
		},
		"delete tree": func(ctx context.Context, client *Client, path Path) error {
			_, err := client.DeleteTree(ctx, path, nil)
			return err
		},
		"tree": func(ctx context.Context, client *Client, path Path) error {
			_, err := client.TreeList(ctx, path, nil)
			return err
		},
		"watch": func(ctx context.Context, client *Client, path Path) error {
			watch, err := client.OpenWatch(ctx, path, nil)
			if err == nil {
				watch.Close()
			}
			return err
		},
	} {
		virtually(t, func(t *testing.T) {
			client, one, two, path := slowAt(t, Config{}, func(request message) any {
				if request.text("action") == "get_value" {
					return inPieces(slowReply)
				}
				return answersAll(request)
			})
			read := make(chan error, 1)
			go func() {
				_, err := client.Get(t.Context(), path, nil)
				read <- err
			}()
			synctest.Wait()
			begun := now()
			if err := call(t.Context(), client, path); err != nil {
				t.Error(name, err)
			}
			if took := now() - begun; took < 8*second || len(two.asked()) != 0 {
				t.Error(name, took, one.asked(), two.asked())
			}
			if err := <-read; err != nil {
				t.Error(name, err)
			}
		})
	}
}

// resumedAt reads a watch until it has resumed at this node; what came before that.
func resumedAt(t *testing.T, watch *Watch, node string) (told []Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		event := must[Event](t)(watch.Next(ctx))
		if event == (Resumed{node}) {
			return told
		}
		told = append(told, event)
	}
}

func TestAWatchThatMovesWaitsBehindAnAnswerThatIsArriving(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, one, two, path := slowAt(t, Config{}, answersAll)
		two.mu.Lock()
		two.script = func(request message) any {
			if request.text("action") == "get_value" {
				return inPieces(slowReply)
			}
			return answersAll(request)
		}
		two.mu.Unlock()
		watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
		defer watch.Close()
		read, other := make(chan error, 1), preferredPath(t, client, "s2")
		go func() {
			_, err := client.Get(t.Context(), other, nil)
			read <- err
		}()
		synctest.Wait()
		one.stop()
		resumedAt(t, watch, "s2")
		if tries := len(two.actions("watch")); tries != 1 {
			t.Error("tries:", tries)
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

// The second node does not show what the first one has sent, and is asked whether it is still there.
func TestAWatchThatMovesWaitsForTheAnswersToItsQuestions(t *testing.T) {
	virtually(t, func(t *testing.T) {
		version := toldVersion{"a long value", 5}
		client, one, two, path := slowAt(t, Config{}, always(playedFeed{state: []toldVersion{version}}.messages()))
		two.mu.Lock()
		two.script = func(request message) any {
			switch request.text("action") {
			case "watch":
				return playedFeed{}.messages()
			case "check_deleted":
				return fields{"missing": fields{}, "tock": 6}
			}
			return inPieces(version.fields())
		}
		two.mu.Unlock()
		watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
		defer watch.Close()
		if _, isChange := must[Event](t)(watch.Next(t.Context())).(Change); !isChange {
			t.Error("the state is not told")
		}
		one.stop()
		told := resumedAt(t, watch, "s2")
		if tries := len(two.actions("get_value")); tries != 1 || len(told) != 1 || told[0] != (UpToDate{}) {
			t.Error("tries:", tries, "told:", told)
		}
	})
}

// The node reads nothing while it sends: the second write waits in the socket, and what comes then waits for room.
func TestWhatWaitsForTheSocketWaitsWhileAMessageArrives(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, _, two, path := slowAt(t, Config{}, func(request message) any {
			if request.text("action") == "get_value" {
				answer := inPieces(slowReply)
				answer.piece = 50
				return answer
			}
			return writtenReply
		})
		ended := make(chan error)
		start := func(call func() error) {
			go func() { ended <- call() }()
			synctest.Wait()
		}
		begun := now()
		start(func() error { _, err := client.Get(t.Context(), path, nil); return err })
		for range 3 {
			start(func() error {
				written, err := client.Put(t.Context(), path, long(3), nil)
				if written.Attempts != 1 {
					t.Errorf("%+v", written)
				}
				return err
			})
		}
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if took := now() - begun; took < 18*second || len(two.asked()) != 0 {
			t.Error(took, two.asked())
		}
	})
}

func TestAListingWaitsForAnEntryThatIsArriving(t *testing.T) {
	for name, list := range listings {
		for slow := range 3 { // The start of it, the first entry, and a later one.
			virtually(t, func(t *testing.T) {
				entry := func(name string) fields { return fields{"path": PathOf(name), "value": 1, "tock": 5} }
				messages := several{{"state": "start"}, entry("a"), entry("b"), {"state": "end"}}
				client, one, two, path := slowAt(t, Config{Retry: RetryPolicy{TotalDeadline: 5 * second}}, func(message) any {
					return inPieces(messages[slow]).within(messages[:slow], messages[slow+1:])
				})
				begun := now()
				count, err := list(t.Context(), client, path, func() {})
				if took := now() - begun; count != 2 || err != nil || took < 8*second {
					t.Error(name, slow, count, err, took)
				}
				if tries := len(one.actions("get_tree")) + len(two.actions("get_tree")); tries != 1 {
					t.Error(name, slow, "tries:", tries)
				}
			})
		}
	}
}

func TestAListingDoesNotWaitForAnEntryThatHasStoppedToArrive(t *testing.T) {
	for name, list := range listings {
		virtually(t, func(t *testing.T) {
			client, _, _, path := slowAt(t, oneTry(), func(message) any {
				entry := fields{"path": PathOf("a"), "value": 1, "tock": 5}
				return inPieces(entry).stops(4).within(several{{"state": "start"}}, nil)
			})
			begun := now()
			count, err := list(t.Context(), client, path, func() {})
			if took := now() - begun; count != 0 || !errors.Is(err, ErrUnavailable) || !isStopped(took, 4) {
				t.Error(name, count, err, took)
			}
		})
	}
}

func TestConflictsWaitForOneThatIsArriving(t *testing.T) {
	virtually(t, func(t *testing.T) {
		version := fields{"chain": fields{"node": "x~7", "tick": 1, "prev": nil}, "tock": 5, "value": 1}
		conflict := fields{"path": PathOf("a"), "conflict": fields{"winner": version, "loser": version}}
		client, _, _, path := slowAt(t, Config{}, func(message) any {
			return inPieces(conflict).within(several{{"state": "start"}}, several{{"state": "end"}})
		})
		begun := now()
		found := 0
		for one, err := range client.Conflicts(t.Context(), path) {
			if found++; err != nil || one.Node != "s1" {
				t.Error(one, err)
			}
		}
		if took := now() - begun; found != 1 || took < 8*second {
			t.Error(found, took)
		}
	})
}

// A message arrives, of which the client's own patience with a silent node would see nothing: it is not whole.
func TestAConnectionOnWhichAnAnswerArrivesIsNotClosed(t *testing.T) {
	virtually(t, func(t *testing.T) {
		answer := inPieces(slowReply)
		answer.piece = 20 // More than 40 s.
		config := Config{Pool: PoolConfig{ProbeAfter: 3 * second, ProbeTimeout: 2 * second}}
		client, one, _, path := slowAt(t, config, always(answer))
		found, err := Get[string](t.Context(), client, path, nil)
		if stats := client.Stats().Pool; found != "slow" || err != nil || stats.SilentClosed != 0 || stats.Probes == 0 {
			t.Errorf("%s %v %+v", found, err, stats)
		}
		if client.pool.isFailing(client.addressOf(one)) || len(client.connsTo(one)) != 1 {
			t.Error("it is taken for silent")
		}
	})
}

func TestAConnectionOnWhichNothingArrivesAnyMoreIsClosed(t *testing.T) {
	virtually(t, func(t *testing.T) {
		config := oneTry()
		config.Pool = PoolConfig{ProbeAfter: 3 * second, ProbeTimeout: 2 * second}
		client, one, _, path := slowAt(t, config, always(inPieces(slowReply).stops(4)))
		begun := now()
		_, err := client.Get(t.Context(), path, nil)
		wantError(t, err, ErrUnavailable)
		until(t, func() bool { return len(client.connsTo(one)) == 0 })
		// It stops after 2.7 s, and 3 s after the node was heard it is asked; the call ends between them.
		if took := now() - begun; client.Stats().Pool.SilentClosed != 1 || took > 6*second {
			t.Errorf("%v %+v", took, client.Stats().Pool)
		}
	})
}

// A question whether a node is alive comes there behind what was sent before.
func TestAConnectionOverWhichMuchIsSentIsNotClosed(t *testing.T) {
	for seconds, isClosed := range map[int]bool{0: true, 1: true, 6: false} {
		virtually(t, func(t *testing.T) {
			config := Config{Pool: PoolConfig{ProbeAfter: second, ProbeTimeout: second / 2}}
			client, one, two, path := slowAt(t, config, func(request message) any {
				if request.text("action") == "set_value" {
					time.Sleep(7 * second)
				}
				return writtenReply
			})
			begun := now()
			written := put(t, client, path, long(seconds), nil)
			stats := client.Stats().Pool
			if (written.Node == "s2") != isClosed || (stats.SilentClosed > 0) != isClosed || stats.Probes == 0 {
				t.Errorf("%d: %+v %+v", seconds, written, stats)
			}
			// With little on the line, a node that stands still is left as soon as ever.
			if took := now() - begun; isClosed && (took < second || took > time.Duration(2+seconds)*second+100*time.Millisecond) {
				t.Error(seconds, took, len(one.asked()), len(two.asked()))
			}
		})
	}
}

// A call that reads its own answer sees that it arrives, and that an interruption brings nothing.
func TestACallThatReadsByItselfSeesThatItsAnswerArrives(t *testing.T) {
	call := newReadsInVain(t)
	node, c, cancel, answered := call.node, call.c, call.cancel, call.ended
	if c.readBy() != readsCall || c.arrival.at.Load() != 0 {
		t.Fatal(c.readBy(), c.arrival.at.Load())
	}
	asked := node.actions("get_value")
	reply, err := Encode(fields{"seq": asked[len(asked)-1].integer("seq", 0), "value": "in two parts"})
	if err != nil {
		t.Fatal(err)
	}
	var socket net.Conn
	node.mu.Lock()
	for socket = range node.sockets {
	}
	node.mu.Unlock()
	_, _ = socket.Write(reply[:9])
	until(t, func() bool { return c.arrival.at.Load() != 0 })
	at := c.arrival.at.Load()
	cancel()
	if err := <-answered; err == nil {
		t.Error("half an answer")
	}
	until(t, func() bool { return c.readBy() == readsGoroutine })
	if found := c.arrival.at.Load(); found != at {
		t.Error(at, found)
	}
	_, _ = socket.Write(reply[9:])
	until(t, func() bool { return c.arrival.at.Load() == 0 })
}
