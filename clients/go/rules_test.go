package distkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The rules of docs/client-behaviour.md against scripted nodes: classes, tries, fates, deadlines, garbage.

func TestFinalCodesAreToldAfterOneTry(t *testing.T) {
	all := []string{"from_the_future", ""}
	for code, kind := range codes {
		if kind == classFinal {
			all = append(all, code)
		}
	}
	slices.Sort(all)
	for _, code := range all {
		t.Run("code "+code, func(t *testing.T) {
			client, _, two, path := pair(t, quick(), always(errorReply(code)))
			_, readErr := client.Get(t.Context(), path, nil)
			_, writeErr := client.Put(t.Context(), path, 1, nil)
			for _, err := range []error{readErr, writeErr} {
				failed := wantError(t, err, ErrRefused)
				if failed.Code != code || failed.Attempts != 1 || failed.Node != "s1" || failed.Fate != NotDone {
					t.Errorf("%+v", failed)
				}
				if kind := refusals[code]; kind != nil && !errors.Is(err, kind) {
					t.Errorf("%v is no %q", err, kind)
				}
			}
			if len(two.actions("get_value"))+len(two.actions("set_value")) != 0 {
				t.Error("another node was asked")
			}
		})
	}
}

func TestWhatOneNodeCannotDoAnotherDoes(t *testing.T) {
	for _, code := range []string{"not_ready", "read_only", "no_event", "too_many", "too_slow", "too_late"} {
		t.Run(code, func(t *testing.T) {
			client, _, _, path := pair(t, quick(), always(errorReply(code)))
			if found := get[string](t, client, path); found != "two" {
				t.Error(found)
			}
			written := put(t, client, path, 1, &PutOptions{WriteID: WriteIDOf("x")})
			if written.Node != "s2" || written.Attempts != 2 {
				t.Errorf("%+v", written)
			}
		})
	}
}

func TestAClassForEachCodeThatANodeHas(t *testing.T) {
	if len(codes) != 28 {
		t.Error(len(codes))
	}
	var policy RetryPolicy
	policy.fill()
	for kind := classUnavailable; kind <= classFinal; kind++ {
		for what := reading; what <= unguarded; what++ {
			want := tryAgain
			if kind == classFinal {
				want = giveUpFinal
			} else if kind.isUncertain() && what == unguarded {
				want = giveUpFate
			}
			found, delay := policy.decide(kind, 1, 0, policy.TotalDeadline, what, 0.5)
			if found != want || (found == tryAgain && delay != policy.delay(1, 0.5)) {
				t.Errorf("%v, %v: %v", kind, what, found)
			}
		}
	}
	if found, _ := policy.decide(classUnavailable, 1, 9999*time.Millisecond, policy.TotalDeadline, reading, 1); found != giveUpDeadline {
		t.Error("a try begins that would have no time")
	}
	for failures, want := range map[int]time.Duration{1: 10, 2: 20, 8: 1000, 99: 1000} {
		if found := backoff(10*time.Millisecond, 2, time.Second, failures, 1); found != want*time.Millisecond {
			t.Error(failures, found)
		}
	}
	if found := backoff(10*time.Millisecond, 2, time.Second, 1, 0); found != 5*time.Millisecond {
		t.Error(found)
	}
}

func TestUnknownFateIsAskedAgainAtTheSameNodeThenUnconfirmed(t *testing.T) {
	config := Config{Retry: RetryPolicy{InitialDelay: time.Millisecond, AttemptsMax: 4}}
	client, one, two, path := pair(t, config, always(errorReply("unknown_fate")))
	_, err := client.Put(t.Context(), path, 1, &PutOptions{Copies: 1})
	failed := wantError(t, err, ErrFateUnknown)
	if failed.Fate != Unconfirmed || failed.Code != "unknown_fate" || failed.Attempts != 4 {
		t.Errorf("%+v", failed)
	}
	ids := map[string]bool{}
	for _, request := range one.actions("set_value") {
		ids[string(request.get("wid"))] = true
	}
	if len(ids) != 1 || len(two.actions("set_value")) != 0 {
		t.Error(ids)
	}
	_, err = client.Put(t.Context(), path, 1, &PutOptions{Copies: 1, WriteID: NoWriteID})
	if failed = wantError(t, err, ErrFateUnknown); failed.Attempts != 1 {
		t.Errorf("%+v", failed)
	}
}

