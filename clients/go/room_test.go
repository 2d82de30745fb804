package distkv

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// How many streams there is room for, and that they leave room for calls.

// roomOfOne is how many streams there may be on one connection, of the 4,096 requests that may be open on it.
const roomOfOne = 3840

// roomPatience is the time of calls here: who is told in half of it has not tried until the deadline.
const roomPatience = 20 * time.Second

func roomConfig(t *testing.T, connections int, nodes ...*scripted) Config {
	return Config{Seeds: startScripted(t, nodes...), Pool: PoolConfig{ConnectionsPerNode: connections, ProbeAfter: time.Hour},
		Retry: RetryPolicy{InitialDelay: time.Millisecond, TryDeadline: roomPatience / 2, TotalDeadline: roomPatience}}
}

// endlessStreams answers streams with ones that go on, and does the rest.
func endlessStreams(request message) any {
	switch request.text("action") {
	case "watch", "msg_monitor", "get_tree":
		return several{{"state": "start"}}
	}
	return with(writtenReply, "value", 1)
}

// fillRoom opens watches until there is no room, and tells how many there are, and the error.
func fillRoom(t *testing.T, client *Client, path Path) (int, *Error) {
	t.Helper()
	for count := range 10 * openMax {
		ctx, cancel := context.WithTimeout(t.Context(), roomPatience/2)
		watch, err := client.OpenWatch(ctx, path, nil)
		isInTime := ctx.Err() == nil
		cancel()
		if err != nil {
			var found *Error
			if !errors.As(err, &found) || !errors.Is(err, ErrUnavailable) || !isInTime {
				t.Fatalf("watch %d: %v", count, err)
			}
			return count, found
		}
		t.Cleanup(watch.Close)
	}
	t.Fatal("there is room without end")
	return 0, nil
}

