package distkv

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Slow lines: how much longer a try lasts where much has to be sent.

const second = time.Second

// long is a value that takes so many seconds to a node, over the slowest line that a client has patience with.
func long(seconds int) []byte { return make([]byte, seconds*lineBytesPerS) }

// about checks how long something was, but for what is sent besides the value, and what is rounded.
func about(t *testing.T, what string, found, want time.Duration) {
	t.Helper()
	if found < want || found > want+5*time.Millisecond {
		t.Errorf("%s: %v, not %v", what, found, want)
	}
}

// countsFor is for how long a request counts that was sent when the node's clock showed 1,000,000, which is when it greets.
func countsFor(request message) time.Duration {
	return time.Duration(request.integer("by", 0)-1_000_000) * time.Millisecond
}

// greeted is a node with that clock.
func greeted(script func(message) any) *scripted {
	return &scripted{name: "s1", greets: fields{"clock": 1_000_000}, script: script}
}

func (c *Client) addressOf(node *scripted) address {
	return c.topology.routing().byName[node.name].address
}

// connsTo are the connections to a node.
func (c *Client) connsTo(node *scripted) []*conn {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if found := c.pool.slots[c.addressOf(node)]; found != nil {
		return found.conns
	}
	return nil
}

// unanswered is how much it has sent to a node, and has no answer to.
func (c *Client) unansweredBy(node *scripted) (bytes int) {
	for _, one := range c.connsTo(node) {
		one.mu.Lock()
		bytes += one.unanswered
		one.mu.Unlock()
	}
	return bytes
}

func TestAMegabyteTakesTwoSecondsOverTheSlowestLine(t *testing.T) {
	for bytes, want := range map[int]time.Duration{0: 0, 1: 2 * time.Microsecond, 1_000_000: 2 * second} {
		if found := sending(bytes); found != want {
			t.Error(bytes, found)
		}
	}
	if longestArrival != 135*second {
		t.Error(longestArrival)
	}
}

func TestATryThatHasMuchToSendIsLongerButNotLongerThanItsCall(t *testing.T) {
	for name, one := range map[string]struct{ t, want tryTime }{
		"a read":            {tryTime{2 * second, 10 * second, never}, tryTime{4 * second, 10 * second, never}},
		"a change":          {tryTime{2 * second, 10 * second, 2 * second}, tryTime{4 * second, 10 * second, 4 * second}},
		"a tree's deletion": {tryTime{10 * second, 10 * second, 3 * second}, tryTime{10 * second, 10 * second, 5 * second}},
		"late in a call":    {tryTime{9 * second, 10 * second, 9 * second}, tryTime{10 * second, 10 * second, 10 * second}},
		"a stream's item":   {whileArriving(2 * second), tryTime{4 * second, 137 * second, never}},
		"nothing longer":    {exactly(10 * second), exactly(10 * second)},
		"without an end":    {exactly(never), exactly(never)},
		"a very long one":   {tryTime{never - 1, never - 1, never - 2}, tryTime{never - 1, never - 1, never - 1}},
	} {
		if found := one.t.behind(1_000_000); found != one.want {
			t.Errorf("%s: %v", name, found)
		}
		if one.t.behind(0) != one.t {
			t.Error(name, "is longer though nothing has to be sent")
		}
	}
}

func TestATryLastsAndCountsLongerForWhatItSends(t *testing.T) {
	for action, change := range map[string]func(ctx context.Context, client *Client, value []byte) error{
		"set_value": func(ctx context.Context, client *Client, value []byte) error {
			_, err := client.Put(ctx, PathOf("a"), value, nil)
			return err
		},
		"batch": func(ctx context.Context, client *Client, value []byte) error {
			_, err := client.Batch().Put(PathOf("a"), value, nil).Run(ctx, nil)
			return err
		},
		"tell_all": func(ctx context.Context, client *Client, value []byte) error {
			_, err := client.Request(ctx, "tell_all", fields{"value": value}, nil)
			return err
		},
	} {
		for seconds := range 4 {
			virtually(t, func(t *testing.T) {
				node := greeted(always(silence{}))
				client, begun := connectVirtually(t, oneTry(), node), now()
				wantError(t, change(t.Context(), client, long(seconds)), ErrFateUnknown)
				about(t, action, now()-begun, time.Duration(2+seconds)*second)
				about(t, action+" counts for", countsFor(node.actions(action)[0]), time.Duration(2+seconds)*second)
				if left := client.unansweredBy(node); left != 0 {
					t.Error(action, left)
				}
			})
		}
	}
}

func TestATryLastsNoLongerThanItsCallWhateverItSends(t *testing.T) {
	virtually(t, func(t *testing.T) {
		node := greeted(always(silence{}))
		client, begun := connectVirtually(t, oneTry(), node), now()
		_, err := client.Put(t.Context(), PathOf("a"), long(8), &PutOptions{Timeout: 5 * second})
		wantError(t, err, ErrFateUnknown)
		about(t, "the call", now()-begun, 5*second)
		about(t, "it counts for", countsFor(node.actions("set_value")[0]), 5*second)
	})
}

