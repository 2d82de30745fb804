package distkv

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// collect is events up to one for which this holds, that one included.
func collect(t testing.TB, w *Watch, isLast func(Event) bool) []Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []Event
	for {
		event, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%v; so far: %v", err, events)
		}
		if events = append(events, event); isLast(event) {
			return events
		}
	}
}

func is[T Event](event Event) bool {
	_, ok := event.(T)
	return ok
}

func openWatch(t testing.TB, client *Client, path Path, options *WatchOptions) *Watch {
	t.Helper()
	w, err := client.OpenWatch(t.Context(), path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// changes are those among events, by path: the value, or nil where it was deleted.
func changes(t testing.TB, events []Event) (paths []Path, values []any) {
	t.Helper()
	for _, event := range events {
		if change, ok := event.(Change); ok {
			paths = append(paths, change.Path)
			if change.Deleted {
				values = append(values, "deleted")
				continue
			}
			values = append(values, must[any](t)(change.Value.Any()))
		}
	}
	return paths, values
}

func TestTheStateComesFirstThenChanges(t *testing.T) {
	client := sharedClient(t)
	path := base()
	first := put(t, client, path.MustJoin("a"), 1, nil)
	w := openWatch(t, client, path, nil)
	events := collect(t, w, is[UpToDate])
	want := []Event{Change{path.MustJoin("a"), Value{1}, false, first.Version}, UpToDate{}}
	if !reflect.DeepEqual(events, want) {
		t.Error(events)
	}
	put(t, client, path.MustJoin("b"), nil, nil)
	if _, err := client.Delete(t.Context(), path.MustJoin("a"), nil); err != nil {
		t.Fatal(err)
	}
	events = collect(t, w, func(event Event) bool { return event.(Change).Deleted })
	if paths, values := changes(t, events); !reflect.DeepEqual(values, []any{nil, "deleted"}) || paths[1] != path.MustJoin("a") {
		t.Error(events)
	}
}

func TestWithoutFetchOnlyChangesCome(t *testing.T) {
	client := sharedClient(t)
	path := base()
	put(t, client, path.MustJoin("a"), 1, nil)
	w := openWatch(t, client, path, &WatchOptions{NoFetch: true})
	events := collect(t, w, is[UpToDate])
	put(t, client, path.MustJoin("b"), 2, nil)
	events = append(events, collect(t, w, is[Change])...)
	if paths, _ := changes(t, events); len(events) != 2 || paths[0] != path.MustJoin("b") {
		t.Error(events)
	}
}

// What changed between the two states is known to nobody.
func TestAStateThatIsNotWantedAndIsCutOffMakesTheWatchStartOver(t *testing.T) {
	path := PathOf("a")
	version := func(name string, tick int, value any) fields {
		told := fields{"path": PathOf("a", name), "tock": tick, "chain": fields{"node": "x~7", "tick": tick, "prev": nil}}
		if value != nil {
			told["value"] = value
		}
		return told
	}
	cut := several{{"state": "start"}, version("x", 1, "old"), version("y", 2, "old"), nil}
	whole := several{{"state": "start"}, version("x", 3, "new"), version("y", 4, nil), version("z", 5, "new"), {"state": "uptodate"}}
	for name, row := range map[string]struct {
		script func(message) any
		want   []any
	}{
		"cut off":           {onceThen(cut, whole), []any{Restarted{}, "new", "deleted", "new", UpToDate{}}},
		"before it began":   {onceThen(several{{"state": "start"}, nil}, whole), []any{Restarted{}, "new", "deleted", "new", UpToDate{}}},
		"it has come whole": {onceThen(append(slices.Clone(cut[:3]), fields{"state": "uptodate"}, nil), whole), []any{UpToDate{}, "new", "deleted", "new", Resumed{"s1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &scripted{name: "s1", script: row.script}
			client := connect(t, Config{Seeds: startScripted(t, node), Retry: RetryPolicy{InitialDelay: time.Millisecond}})
			w := openWatch(t, client, path, &WatchOptions{NoFetch: true})
			var told []any
			for len(told) < len(row.want) {
				event := collect(t, w, func(Event) bool { return true })[0]
				if _, values := changes(t, []Event{event}); len(values) > 0 {
					told = append(told, values[0])
				} else {
					told = append(told, event)
				}
			}
			if !reflect.DeepEqual(told, row.want) {
				t.Error(told)
			}
		})
	}
}

func TestAWaitThatIsCancelledAgainAndAgainMissesNothing(t *testing.T) {
	client := sharedClient(t)
	path := base()
	w := openWatch(t, client, path, nil)
	var writing sync.WaitGroup
	writing.Go(func() {
		for number := range 100 {
			_, _ = client.Put(t.Context(), path.MustJoin("n"), number, nil)
		}
	})
	var seen []int
	for len(seen) == 0 || seen[len(seen)-1] != 99 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
		event, err := w.Next(ctx)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if change, ok := event.(Change); ok {
			seen = append(seen, must[int](t)(As[int](change.Value)))
		}
	}
	writing.Wait()
	if len(seen) != 100 || !slices.IsSorted(seen) {
		t.Error(seen)
	}
}

func TestAWatchGoesOnWhenItsNodeIsKilledUnderWrites(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds(), WatchPatience: patient})
	allLive(t, client, 3)
	w := openWatch(t, client, MustPath("w"), nil)
	var stop atomic.Bool
	last := make([]int, 4)
	var writing sync.WaitGroup
	for writer := range last {
		writing.Go(func() {
			for number := 1; !stop.Load(); number++ {
				if _, err := client.Put(t.Context(), PathOf("w", writer), number, &PutOptions{Copies: 1}); err != nil {
					t.Error(err)
				}
				last[writer] = number
			}
		})
	}
	count := 0
	events := collect(t, w, func(Event) bool { count++; return count == 50 })
	nodes.ByName(w.Node()).Kill()
	events = append(events, collect(t, w, func(event Event) bool { return is[Resumed](event) || is[Restarted](event) })...)
	count = 0
	events = append(events, collect(t, w, func(Event) bool { count++; return count == 50 })...)
	stop.Store(true)
	writing.Wait()
	seen := map[Path][]int{}
	note := func(event Event) {
		if change, ok := event.(Change); ok {
			seen[change.Path] = append(seen[change.Path], must[int](t)(As[int](change.Value)))
		}
	}
	for _, event := range events {
		note(event)
		if is[Restarted](event) {
			t.Error("it started over")
		}
	}
	for writer, number := range last {
		for path := PathOf("w", writer); len(seen[path]) == 0 || seen[path][len(seen[path])-1] != number; {
			note(collect(t, w, func(Event) bool { return true })[0])
		}
	}
	for path, numbers := range seen {
		if !slices.IsSorted(numbers) || len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			t.Error("not in order, or twice:", path, numbers)
		}
	}
	if watches := client.Stats().Watches; watches.Lost < 1 || watches.Resumed < 1 || watches.Restarted != 0 {
		t.Error(watches)
	}
}