func TestStreamsLeaveRoomForCallsAndWhoFindsNoneIsToldTheSettingAtOnce(t *testing.T) {
	one := &scripted{name: "s1", script: endlessStreams}
	client := connect(t, roomConfig(t, 2, one))
	first, err := client.OpenWatch(t.Context(), PathOf("b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	count, full := fillRoom(t, client, PathOf("a"))
	if count != 2*roomOfOne-2 {
		t.Errorf("%d watches, and the view and another one: is that all that there is room for?", count)
	}
	if full.Code != "too_many_streams" || full.Attempts != 1 || full.Fate != NotDone {
		t.Errorf("%s, %d tries, %v", full.Code, full.Attempts, full.Fate)
	}
	for _, told := range []string{"7680 watches", "the 2 connections", "at most 3840 on each", "Pool.ConnectionsPerNode is 2, and may be up to 16"} {
		if !strings.Contains(full.Error(), told) {
			t.Errorf("%q lacks %q", full, told)
		}
	}
	if strings.Contains(full.Error(), "in time") {
		t.Errorf("%q reads as if nodes were down", full)
	}
	if _, err := client.OpenMonitor(t.Context(), PathOf("a")); err == nil || !strings.Contains(err.Error(), "ConnectionsPerNode") {
		t.Error("a monitor:", err)
	}
	for _, err := range client.Tree(t.Context(), PathOf("a"), nil) {
		if err == nil || !strings.Contains(err.Error(), "ConnectionsPerNode") {
			t.Error("a tree:", err)
		}
	}
	failures := client.Stats().Router.Nodes["s1"].Failures
	for range 3 {
		if _, err := client.Put(t.Context(), PathOf("a"), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	if found := client.Stats().Router.Nodes["s1"].Failures; found != failures {
		t.Error(found-failures, "tries of calls have failed")
	}
	// What the client needs for itself takes a place that is kept for calls.
	c := client.pool.ready(place{address: first.opened.address}, forCall)
	if c == nil {
		c, _ = client.pool.get(t.Context(), first.opened.address, now()+roomPatience)
	}
	own, failed := c.ownStream(t.Context(), newBody("watch_cluster").head(), exactly(now()+roomPatience))
	if failed != nil {
		t.Fatal(failed)
	}
	own.close()
	// A stream that ends leaves its place.
	first.Close()
	again, err := client.OpenWatch(t.Context(), PathOf("b"), nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestWhoFindsAConnectionFullWaitsForTheNextOne(t *testing.T) {
	one := &scripted{name: "s1", script: endlessStreams}
	config := roomConfig(t, 3, one)
	config.Pool.BusyAt = 10 * openMax // There is no second one before there must be.
	client := connect(t, config)
	for range 2*roomOfOne + 1 {
		watch, err := client.OpenWatch(t.Context(), PathOf("a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
	}
	stats := client.Stats()
	if failures := stats.Router.Nodes["s1"].Failures; failures != 0 || stats.Pool.Connections != 3 {
		t.Errorf("%d tries have failed; %d connections", failures, stats.Pool.Connections)
	}
}

func TestAStreamGoesToAnotherNodeWhereOneHasNoRoom(t *testing.T) {
	nodes := []*scripted{{name: "s1", script: endlessStreams}, {name: "s2", script: endlessStreams}, {name: "s3", script: endlessStreams}}
	client := connect(t, roomConfig(t, 1, nodes...))
	count, full := fillRoom(t, client, preferredPath(t, client, "s1"))
	if count != 3*roomOfOne-1 || full.Attempts != 3 || full.Code != "too_many_streams" {
		t.Errorf("%d watches; %s, %d tries", count, full.Code, full.Attempts)
	}
}

func TestWhoCannotBeReachedIsNoReasonToWaitForRoom(t *testing.T) {
	one, two := &scripted{name: "s1", script: endlessStreams}, &scripted{name: "s2", script: endlessStreams}
	client := connect(t, roomConfig(t, 1, one, two))
	path := preferredPath(t, client, "s1")
	two.stop()
	count, full := fillRoom(t, client, path)
	if count < roomOfOne-1 || count > roomOfOne || full.Code != "too_many_streams" || full.Node != "s1" {
		t.Errorf("%d watches; %s at %s", count, full.Code, full.Node)
	}
}

func TestWhoMayHaveRoomIsAskedAgain(t *testing.T) {
	var isReady later = make(chan fields)
	one := &scripted{name: "s1", script: endlessStreams}
	two := &scripted{name: "s2", script: func(request message) any {
		select {
		case <-isReady:
			return endlessStreams(request)
		default:
			return errorReply("not_ready")
		}
	}}
	client := connect(t, roomConfig(t, 1, one, two))
	path := preferredPath(t, client, "s1")
	for range roomOfOne - 1 {
		watch, err := client.OpenWatch(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
	}
	var opening sync.WaitGroup
	for range 2 {
		opening.Go(func() {
			watch, err := client.OpenWatch(t.Context(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer watch.Close()
		})
	}
	until(t, func() bool { return len(two.actions("watch")) > 2 })
	close(isReady)
	opening.Wait()
}

// isQuestion tells what the client asks of its own accord: the callers' requests are about other paths than the root.
func isQuestion(request message) bool {
	return request.text("action") == "get_value" && string(request.get("path")) == string(Path{}.appendExt(nil))
}

// fullOfCalls is a client whose one connection to s1 is full of calls, which s1 does not answer; it is asked whether it is alive, and
// answers that so. s2 answers all. The function tells how many questions have come there.
func fullOfCalls(t *testing.T, answer any, patience time.Duration) (client *Client, its *conn, questions func() int) {
	one := &scripted{name: "s1", script: func(request message) any {
		if isQuestion(request) {
			return answer
		}
		return silence{}
	}}
	two := &scripted{name: "s2", script: func(message) any { return fields{"value": 2, "tock": 1} }}
	config := roomConfig(t, 1, one, two)
	config.Retry.TryDeadline, config.Retry.TotalDeadline, config.Pool.ProbeTimeout = 2*roomPatience, 3*roomPatience, patience
	client = connect(t, config)
	path := preferredPath(t, client, "s1")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	its, failed := client.pool.get(ctx, client.topology.routing().byName["s1"].address, now()+roomPatience)
	if failed != nil {
		t.Fatal(failed)
	}
	for range openMax {
		go func() { _, _ = client.Get(ctx, path, nil) }()
	}
	// Where the view has a place, one of them goes to s2.
	until(t, func() bool { return its.load.Load() == openMax })
	client.pool.probe(its.address)
	return client, its, func() int {
		found := 0
		for _, request := range one.actions("get_value") {
			if isQuestion(request) {
				found++
			}
		}
		return found
	}
}

func TestASilentNodeIsGivenUpThoughItsConnectionIsFull(t *testing.T) {
	client, its, questions := fullOfCalls(t, silence{}, second/2)
	select {
	case <-its.done:
	case <-time.After(roomPatience):
		t.Fatal("it is not given up")
	}
	if stats := client.Stats().Pool; stats.SilentClosed == 0 || questions() == 0 {
		t.Errorf("%d questions; %+v", questions(), stats)
	}
}

func TestOneThatSaysThatItIsAliveKeepsAConnectionThatIsFull(t *testing.T) {
	client, its, questions := fullOfCalls(t, errorReply("denied"), roomPatience)
	until(t, func() bool { return questions() == 1 && !its.isProbed.Load() })
	if stats := client.Stats().Pool; its.ended.Load() != nil || stats.SilentClosed != 0 {
		t.Errorf("%v; %+v", its.ended.Load(), stats)
	}
}