func TestWhatANodeSaidCountsMoreThanThatItsLastAnswerIsCutOff(t *testing.T) {
	reply := with(errorReply("unknown_fate"), "error", "only 1 of 2 peers have it")
	client, _, _, path := pair(t, Config{Retry: RetryPolicy{InitialDelay: time.Millisecond}}, onceThen(reply, silence{}))
	_, err := client.Put(t.Context(), path, 1, &PutOptions{Copies: 2, Timeout: 3 * time.Second})
	failed := wantError(t, err, ErrFateUnknown)
	if failed.Fate != Unconfirmed || failed.Code != "unknown_fate" || failed.Node != "s1" || !strings.Contains(err.Error(), "only 1 of 2") {
		t.Errorf("%+v", failed)
	}
	// The node tells only how long its own last try was.
	if !strings.Contains(err.Error(), "not confirmed within ") {
		t.Error(err)
	}
}

func TestUncertainCodesWithAndWithoutAnID(t *testing.T) {
	for code, isMade := range map[string]bool{"storage_failed": true, "not_ready": true, "internal": false} {
		reply := errorReply(code)
		reply["made"] = isMade
		client, _, _, path := pair(t, quick(), always(reply))
		if written := put(t, client, path, 1, nil); written.Node != "s2" || written.Repeated != Maybe {
			t.Errorf("%+v", written)
		}
		_, err := client.Put(t.Context(), path, 1, &PutOptions{WriteID: NoWriteID})
		if failed := wantError(t, err, ErrFateUnknown); failed.Code != code || failed.Fate != Unknown || failed.Attempts != 1 {
			t.Errorf("%+v", failed)
		}
	}
}

func TestAMapWithAnArrayAsKeyBreaksNothing(t *testing.T) {
	one := &scripted{name: "s1", script: func(request message) any {
		return append(garbage("\x82\xa5value\x81\x92\x01\x02\x03\xa3seq"), byte(request.integer("seq", 0)))
	}}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	for range 2 {
		found := get[any](t, client, PathOf("a"))
		if want := (Map{{[]any{int64(1), int64(2)}, int64(3)}}); !reflect.DeepEqual(found, want) {
			t.Errorf("%#v", found)
		}
	}
	if client.Stats().Pool.Connections != 1 {
		t.Error("the connection was lost")
	}
}

func TestDeadlines(t *testing.T) {
	config := quick()
	config.Retry.TryDeadline, config.Retry.TotalDeadline = 150*time.Millisecond, time.Second
	config.Pool.ProbeTimeout = 30 * time.Second
	one := &scripted{name: "s1", script: always(silence{})}
	config.Seeds = startScripted(t, one)
	client := connect(t, config)
	for _, row := range []struct {
		context, timeout, least time.Duration
	}{
		{100 * time.Millisecond, 0, 60 * time.Millisecond},
		{0, 100 * time.Millisecond, 80 * time.Millisecond},
		{0, 0, 800 * time.Millisecond},
	} {
		ctx, cancel, started := t.Context(), func() {}, time.Now()
		if row.context > 0 {
			ctx, cancel = context.WithTimeout(ctx, row.context)
		}
		_, err := client.Get(ctx, PathOf("a"), &GetOptions{Timeout: row.timeout})
		cancel()
		if took := time.Since(started); took < row.least || took > patient {
			t.Errorf("it took %v", took)
		}
		if failed := wantError(t, err, ErrUnavailable); failed.Code != "unavailable" || failed.Fate != NotDone {
			t.Errorf("%+v", failed)
		}
		if errors.Is(err, context.DeadlineExceeded) != (row.context > 0) {
			t.Errorf("whose time it was: %v", err)
		}
	}
	_, err := client.Put(t.Context(), PathOf("a"), 1, &PutOptions{Timeout: 3 * time.Second})
	if failed := wantError(t, err, ErrFateUnknown); failed.Code != "fate_unknown" || failed.Fate != Unknown {
		t.Errorf("%+v", failed)
	}
}

func TestAttemptsMax(t *testing.T) {
	one := &scripted{name: "s1", script: always(errorReply("not_ready"))}
	two := &scripted{name: "s2", script: always(errorReply("not_ready"))}
	client := connect(t, Config{Seeds: startScripted(t, one, two), Retry: RetryPolicy{InitialDelay: time.Millisecond, AttemptsMax: 3}})
	_, err := client.Get(t.Context(), PathOf("a"), nil)
	if failed := wantError(t, err, ErrUnavailable); failed.Attempts != 3 {
		t.Errorf("%+v", failed)
	}
}

