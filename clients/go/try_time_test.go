package distkv

import (
	"context"
	"math"
	"testing"
	"time"

	"distkv.example/client/internal/msgpack"
)

// Until when tries count, by the clock of the node that they are sent to, against scripted nodes with a clock.

// answersAll answers each request as if all went well.
func answersAll(request message) any {
	switch action := request.text("action"); action {
	case "get_tree", "conflicts":
		return several{{"state": "start"}, {"state": "end"}}
	case "watch", "msg_monitor":
		return several{{"state": "start"}, {"state": "uptodate"}}
	case "enum":
		return fields{"result": []any{}}
	case "delete_tree":
		return fields{"changed": 0, "tock": 5}
	case "batch":
		var results []any
		msgpack.Items(request.get("ops"), func([]byte) bool {
			results = append(results, with(writtenReply, "value", 1))
			return true
		})
		return fields{"results": results}
	}
	return with(writtenReply, "value", 1)
}

// timed is a node with this clock, and a client of it. Its tries are long, so that no test depends on a machine's speed.
func timed(t *testing.T, clock any, script func(message) any) (*Client, *scripted) {
	t.Helper()
	node := &scripted{name: "s1", greets: fields{"clock": clock}, script: script}
	config := quick()
	config.Retry.TryDeadline, config.Retry.TotalDeadline = patient, 2*patient
	config.Seeds = startScripted(t, node)
	return connect(t, config), node
}

// lasts checks that a request counts for at most this long, by a node's clock that showed this after the test had begun.
func lasts(t *testing.T, request message, clock int64, begun time.Time, most time.Duration) {
	t.Helper()
	by := request.integer("by", -1)
	if since := time.Since(begun) + (1+clockRounded)*time.Millisecond; by <= clock || by > clock+(since+most).Milliseconds() {
		t.Errorf("%s counts until %d at a node whose clock showed %d %v ago", request.text("action"), by, clock, since)
	}
}

func TestEachTryOfAChangeSaysUntilWhenItCountsAndNoRead(t *testing.T) {
	begun := time.Now()
	client, node := timed(t, 1_000_000, answersAll)
	path := PathOf("a")
	all := operations(client, path)
	all["put without copies"] = func(ctx context.Context) error { _, err := client.Put(ctx, path, 1, nil); return err }
	all["put without an id"] = func(ctx context.Context) error {
		_, err := client.Put(ctx, path, 1, &PutOptions{WriteID: NoWriteID})
		return err
	}
	all["put with an id"] = func(ctx context.Context) error {
		_, err := client.Put(ctx, path, 1, &PutOptions{WriteID: WriteIDOf("order 17")})
		return err
	}
	all["send"] = func(ctx context.Context) error { return client.Send(ctx, path, 1) }
	all["override"] = func(ctx context.Context) error { return client.PreferShard(ctx, 1, "s1") }
	all["no override"] = func(ctx context.Context) error { return client.PreferShard(ctx, 1, "") }
	for action, isIdempotent := range map[string]bool{"enum_node": true, "history": false, "tell_all": true, "set_tock": false} {
		all[action] = func(ctx context.Context) error {
			_, err := client.Request(ctx, action, nil, &RequestOptions{Idempotent: isIdempotent})
			return err
		}
	}
	for name, operation := range all {
		if err := operation(t.Context()); err != nil {
			t.Error(name, err)
		}
	}
	changes := setOf("set_value", "delete_value", "batch", "delete_tree", "msg_send", "set_internal", "delete_internal", "tell_all", "set_tock")
	met := map[string]bool{}
	node.mu.Lock()
	defer node.mu.Unlock()
	for _, request := range node.requests {
		action := request.text("action")
		met[action] = true
		if err := msgpack.Whole(request); err != nil {
			t.Error(action, err)
		}
		if changes[action] {
			lasts(t, request, 1_000_000, begun, patient)
		} else if request.get("by") != nil {
			t.Error(action, "counts only for some time")
		}
	}
	for _, action := range []string{"get_value", "get_tree", "watch", "enum", "enum_node", "history", "cluster", "list_shards"} {
		if changes[action] = true; !met[action] {
			t.Error(action, "was not sent")
		}
	}
	for action := range changes {
		if !met[action] {
			t.Error(action, "was not sent")
		}
	}
}

func TestABatchThatOnlyReadsCountsWheneverItComes(t *testing.T) {
	client, node := timed(t, 1_000_000, answersAll)
	must[[]BatchReply](t)(client.Batch().Get(PathOf("a")).Run(t.Context(), nil))
	if request := node.actions("batch")[0]; request.get("by") != nil {
		t.Error(Value(request))
	}
}

func TestATimeThatTheCallerSaysCounts(t *testing.T) {
	client, node := timed(t, 1_000_000, answersAll)
	path := PathOf("a")
	must[map[string]any](t)(client.Request(t.Context(), "set_value", fields{"value": 1, "by": 17}, &RequestOptions{Path: &path}))
	head, _ := msgpack.ReadHead(node.actions("set_value")[0])
	if request := node.actions("set_value")[0]; request.integer("by", 0) != 17 || head.Len != 5 {
		t.Error(Value(request))
	}
}

