package distkv

// A client that is closed while calls wait for their next try, and while trees are listed.

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"
)

func TestCallsThatPauseAreClosedAtOnce(t *testing.T) {
	one := &scripted{name: "s1", script: always(errorReply("not_ready"))}
	// The next try would be in half a minute or a whole one.
	slow := RetryPolicy{InitialDelay: time.Minute, DelayMax: time.Minute, TotalDeadline: 5 * time.Minute}
	client := connect(t, Config{Seeds: startScripted(t, one), Retry: slow})
	results := make(chan error, 3)
	for _, call := range []func() error{
		func() error { _, err := client.Get(context.Background(), PathOf("a"), nil); return err },
		func() error { _, err := client.Put(context.Background(), PathOf("a"), 1, nil); return err },
		func() error {
			_, err := client.Get(context.Background(), PathOf("a"), &GetOptions{Read: Freshest})
			return err
		},
	} {
		go func() { results <- call() }()
	}
	until(t, func() bool { return len(one.actions("get_value")) == 2 && len(one.actions("set_value")) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_ = client.Close(ctx)
	for range 3 {
		select {
		case err := <-results:
			wantError(t, err, ErrClosed)
		case <-time.After(20 * time.Second):
			t.Fatal("a call still waits for its next try")
		}
	}
}

// slowTree is a client of a node that sends what comes of a tree.
func slowTree(t *testing.T) (client *Client, path Path, more flowing) {
	more = make(flowing, 8)
	one := &scripted{name: "s1", script: always(more)}
	client = connect(t, Config{Seeds: startScripted(t, one)})
	t.Cleanup(func() { close(more) })
	path = PathOf("a")
	more <- fields{"state": "start"}
	more <- fields{"path": path.MustJoin(1), "value": 1, "tock": 5}
	return client, path, more
}

func TestATreeMayComeToItsEndWhenTheClientIsClosed(t *testing.T) {
	client, path, more := slowTree(t)
	closed := make(chan error, 1)
	var found []Path
	for entry, err := range client.Tree(t.Context(), path, nil) {
		if err != nil {
			t.Fatal(len(found), err)
		}
		if found = append(found, entry.Path); len(found) > 1 {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			closed <- client.Close(ctx)
		}()
		until(t, client.Closed)
		// By now, it would be cut off.
		select {
		case <-closed:
			t.Error("it is closed before the loop has ended")
		case <-time.After(50 * time.Millisecond):
		}
		more <- fields{"path": path.MustJoin(2), "value": 1, "tock": 5}
		more <- fields{"state": "end"}
	}
	if err := <-closed; len(found) != 2 || err != nil {
		t.Error(found, err)
	}
}

func TestATreeThatDoesNotEndIsClosed(t *testing.T) {
	client, path, _ := slowTree(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	count := 0
	for _, err := range client.Tree(t.Context(), path, nil) {
		if count++; count == 2 {
			wantError(t, err, ErrClosed)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		// It waits for this loop itself, no longer than it may.
		started := time.Now()
		if err := client.Close(ctx); err != nil || time.Since(started) > patient {
			t.Error(err, time.Since(started))
		}
	}
	if count != 2 {
		t.Error(count)
	}
}

func TestOfSeveralContextsOfCloseTheOneThatEndsFirstCounts(t *testing.T) {
	one := &scripted{name: "s1", script: always(silence{})}
	client := connect(t, Config{Seeds: startScripted(t, one), Retry: RetryPolicy{TryDeadline: time.Hour, TotalDeadline: time.Hour}})
	result, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Get(context.Background(), PathOf("a"), nil)
		result <- err
	}()
	until(t, func() bool { return len(one.actions("get_value")) == 1 })
	long, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	go func() { closed <- client.Close(long) }()
	until(t, client.Closed)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = client.Close(ended)
	if err := <-result; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// What has come to its end, with an error, is no call any more: neither in the loop's body, nor where somebody still has it.
func TestWhatHasEndedDoesNotHoldUpTheEndOfTheClient(t *testing.T) {
	for _, action := range []string{"get_tree", "cut off", "conflicts"} {
		for _, isPulled := range []bool{false, true} {
			answers := map[string]any{"get_tree": errorReply("denied"), "conflicts": errorReply("denied"),
				"cut off": several{{"state": "start"}, {"path": PathOf("a", 1), "value": 1, "tock": 5}, errorReply("too_slow")}}
			one := &scripted{name: "s1", script: always(answers[action])}
			client := connect(t, Config{Seeds: startScripted(t, one), CloseGrace: time.Hour})
			closed := make(chan error, 1)
			closeIt := func(err error) {
				if err == nil {
					return
				}
				go func() { closed <- client.Close(context.Background()) }()
				wantClosed(t, closed)
			}
			if isPulled {
				next, stop := pulled(t, client, action)
				for err := next(); err == nil; err = next() {
				}
				closeIt(errors.New("it is still there"))
				stop()
				continue
			}
			if action == "conflicts" {
				for _, err := range client.Conflicts(t.Context(), Path{}) {
					closeIt(err)
				}
			} else {
				for _, err := range client.Tree(t.Context(), PathOf("a"), nil) {
					closeIt(err)
				}
			}
			if !client.Closed() {
				t.Error(action, "no error has come")
			}
		}
	}
}

// pulled is one that is read one by one; next is how the next one has failed.
func pulled(t *testing.T, client *Client, action string) (next func() error, stop func()) {
	if action == "conflicts" {
		next, stop := iter.Pull2(client.Conflicts(t.Context(), Path{}))
		return func() error { _, err, _ := next(); return err }, stop
	}
	more, stop := iter.Pull2(client.Tree(t.Context(), PathOf("a"), nil))
	return func() error { _, err, _ := more(); return err }, stop
}

func TestAWatchThatIsNotReadDoesNotHoldUpTheEndWhereThereIsNoFlowControl(t *testing.T) {
	parts := several{{"state": "start"}}
	for number := range 100 {
		parts = append(parts, with(writtenReply, "path", PathOf(int64(number))))
	}
	node := &scripted{name: "s1", script: func(request message) any {
		if request.text("action") != "watch" {
			return silence{}
		}
		return parts
	}, greets: fields{"qlen": 0}}
	// What a node says of a watch at once is waited for no longer than a part of this, behind what nobody reads.
	client := connect(t, Config{Seeds: startScripted(t, node), Retry: RetryPolicy{TryDeadline: time.Second}})
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), PathOf("a"), nil))
	found, _ := watch.now()
	until(t, func() bool {
		found.stream.mu.Lock()
		defer found.stream.mu.Unlock()
		return len(found.stream.queue) == found.stream.capacity
	})
	closed := make(chan error, 1)
	go func() { closed <- client.Close(t.Context()) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it still waits")
	}
}