func TestWhatWasDeletedMeanwhileIsTold(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds()})
	other := connect(t, Config{Seeds: nodes.Seeds(), Retry: RetryPolicy{TryDeadline: 2 * time.Second}})
	allLive(t, client, 3)
	path := MustPath("d")
	for _, name := range []string{"a", "b", "c"} {
		put(t, client, path.MustJoin(name), 1, &PutOptions{Copies: 2})
	}
	w := openWatch(t, client, path, nil)
	collect(t, w, is[UpToDate])
	victim := nodes.ByName(w.Node())
	victim.Freeze()
	// The watch hears nothing of it at its node.
	// Nor at another one that has not heard of it itself.
	_, err := other.Delete(t.Context(), path.MustJoin("b"), &DeleteOptions{Copies: 1})
	put(t, other, path.MustJoin("c"), 2, &PutOptions{Copies: 1})
	victim.Kill()
	if err != nil {
		t.Fatal(err)
	}
	paths, values := changes(t, collect(t, w, is[Resumed]))
	found := map[string]any{}
	for i, path := range paths {
		found[path.String()] = values[i]
	}
	if !reflect.DeepEqual(found, map[string]any{"d.b": "deleted", "d.c": int64(2)}) {
		t.Error(found)
	}
}

func TestAWatchThatRemembersTooLittleStartsOverAndSaysSo(t *testing.T) {
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds(), WatchPathsMax: 2})
	allLive(t, client, 3)
	path := MustPath("m")
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, client, path.MustJoin(name), 1, &PutOptions{Copies: 2})
	}
	w := openWatch(t, client, path, nil)
	collect(t, w, is[UpToDate])
	nodes.ByName(w.Node()).Kill()
	events := collect(t, w, is[UpToDate])
	if paths, _ := changes(t, events); !is[Restarted](events[0]) || len(paths) != 4 || paths[3] != path.MustJoin("d") {
		t.Error(events)
	}
}

func TestAnUnreadWatchIsBoundedAndStopsNobody(t *testing.T) {
	client := sharedClient(t)
	path := base()
	w := openWatch(t, client, path, nil)
	collect(t, w, is[UpToDate])
	for number := range 2000 {
		put(t, client, path.MustJoin("n"), number, nil)
	}
	from, _ := w.now()
	from.stream.mu.Lock()
	queued := len(from.stream.queue)
	from.stream.mu.Unlock()
	if queued > from.stream.capacity {
		t.Error(queued)
	}
	if found := get[int](t, client, path.MustJoin("n")); found != 1999 {
		t.Error(found)
	}
	var seen []int
	collect(t, w, func(event Event) bool {
		change, ok := event.(Change)
		if ok {
			seen = append(seen, must[int](t)(As[int](change.Value)))
		}
		return ok && seen[len(seen)-1] == 1999
	})
	if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
		t.Error(seen)
	}
}

func TestAWatchLeftByBreakIsStoppedAtTheNode(t *testing.T) {
	client := sharedClient(t)
	path := base()
	put(t, client, path, 1, nil)
	before := client.Stats().Pool.OpenRequests
	for event, err := range client.Watch(t.Context(), path, nil) {
		if err != nil || !is[Change](event) {
			t.Error(event, err)
		}
		break
	}
	until(t, func() bool { return client.Stats().Pool.OpenRequests <= before })
}

func TestAWatchEndsWithItsClientItsContextOrItsEnd(t *testing.T) {
	before := footprint()
	client, err := Connect(t.Context(), Config{Seeds: shared(t)})
	if err != nil {
		t.Fatal(err)
	}
	path := base()
	w, left := openWatch(t, client, path, nil), openWatch(t, client, path, nil)
	collect(t, w, is[UpToDate])
	collect(t, left, is[UpToDate])
	waiting := make(chan error, 3)
	for _, one := range []*Watch{w, left} {
		go func() {
			_, err := one.Next(context.Background())
			waiting <- err
		}()
	}
	left.Close()
	wantError(t, <-waiting, ErrClosed)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for event, err := range client.Watch(ctx, path, nil) {
			if err != nil {
				waiting <- err
			} else if is[UpToDate](event) {
				cancel()
			}
		}
	}()
	wantError(t, <-waiting, context.Canceled)
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wantError(t, <-waiting, ErrClosed)
	_, err = client.Get(t.Context(), path, nil)
	wantError(t, err, ErrClosed)
	_, err = client.OpenWatch(t.Context(), path, nil)
	wantError(t, err, ErrClosed)
	nothingLeft(t, before)
}