func TestANodeThatTellsNoClockIsToldNoTime(t *testing.T) {
	for _, clock := range []any{nil, -1, "1000000", 1.5, true, []any{1}, uint64(1 << 63), uint64(math.MaxUint64)} {
		client, node := timed(t, clock, onceThen(with(errorReply("too_late"), "clock", 5_000_000), writtenReply))
		for range 2 {
			put(t, client, PathOf("a"), 1, nil)
		}
		if requests := node.actions("set_value"); len(requests) != 3 || requests[0].get("by") != nil || requests[2].get("by") != nil {
			t.Error(clock, requests)
		}
	}
}

func TestACallWithLessTimeCountsForLess(t *testing.T) {
	const short = patient / 4
	begun := time.Now()
	client, node := timed(t, 1_000_000, answersAll)
	path := PathOf("a")
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	put(t, client, path, 1, &PutOptions{Timeout: short})
	put(t, client, path, 1, &PutOptions{Timeout: short, Copies: 1})
	must[Written](t)(client.Delete(t.Context(), path, &DeleteOptions{Timeout: short}))
	must[[]BatchReply](t)(client.Batch().Put(path, 1, nil).Run(t.Context(), &BatchOptions{Timeout: short}))
	must[int](t)(client.DeleteTree(ctx, path, nil))
	for _, action := range []string{"set_value", "delete_value", "batch", "delete_tree"} {
		for _, request := range node.actions(action) {
			lasts(t, request, 1_000_000, begun, short)
		}
	}
}

func TestATreesDeletionMayLastLongerThanItCounts(t *testing.T) {
	begun := time.Now()
	client, node := timed(t, 1_000_000, answersAll)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	must[int](t)(client.DeleteTree(ctx, PathOf("a"), nil))
	lasts(t, node.actions("delete_tree")[0], 1_000_000, begun, patient)
}

func TestEachTryHasTheClockOfItsOwnNode(t *testing.T) {
	begun := time.Now()
	one := &scripted{name: "s1", greets: fields{"clock": 1_000_000}, script: always(errorReply("not_ready"))}
	two := &scripted{name: "s2", greets: fields{"clock": int64(1 << 40)}, script: answersAll}
	old := &scripted{name: "s3", script: always(errorReply("not_ready"))}
	config := quick()
	config.Retry.TryDeadline, config.Retry.TotalDeadline = patient, 2*patient
	config.Seeds = startScripted(t, one, two, old)
	client := connect(t, config)
	allLive(t, client, 3)
	for _, name := range []string{"s1", "s2", "s3"} {
		put(t, client, preferredPath(t, client, name), 1, nil)
	}
	if len(one.actions("set_value")) == 0 || len(two.actions("set_value")) != 3 || len(old.actions("set_value")) == 0 {
		t.Fatal("not all nodes were asked")
	}
	for _, request := range one.actions("set_value") {
		lasts(t, request, 1_000_000, begun, patient)
	}
	for _, request := range two.actions("set_value") {
		lasts(t, request, 1<<40, begun, patient)
	}
	for _, request := range old.actions("set_value") {
		if request.get("by") != nil {
			t.Error("a node without a clock is told a time")
		}
	}
}

// late is a node's answer to what came too late.
func late(clock any) fields { return with(errorReply("too_late"), "clock", clock) }

func TestWhatCameTooLateIsSentAgainWithALaterTime(t *testing.T) {
	for name, change := range map[string]func(client *Client, ctx context.Context) error{
		"put": func(client *Client, ctx context.Context) error {
			written, err := client.Put(ctx, PathOf("a"), 1, nil)
			if written.Repeated != No || written.Attempts != 1 {
				t.Errorf("%+v", written)
			}
			return err
		},
		"put without an id": func(client *Client, ctx context.Context) error {
			_, err := client.Put(ctx, PathOf("a"), 1, &PutOptions{WriteID: NoWriteID})
			return err
		},
		"batch": func(client *Client, ctx context.Context) error {
			_, err := client.Batch().Put(PathOf("a"), 1, &PutOptions{WriteID: NoWriteID}).Run(ctx, nil)
			return err
		},
		"delete tree": func(client *Client, ctx context.Context) error {
			_, err := client.DeleteTree(ctx, PathOf("a"), nil)
			return err
		},
		"send": func(client *Client, ctx context.Context) error { return client.Send(ctx, PathOf("a"), 1) },
	} {
		begun := time.Now()
		first := onceThen(true, false)
		client, node := timed(t, 1_000_000, func(request message) any {
			if first(request) == true {
				return late(5_000_000)
			}
			return answersAll(request)
		})
		if err := change(client, t.Context()); err != nil {
			t.Error(name, err)
		}
		action := node.asked()[0]
		requests := node.actions(action)
		if len(requests) != 2 {
			t.Fatal(name, node.asked())
		}
		lasts(t, requests[0], 1_000_000, begun, patient)
		lasts(t, requests[1], 5_000_000, begun, patient)
	}
}