// behindOne makes a call while a node has a write of this client, which takes 3 s to it, and answers nothing.
func behindOne(t *testing.T, call func(t *testing.T, client *Client, node *scripted)) {
	t.Helper()
	virtually(t, func(t *testing.T) {
		node := greeted(always(silence{}))
		client := connectVirtually(t, oneTry(), node)
		written := make(chan error, 1)
		go func() {
			_, err := client.Put(t.Context(), PathOf("a"), long(3), nil)
			written <- err
		}()
		synctest.Wait()
		call(t, client, node)
		if err := <-written; err == nil {
			t.Error("it is not answered")
		}
		if left := client.unansweredBy(node); left != 0 {
			t.Error("what is given up is not waited for:", left)
		}
	})
}

func TestATryLastsLongerForAllThatHasNoAnswerYet(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, client *Client) error{
		"get": func(ctx context.Context, client *Client) error {
			_, err := client.Get(ctx, PathOf("a"), nil)
			return err
		},
		"children": func(ctx context.Context, client *Client) error {
			_, err := client.Children(ctx, PathOf("a"))
			return err
		},
		"tree": func(ctx context.Context, client *Client) error {
			_, err := client.TreeList(ctx, PathOf("a"), nil)
			return err
		},
		"watch": func(ctx context.Context, client *Client) error {
			_, err := client.OpenWatch(ctx, PathOf("a"), nil)
			return err
		},
		"send": func(ctx context.Context, client *Client) error { return client.Send(ctx, PathOf("a"), 1) },
		"freshest": func(ctx context.Context, client *Client) error {
			_, err := client.Get(ctx, PathOf("a"), &GetOptions{Read: Freshest})
			return err
		},
	} {
		behindOne(t, func(t *testing.T, client *Client, node *scripted) {
			begun := now()
			if err := call(t.Context(), client); err == nil {
				t.Error(name, "is not answered")
			}
			about(t, name, now()-begun, 5*second)
		})
	}
}

func TestAWriteCountsLongerForAllThatHasNoAnswerYet(t *testing.T) {
	behindOne(t, func(t *testing.T, client *Client, node *scripted) {
		begun := now()
		_, err := client.Put(t.Context(), PathOf("a"), long(2), nil)
		wantError(t, err, ErrFateUnknown)
		about(t, "it lasts", now()-begun, 7*second)
		about(t, "it counts for", countsFor(node.actions("set_value")[1]), 7*second)
	})
}

func TestATreesDeletionMayBeginLaterWhereMuchHasToBeSentBefore(t *testing.T) {
	behindOne(t, func(t *testing.T, client *Client, node *scripted) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := client.DeleteTree(ctx, PathOf("a"), nil)
		wantError(t, err, ErrFateUnknown)
		about(t, "it counts for", countsFor(node.actions("delete_tree")[0]), 5*second)
	})
}

func TestWhatIsAnsweredHasBeenSent(t *testing.T) {
	virtually(t, func(t *testing.T) {
		first := onceThen(true, false)
		node := greeted(func(request message) any {
			if first(request) == true {
				return writtenReply
			}
			return silence{}
		})
		client := connectVirtually(t, oneTry(), node)
		put(t, client, PathOf("a"), long(7), nil)
		begun := now()
		_, err := client.Put(t.Context(), PathOf("a"), 1, nil)
		wantError(t, err, ErrFateUnknown)
		if took := now() - begun; took != 2*second {
			t.Error(took)
		}
	})
}

// The first write is in the node, which reads no more; the second one in the socket; the third one is waiting.
func TestWhatWaitsForTheSocketWaitsUntilTheEndOfItsTry(t *testing.T) {
	virtually(t, func(t *testing.T) {
		node := greeted(func(message) any {
			time.Sleep(time.Hour)
			return silence{}
		})
		config := oneTry()
		config.Pool.ProbeTimeout = time.Hour
		client, begun := connectVirtually(t, config, node), now()
		ended := make(chan struct{})
		for range 3 {
			go func() {
				_, _ = client.Put(t.Context(), PathOf("a"), long(3), nil)
				ended <- struct{}{}
			}()
			synctest.Wait()
		}
		_, err := client.Put(t.Context(), PathOf("a"), make([]byte, countedMin), &PutOptions{WriteID: NoWriteID})
		if failed := wantError(t, err, ErrUnavailable); failed.Fate != NotDone {
			t.Errorf("%+v", failed)
		}
		about(t, "it waits", now()-begun, 11*second)
		for range 3 {
			<-ended
		}
		if left := client.unansweredBy(node); left != 0 {
			t.Error(left)
		}
	})
}