func TestAPassingErrorInABatchMovesTheWholeBatch(t *testing.T) {
	client, _, two, path := pair(t, quick(), always(fields{"results": []any{writtenReply, errorReply("not_ready")}}))
	two.mu.Lock()
	two.script = always(fields{"results": []any{writtenReply, errorReply("already_exists")}})
	two.mu.Unlock()
	replies, err := client.Batch().Put(path, 1, nil).Put(path, 2, &PutOptions{IfNew: true}).Run(t.Context(), nil)
	if err != nil || replies[0].Written.Node != "s2" || !errors.Is(replies[1].Err, ErrExists) {
		t.Error(replies, err)
	}
	if replies[0].Written.Repeated != Maybe {
		t.Errorf("the first node has made it: %+v", replies[0].Written)
	}
}

func TestAnOperationOfABatchTellsWhetherItMayHaveBeenDone(t *testing.T) {
	made := errorReply("storage_failed")
	made["made"] = true
	client, _, _, path := pair(t, quick(), always(fields{"results": []any{errorReply("storage_failed"), made}}))
	noID := &PutOptions{WriteID: NoWriteID}
	replies, err := client.Batch().Put(path, 1, noID).Put(path, 2, noID).Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for index, fate := range []Fate{NotDone, Unknown} {
		if failed := wantError(t, replies[index].Err, ErrRefused); failed.Fate != fate {
			t.Errorf("%d: %+v", index, failed)
		}
	}
}

func TestAServerOfTheOriginalLeavesTheSeedsAndItsIDsAreNotTrusted(t *testing.T) {
	one := &scripted{name: "old", isOld: true, script: onceThen(reset{}, writtenReply)}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	if view := client.ClusterView(); !client.Stats().Topology.SeedsOnly || len(view.Nodes) != 1 || view.Nodes[0].Name != "old" {
		t.Error(view)
	}
	_, err := client.Put(t.Context(), PathOf("a"), 1, nil)
	wantError(t, err, ErrFateUnknown)
	if written := put(t, client, PathOf("a"), 1, nil); !written.Changed {
		t.Errorf("%+v", written)
	}
	_, err = client.Get(t.Context(), PathOf("a"), &GetOptions{Read: Freshest})
	wantError(t, err, ErrUsage)
}

func TestClientsTakeAPathToOneNodeAlsoWithOneDead(t *testing.T) {
	nodes := []*scripted{{name: "s0"}, {name: "s1"}, {name: "s2"}}
	seeds := startScripted(t, nodes...)
	one, two := connect(t, Config{Seeds: seeds}), connect(t, Config{Seeds: seeds[1:2]})
	before, names := map[Path]string{}, map[string]bool{}
	for n := range 60 {
		path := PathOf(fmt.Sprintf("y%d", n))
		before[path] = one.Preferred(path)
		names[before[path]] = true
		if two.Preferred(path) != before[path] {
			t.Error(path)
		}
	}
	if len(names) != 3 {
		t.Error(names)
	}
	for _, node := range nodes {
		node.tellDown("s2")
	}
	for path, name := range before {
		until(t, func() bool { return one.Preferred(path) != "s2" && two.Preferred(path) == one.Preferred(path) })
		if name != "s2" && one.Preferred(path) != name {
			t.Error("only the shards of the dead one move")
		}
	}
}

func TestOwnWritesAreReadWhereTheyWereMade(t *testing.T) {
	config := quick()
	config.OwnWritePatience = 200 * time.Millisecond
	client, _, two, path := pair(t, config, onceThen(with(writtenReply, "tock", 9), errorReply("not_ready")))
	two.mu.Lock()
	two.script = always(fields{"value": "old", "tock": 1, "chain": fields{"node": "x~1", "tick": 1}})
	two.mu.Unlock()
	put(t, client, path, "new", nil)
	started := time.Now()
	if found := get[string](t, client, path); found != "old" || time.Since(started) < 200*time.Millisecond {
		t.Error("in the end, what there is counts:", found, time.Since(started))
	}
	if reads := client.Stats().Reads; reads.StaleTaken != 1 || reads.StaleAnswers < 1 {
		t.Error(reads)
	}
}

