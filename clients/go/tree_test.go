package distkv

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Listings of trees, and their deletion, where a node falls silent in their midst.

// listings list a tree, in both ways.
var listings = map[string]func(ctx context.Context, client *Client, path Path, each func()) (int, error){
	"all at once": func(ctx context.Context, client *Client, path Path, _ func()) (int, error) {
		entries, err := client.TreeList(ctx, path, nil)
		return len(entries), err
	},
	"one by one": func(ctx context.Context, client *Client, path Path, each func()) (int, error) {
		count := 0
		for _, err := range client.Tree(ctx, path, nil) {
			if err != nil {
				return count, err
			}
			count++
			each()
		}
		return count, nil
	},
}

// silentAfter is a node that sends so many messages of a tree, and then no more.
func silentAfter(path Path, messages int) func(message) any {
	entry := func(name string) fields { return fields{"path": path.MustJoin(name), "value": 1, "tock": 5} }
	whole := several{{"state": "start"}, entry("a"), entry("b"), {"state": "end"}}
	return always(whole[:messages])
}

func TestAListingIsGivenUpAtASilentNode(t *testing.T) {
	type listed struct {
		name            string
		messages, count int
		err             error
		took            time.Duration
	}
	config := quick()
	config.Retry.TryDeadline = 4 * time.Second // The other node is to answer within that.
	all := make(chan listed, 8)
	for name, list := range listings {
		for messages := range 4 {
			client, one, two, path := pair(t, config, nil)
			one.mu.Lock()
			one.script = silentAfter(path, messages)
			one.mu.Unlock()
			two.mu.Lock()
			two.script = silentAfter(path, 4)
			two.mu.Unlock()
			go func() { // They wait at the same time.
				started := time.Now()
				count, err := list(t.Context(), client, path, func() {})
				all <- listed{name, messages, count, err, time.Since(started)}
			}()
		}
	}
	for range 8 {
		one := <-all
		if one.name == "one by one" && one.messages > 1 {
			// What was told cannot be taken back.
			if wantError(t, one.err, ErrUnavailable); one.count != one.messages-1 {
				t.Errorf("%+v", one)
			}
		} else if one.count != 2 || one.err != nil {
			t.Errorf("%+v", one)
		}
		if one.took > 30*time.Second { // Of the minute that it may take.
			t.Errorf("%+v", one)
		}
	}
}

func TestATreeIsDeletedElsewhereWhereANodeIsSilentIfItMayBe(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client, one, two, path := pair(t, shortTries(), always(silence{}))
		two.mu.Lock()
		two.script = always(fields{"changed": 3, "tock": 1})
		two.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		_, err := client.DeleteTree(ctx, path, nil)
		if failed := wantError(t, err, ErrFateUnknown); failed.Node != "s1" || len(two.actions("delete_tree")) != 0 {
			t.Errorf("%+v", failed)
		}
		where := client.topology.routing().byName[one.name].address
		until(t, func() bool { return !client.pool.isFailing(where) })
		if count, err := client.DeleteTree(ctx, path, &DeleteTreeOptions{AgainIfUnknown: true}); count != 3 || err != nil {
			t.Error(count, err)
		}
		if took := time.Since(started); took > 30*time.Second || len(one.actions("delete_tree")) != 2 { // Of the minute.
			t.Error(took)
		}
	})
}

// A deletion may take longer than a try, while its node answers that it is alive.
func TestATreeWhoseDeletionTakesLongIsDeletedOnce(t *testing.T) {
	config := quick()
	config.Retry.TryDeadline = 4 * time.Second
	var deleting sync.WaitGroup
	for _, options := range []*DeleteTreeOptions{nil, {AgainIfUnknown: true}} {
		client, one, two, path := pair(t, config, nil)
		reply := make(later)
		one.mu.Lock()
		one.script = func(request message) any {
			if request.text("action") == "delete_tree" {
				return reply
			}
			return fields{"value": nil}
		}
		one.mu.Unlock()
		var isOver atomic.Bool
		deleting.Go(func() {
			count, err := client.DeleteTree(t.Context(), path, options)
			isOver.Store(true)
			if count != 7 || err != nil {
				t.Error(count, err)
			}
			if begun := len(one.actions("delete_tree")) + len(two.actions("delete_tree")); begun != 1 {
				t.Error("deletions that were begun:", begun)
			}
		})
		deleting.Go(func() { // Both take their time at once.
			defer close(reply)
			// After three questions, more time has passed than a try has.
			for !isOver.Load() && len(one.actions("get_value")) < 3 {
				time.Sleep(5 * time.Millisecond)
			}
			if !isOver.Load() {
				reply <- fields{"changed": 7, "tock": 1}
			}
		})
	}
	deleting.Wait()
}