func TestATimeThatIsBehindOrNoneIsNotTaken(t *testing.T) {
	for _, told := range []any{0, 999_999, nil, -1, "9000000", uint64(1 << 63), uint64(math.MaxUint64)} {
		begun := time.Now()
		client, node := timed(t, 1_000_000, onceThen(late(told), writtenReply))
		put(t, client, PathOf("a"), 1, nil)
		requests := node.actions("set_value")
		if len(requests) != 2 {
			t.Fatal(told, requests)
		}
		lasts(t, requests[1], 1_000_000, begun, patient)
	}
}

func TestWhatAlwaysComesTooLateWasNotDone(t *testing.T) {
	node := &scripted{name: "s1", greets: fields{"clock": 1_000_000}, script: always(late(1_000_000))}
	config := quick()
	config.Retry.AttemptsMax = 3
	config.Seeds = startScripted(t, node)
	_, err := connect(t, config).Put(t.Context(), PathOf("a"), 1, &PutOptions{WriteID: NoWriteID})
	if failed := wantError(t, err, ErrUnavailable); failed.Fate != NotDone || failed.Attempts != 3 {
		t.Errorf("%+v", failed)
	}
}

func TestAWriteWithAllFieldsSaysUntilWhenItCounts(t *testing.T) {
	begun := time.Now()
	client, node := timed(t, 1_000_000, answersAll)
	path := PathOf("a")
	version := put(t, client, path, 1, nil).Version
	put(t, client, path, 1, &PutOptions{IfVersion: version, IfValue: 1, WriteID: WriteIDOf("x"), Copies: 1, Idempotent: true})
	request := node.actions("set_value")[1]
	lasts(t, request, 1_000_000, begun, patient)
	if err := msgpack.Whole(request); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"action", "path", "value", "chain", "deleted", "prev", "wid", "idem", "nchain", "above", "own", "copies",
		"timeout", "seq", "by"} {
		if request.get(name) == nil {
			t.Error(name, "is missing")
		}
	}
	// As many fields as no head of one byte counts.
	more := fields{}
	for number := range 20 {
		more["x"+itemText(int64(number))] = number
	}
	must[map[string]any](t)(client.Request(t.Context(), "tell_all", more, nil))
	request = node.actions("tell_all")[0]
	lasts(t, request, 1_000_000, begun, patient)
	if err := msgpack.Whole(request); err != nil || request.get("x19") == nil || request.get("seq") == nil {
		t.Error(err, Value(request))
	}
}

func TestEveryHeadCountsTheTimeToo(t *testing.T) {
	for _, count := range []int{2, 13, 14, 15, 16, 17, 70_000} {
		b := newBody("x")
		for range count - 2 {
			b.flag("y")
		}
		request := appendTimed([]byte{1}, b.head(), 7, 1<<40)
		head, err := msgpack.ReadHead(request[1:])
		if err != nil || head.Len != count+1 || msgpack.Whole(request[1:]) != nil {
			t.Fatal(count, head, err)
		}
		m := message(request[1:])
		if m.text("action") != "x" || m.integer("seq", 0) != 7 || m.integer("by", 0) != 1<<40 {
			t.Error(count, Value(m))
		}
		if longer := len(request) - 1 - len(b.head()) - 1; longer > timeBytes {
			t.Error(count, longer)
		}
	}
}

func TestWhatIsCountedIsNeverAheadOfTheNodesClock(t *testing.T) {
	const millisecond = time.Millisecond
	encoded := func(clock any) message { return message(must[Value](t)(Encode(fields{"clock": clock}))) }
	from := func(clock any, at instant) *nodeClock {
		told := newNodeClock(encoded(clock), at)
		return &told
	}
	for since, want := range map[instant]int64{
		-time.Hour: 0, 0: 0, millisecond - 1: 0, millisecond: 0, 2 * millisecond: 1, 4096 * millisecond: 4095, 4097 * millisecond: 4095,
		4098 * millisecond: 4096, 4_096_000 * millisecond: 4_095_000,
	} {
		if found := from(7, time.Hour).now(time.Hour + since); found != 7+want {
			t.Error(since, found)
		}
	}
	one := from(1000, 0)
	for end, want := range map[instant]int64{-1: 1000, 0: 1000, 1: 1001, millisecond: 1001, millisecond + 1: 1002, 2 * time.Second: 3000} {
		if found := one.by(end, 0); found != want+clockRounded {
			t.Error(end, found)
		}
	}
	one.hear(encoded(1500), time.Second) // It is 1999 there.
	if found := one.now(time.Second); found != 1999 {
		t.Error(found)
	}
	one.hear(encoded(2000), time.Second)
	if found := one.now(time.Second); found != 2000 {
		t.Error(found)
	}
	// At its end, it stays there.
	last := from(int64(math.MaxInt64), 0)
	if found := last.by(never, time.Hour); found != math.MaxInt64 {
		t.Error(found)
	}
}
