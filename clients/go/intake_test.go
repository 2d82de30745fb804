package distkv

import (
	"context"
	"testing"
	"time"
)

// Who reads a connection: intake.go.

// openTo opens a connection to a scripted node, by itself.
func openTo(t *testing.T, node *scripted) *conn {
	t.Helper()
	config := Config{Seeds: startScripted(t, node), Pool: PoolConfig{ConnectTimeout: patient}}
	config.fill()
	where, err := parseAddress(config.Seeds[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	var goroutines group
	c, failure := openConn(t.Context(), where, &config, new(network), &goroutines)
	if failure != nil {
		t.Fatal(failure)
	}
	t.Cleanup(func() {
		c.close("the test is over")
		<-goroutines.none()
	})
	return c
}

func (c *conn) readBy() reads {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intake.by
}

func ask(ctx context.Context, c *conn, patience time.Duration) (message, *tryError) {
	return c.request(ctx, newBody("get_value").head(), exactly(now()+patience))
}

// alone makes one call after the other until the next one reads by itself.
func alone(t *testing.T, c *conn) {
	t.Helper()
	until(t, func() bool {
		for range 2 * loneAnswersMin {
			if _, err := ask(t.Context(), c, patient); err != nil {
				t.Fatal(err)
			}
		}
		return c.readBy() == readsNobody
	})
}

func TestCallsInARowReadTheirOwnAnswersUntilTheyCease(t *testing.T) {
	c := openTo(t, &scripted{name: "s1"})
	if c.readBy() != readsGoroutine {
		t.Error("a new connection has no reader")
	}
	alone(t, c)
	until(t, func() bool { return c.readBy() == readsGoroutine })
	alone(t, c)
}

func TestAnEndIsNoticedWhereNobodyReads(t *testing.T) {
	node := &scripted{name: "s1"}
	c := openTo(t, node)
	alone(t, c)
	node.stop()
	select {
	case <-c.done:
	case <-time.After(patient):
		t.Fatal("the connection's end was not noticed")
	}
	if _, err := ask(t.Context(), c, patient); err == nil || err.kind != tryLost {
		t.Error(err)
	}
}

// silentAtTimes answers but where `isSilent` is set.
func silentAtTimes() (*scripted, func(bool)) {
	answers := make(chan any, 1)
	answers <- fields{"value": 1}
	node := &scripted{name: "s1", script: func(message) any {
		told := <-answers
		answers <- told
		return told
	}}
	return node, func(isSilent bool) {
		<-answers
		if isSilent {
			answers <- silence{}
		} else {
			answers <- fields{"value": 1}
		}
	}
}

// readsInVain is a call that reads its own answer, which does not come: its request is the node's last one.
type readsInVain struct {
	node      *scripted
	setSilent func(bool)
	c         *conn
	cancel    context.CancelFunc
	ended     chan *tryError
}

func newReadsInVain(t *testing.T) readsInVain {
	t.Helper()
	node, setSilent := silentAtTimes()
	c := openTo(t, node)
	for {
		alone(t, c)
		setSilent(true)
		before := len(node.actions("get_value"))
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		ended := make(chan *tryError, 1)
		go func() {
			_, err := ask(ctx, c, patient)
			ended <- err
		}()
		until(t, func() bool { return len(node.actions("get_value")) == before+1 })
		if c.readBy() == readsCall {
			return readsInVain{node, setSilent, c, cancel, ended}
		}
		// It came more than a moment after the others: the goroutine had begun to read.
		cancel()
		<-ended
		setSilent(false)
	}
}

func TestACallThatReadsCanBeCancelled(t *testing.T) {
	call := newReadsInVain(t)
	c, setSilent, cancel, ended := call.c, call.setSilent, call.cancel, call.ended
	// Others wait for their answers while it reads, and after it has gone.
	setSilent(false)
	if _, err := ask(t.Context(), c, patient); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err == nil || err.kind != tryCanceled {
		t.Error(err)
	}
	if _, err := ask(t.Context(), c, patient); err != nil {
		t.Error(err)
	}
	if open := c.load.Load(); open != 0 {
		t.Errorf("%d requests are open", open)
	}
	alone(t, c)
}

func TestACallThatReadsKeepsItsDeadline(t *testing.T) {
	node, setSilent := silentAtTimes()
	c := openTo(t, node)
	for range 10 {
		alone(t, c)
		setSilent(true)
		started := time.Now()
		if _, err := ask(t.Context(), c, 20*time.Millisecond); err == nil || err.kind != tryTimedOut {
			t.Error(err)
		}
		if waited := time.Since(started); waited < 20*time.Millisecond {
			t.Error(waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := ask(ctx, c, patient); err == nil || err.kind != tryTimedOut {
			t.Error(err)
		}
		cancel()
		setSilent(false)
	}
}

func TestAStreamIsReadWhereCallsHaveReadBefore(t *testing.T) {
	node := &scripted{name: "s1"}
	c := openTo(t, node)
	alone(t, c)
	views, err := c.stream(t.Context(), newBody("watch_cluster").head(), exactly(now()+patient))
	if err != nil {
		t.Fatal(err)
	}
	defer views.close()
	for range 10 {
		if item, err := views.next(t.Context(), exactly(now()+patient)); err != nil || item.message.get("cluster") == nil {
			t.Fatal(item, err)
		}
		alone(t, c)
		// Nobody reads, or a call does: it comes all the same.
		node.tellDown("s1")
		_, _ = ask(t.Context(), c, patient)
	}
}

// A node that heeds no flow control must not stop a call that happens to read.
func TestAStreamWithoutRoomDoesNotHoldACallThatReads(t *testing.T) {
	flood := make(chan func(), 1)
	node := &scripted{name: "s1", script: func(message) any {
		select {
		case send := <-flood:
			send()
		default:
		}
		return fields{"value": 1}
	}}
	c := openTo(t, node)
	views, err := c.stream(t.Context(), newBody("watch_cluster").head(), exactly(now()+patient))
	if err != nil {
		t.Fatal(err)
	}
	defer views.close()
	if _, err := views.next(t.Context(), exactly(now()+patient)); err != nil {
		t.Fatal(err)
	}
	alone(t, c)
	count := views.capacity + 1
	node.mu.Lock()
	to := node.views[0]
	node.mu.Unlock()
	flood <- func() {
		for range count {
			send(to.socket, fields{"seq": to.seq, "cluster": fields{}, "wseq": 3})
		}
	}
	// Its answer is behind what nobody reads. A slow machine may use up the time before anything is sent.
	until(t, func() bool {
		if _, err := ask(t.Context(), c, 100*time.Millisecond); err == nil || err.kind != tryTimedOut {
			t.Fatal(err)
		}
		return len(flood) == 0
	})
	for range count {
		if _, err := views.next(t.Context(), exactly(now()+patient)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(t.Context(), c, patient); err != nil {
		t.Error(err)
	}
}

func TestACallThatGoesLeavesAReaderToThoseThatWait(t *testing.T) {
	node, setSilent := silentAtTimes()
	c := openTo(t, node)
	watched, err := c.stream(t.Context(), newBody("watch_cluster").head(), exactly(now()+patient))
	if err != nil {
		t.Fatal(err)
	}
	defer watched.close()
	alone(t, c)
	setSilent(true)
	before := len(node.actions("get_value"))
	var answers [2]chan *tryError
	for n := range answers {
		answers[n] = make(chan *tryError, 1)
		go func() {
			_, err := ask(t.Context(), c, patient)
			answers[n] <- err
		}()
		until(t, func() bool { return len(node.actions("get_value")) == before+n+1 })
	}
	asked := node.actions("get_value")[before:]
	node.mu.Lock()
	socket := node.views[0].socket
	node.mu.Unlock()
	for n, answer := range answers {
		send(socket, fields{"seq": asked[n].integer("seq", 0), "value": 1})
		if err := <-answer; err != nil {
			t.Error(err)
		}
		if n == 0 && c.readBy() != readsGoroutine {
			t.Error("a call waits, and nobody reads")
		}
	}
}