func TestABusyConnectionGetsASecondAndNoThird(t *testing.T) {
	one := &scripted{name: "s1", script: always(silence{})}
	client := connect(t, Config{Seeds: startScripted(t, one), Pool: PoolConfig{BusyAt: 4}})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 60 {
		calls.Go(func() { _, _ = client.Get(ctx, PathOf("a"), nil) })
	}
	until(t, func() bool { return len(one.actions("get_value")) == 60 && client.Stats().Pool.Connections >= 2 })
	// Those that come later find both.
	for range 20 {
		calls.Go(func() { _, _ = client.Get(ctx, PathOf("a"), nil) })
	}
	until(t, func() bool { return len(one.actions("get_value")) == 80 })
	one.mu.Lock()
	accepted := one.accepted
	one.mu.Unlock()
	if found := client.Stats().Pool.Connections; found != 2 || accepted != 2 {
		t.Error(found, accepted)
	}
	cancel()
	calls.Wait()
}

func TestAnUnusedConnectionIsClosedButNotUnderAStream(t *testing.T) {
	one, two := &scripted{name: "s1"}, &scripted{name: "s2"}
	client := connect(t, Config{Seeds: startScripted(t, one, two), Pool: PoolConfig{IdleClose: 100 * time.Millisecond}})
	for _, name := range []string{"s1", "s2"} {
		get[string](t, client, preferredPath(t, client, name))
	}
	// That of the cluster view stays. The other one may have been closed, and opened again, between the calls.
	until(t, func() bool {
		found := client.Stats().Pool
		return found.IdleClosed >= 1 && found.Connections == 1 && found.OpenRequests == 1
	})
}

type noisyObserver struct {
	mu     sync.Mutex
	events []string
}

func (o *noisyObserver) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf(format, args...))
}

type tokenKey struct{}

func (o *noisyObserver) CallBegins(ctx context.Context, action string) context.Context {
	o.add("begin %s", action)
	return context.WithValue(ctx, tokenKey{}, "token")
}

func (o *noisyObserver) TryBegins(_ context.Context, node string, attempt int) {
	o.add("try %s %d", node, attempt)
	panic("an observer's own")
}

func (o *noisyObserver) TryFailed(_ context.Context, node string, attempt int, class string, _ error) {
	o.add("failed %s %d %s", node, attempt, class)
}

func (o *noisyObserver) CallEnds(ctx context.Context, end CallEnd) {
	o.add("end %s %d %v %v", end.Action, end.Attempts, end.Err, ctx.Value(tokenKey{}))
}

func (o *noisyObserver) has(event string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.events, event)
}

func TestTheObserverIsToldAndMayFail(t *testing.T) {
	config := quick()
	observer := &noisyObserver{}
	var log syncBuffer
	config.Observer, config.Logger = observer, slog.New(slog.NewTextHandler(&log, nil))
	client, _, _, path := pair(t, config, always(errorReply("not_ready")))
	until(t, func() bool { return observer.has("end list_shards 1 <nil> token") })
	observer.mu.Lock()
	observer.events = nil
	observer.mu.Unlock()
	get[string](t, client, path)
	observer.mu.Lock()
	defer observer.mu.Unlock()
	want := []string{"begin get_value", "try s1 1", "failed s1 1 unavailable", "try s2 2", "end get_value 2 <nil> token"}
	if !slices.Equal(observer.events, want) {
		t.Error(observer.events)
	}
	if !strings.Contains(log.String(), "an observer's own") {
		t.Error(log.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestAReplyThatComesLateIsNobodyElses(t *testing.T) {
	one := &scripted{name: "s1", script: always(silence{})}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := client.Get(ctx, PathOf("a"), nil)
		first <- err
	}()
	until(t, func() bool { return len(one.actions("get_value")) == 1 })
	cancel()
	wantError(t, <-first, context.Canceled)
	second := make(chan string, 1)
	go func() {
		found, _ := Get[string](t.Context(), client, PathOf("b"), nil)
		second <- found
	}()
	until(t, func() bool { return len(one.actions("get_value")) == 2 })
	asked := one.actions("get_value")
	one.mu.Lock()
	socket := one.views[0].socket
	one.mu.Unlock()
	send(socket, fields{"seq": asked[0].integer("seq", 0), "value": "for a"})
	send(socket, fields{"seq": asked[1].integer("seq", 0), "value": "for b"})
	if found := <-second; found != "for b" {
		t.Error(found)
	}
}