func TestTheTimeInWhichAProgramReadsNothingOfATreeDoesNotCount(t *testing.T) {
	client := sharedClient(t)
	path := base()
	const entries = 300 // More than the node sends without an acknowledgement.
	for number := range entries {
		put(t, client, path.MustJoin(number), number, nil)
	}
	slow := connect(t, Config{Seeds: shared(t), Retry: RetryPolicy{TryDeadline: 4 * time.Second}})
	isFirst := true
	count, err := listings["one by one"](t.Context(), slow, path, func() {
		if isFirst {
			isFirst = false
			time.Sleep(5 * time.Second) // A program's own work.
		}
	})
	if count != entries || err != nil {
		t.Error(count, err)
	}
}

// flow sends so many entries of a tree that a listing takes as long as `lasts`, or until the listing has ended.
func flow(path Path, entries flowing, lasts time.Duration, ended <-chan struct{}) int {
	defer close(entries)
	entries <- fields{"state": "start"}
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	started := time.Now()
	for number := 0; ; number++ {
		select {
		case <-ended:
			return number
		case <-pause.C:
		}
		if time.Since(started) > lasts {
			entries <- fields{"state": "end"}
			return number
		}
		entries <- fields{"path": path.MustJoin(number), "value": 1, "tock": 5}
	}
}

func TestAListingThatKeepsComingMayTakeLongerThanACall(t *testing.T) {
	config := quick()
	// So long may a call take, or a node be silent; a listing takes longer.
	const short, long = 5 * time.Second, 7 * time.Second
	config.Retry.TryDeadline, config.Retry.TotalDeadline = short, short
	client, one, _, path := pair(t, config, nil)
	sent := make(chan int, 10)
	one.mu.Lock()
	one.script = func(request message) any {
		if request.text("action") != "get_tree" {
			return fields{"value": nil}
		}
		entries := make(flowing)
		go func() { sent <- flow(path, entries, long, t.Context().Done()) }()
		return entries
	}
	one.mu.Unlock()
	listed := make(chan int, len(listings))
	for name, list := range listings {
		go func() {
			count, err := list(t.Context(), client, path, func() {})
			if err != nil || count == 0 {
				t.Errorf("%s: %d entries, %v", name, count, err)
			}
			listed <- count
		}()
	}
	count := 0
	for range listings {
		count += <-listed
	}
	if begun := len(one.actions("get_tree")); begun != len(listings) {
		t.Fatal("begun:", begun)
	}
	for range listings {
		count -= <-sent
	}
	if count != 0 {
		t.Error("more were sent than listed:", -count)
	}
}

func TestAListThatKeepsComingEndsWithItsContext(t *testing.T) {
	virtually(t, func(t *testing.T) {
		entries := make(flowing)
		client, _, _, path := pair(t, shortTries(), always(entries))
		ended, flowed := make(chan struct{}), make(chan int, 1)
		go func() { flowed <- flow(path, entries, time.Minute, ended) }()
		const little = 405 * time.Millisecond // No entry comes at its end.
		ctx, cancel := context.WithTimeout(t.Context(), little)
		defer cancel()
		started := time.Now()
		_, err := client.TreeList(ctx, path, nil)
		took := time.Since(started)
		close(ended)
		<-flowed
		if wantError(t, err, ErrUnavailable); took != little { // Of the minute that there are entries.
			t.Error(took)
		}
	})
}

func TestAListingStillEndsWithItsTime(t *testing.T) {
	client, one, two, path := pair(t, shortTries(), nil)
	for _, node := range []*scripted{one, two} {
		node.mu.Lock()
		node.script = silentAfter(path, 2)
		node.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := client.TreeList(ctx, path, nil)
	if failed := wantError(t, err, ErrUnavailable); failed.Attempts < 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", failed)
	}
}
