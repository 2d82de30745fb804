package distkv

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type colour string

type lamp struct {
	On      bool              `msgpack:"on"`
	Level   int               `msgpack:"level,omitempty"`
	Colours []colour          `msgpack:"colours"`
	Names   map[string]string `msgpack:"names,omitempty"`
	Next    *lamp             `msgpack:"next,omitempty"`
	Secret  string            `msgpack:"-"`
	inner   int
}

func big70() *big.Int { return new(big.Int).Lsh(big.NewInt(1), 70) }

var values = []any{
	nil, true, int64(0), int64(-1), int64(-33), int64(127), int64(128), int64(-129), int64(1 << 40), uint64(math.MaxUint64),
	int64(math.MinInt64), big70(), 1.5, math.Inf(1), "", "ä☃", []byte{0, 0xff}, []any{},
	[]any{int64(1), []any{int64(2), map[string]any{"x": nil}}}, map[string]any{}, map[string]any{"a": int64(1)},
	Map{{"a", int64(1)}, {int64(2), []byte("b")}, {[]any{int64(1), "x"}, []any{int64(3)}}}, PathOf("a", 1, true),
	Ext{77, []byte("kept")}, time.Unix(1_700_000_000, 5).UTC(), time.Unix(-5, 7).UTC(), time.Unix(1_700_000_000, 0).UTC(),
	strings.Repeat("x", 70_000), bytes.Repeat([]byte("x"), 300),
}

func TestValuesComeBackAsTheyWere(t *testing.T) {
	client := sharedClient(t)
	path := base()
	for _, value := range values {
		put(t, client, path, value, nil)
		found := get[any](t, client, path)
		if !reflect.DeepEqual(found, value) {
			t.Errorf("%#v came back as %#v", value, found)
		}
		entry, err := client.Entry(t.Context(), path, nil)
		if read, wrong := entry.Value.Any(); err != nil || wrong != nil || !reflect.DeepEqual(read, value) {
			t.Errorf("%#v came back as %#v, %v, %v", value, read, err, wrong)
		}
	}
}

func TestRawValuesKeepEveryByte(t *testing.T) {
	client := sharedClient(t)
	path := base()
	for _, raw := range []string{"\xcd\x00\x01", "\xca\x3f\x80\x00\x00", "\x81\x93\x01\x02\x03\xc0", "\xc7\x01\x63\xaa"} {
		put(t, client, path, Value(raw), nil)
		if found, err := client.Get(t.Context(), path, nil); string(found) != raw || err != nil {
			t.Errorf("%x, %v", []byte(found), err)
		}
	}
	for _, bad := range []string{"", "\xc1", "\x01\x02", "\xa5abc"} {
		_, err := client.Put(t.Context(), path, Value(bad), nil)
		wantError(t, err, ErrBadValue)
	}
}

func TestStructsAreValues(t *testing.T) {
	client := sharedClient(t)
	path := base()
	stored := lamp{On: true, Level: 3, Colours: []colour{"red"}, Next: &lamp{Names: map[string]string{"b": "2", "a": "1"}},
		Secret: "x", inner: 1}
	put(t, client, path, stored, nil)
	wanted := stored
	wanted.Secret, wanted.inner = "", 0
	if found := get[lamp](t, client, path); !reflect.DeepEqual(found, wanted) {
		t.Errorf("%+v", found)
	}
	plain := get[map[string]any](t, client, path)
	if plain["on"] != true || plain["level"] != int64(3) || plain["Secret"] != nil || len(plain) != 4 {
		t.Errorf("%v", plain)
	}
	_, err := Get[[]int](t.Context(), client, path, nil)
	wantError(t, err, ErrBadValue)
	for _, bad := range []any{make(chan int), func() {}, map[string]any{"a": make(chan int)}, new(big.Int).Neg(big70())} {
		_, err := client.Put(t.Context(), path, bad, nil)
		wantError(t, err, ErrBadValue)
	}
	type loop struct{ Next *loop }
	round := &loop{}
	round.Next = round
	_, err = client.Put(t.Context(), path, round, nil)
	wantError(t, err, ErrBadValue)
}

func TestTypesAreReadAsTheyAreOrNotAtAll(t *testing.T) {
	as := func(value any, into any) error {
		encoded, err := Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		return encoded.Decode(into)
	}
	var (
		small   int8
		natural uint
		float   float64
		text    string
		pointer *int
		pair    [2]int
		texts   map[string]int
		when    time.Time
		sixteen [16]byte
		number  big.Int
		anyMap  map[any]int
	)
	for _, row := range []struct {
		value any
		into  any
		good  bool
	}{
		{127, &small, true}, {128, &small, false}, {true, &small, false}, {-1, &natural, false}, {uint64(math.MaxUint64), &natural, true},
		{3, &float, true}, {1.5, &float, true}, {float32(1.5), &float, true}, {1.5, &small, false}, {"x", &text, true},
		{[]byte("x"), &text, false}, {nil, &text, false}, {nil, &pointer, true}, {5, &pointer, true}, {[]int{1, 2}, &pair, true},
		{[]int{1}, &pair, false}, {map[string]int{"a": 1}, &texts, true}, {map[int]int{1: 1}, &texts, false},
		{time.Unix(5, 0), &when, true}, {map[string]any{}, &when, false}, {[16]byte{1}, &sixteen, true}, {[]byte{1}, &sixteen, false},
		{big70(), &number, true}, {5, &number, true}, {"5", &number, false}, {map[string]int{"a": 1}, &anyMap, true},
		{5, small, false},
	} {
		if err := as(row.value, row.into); (err == nil) != row.good {
			t.Errorf("%#v into %T: %v", row.value, row.into, err)
		} else if err != nil {
			wantError(t, err, ErrBadValue)
		}
	}
	if number.Int64() != 5 || *pointer != 5 || when.Unix() != 5 || texts["a"] != 1 || pair != [2]int{1, 2} {
		t.Error(number, pointer, when, texts, pair)
	}
	if _, err := As[int](nil); err == nil {
		t.Error("no value is a value")
	}
	if encoded, _ := Encode(map[string]int{"b": 1, "a": 2}); string(encoded) != "\x82\xa1a\x02\xa1b\x01" {
		t.Errorf("the same value is the same bytes: %x", []byte(encoded))
	}
}

func TestWhatIsMissingIsAnErrorAndNilIsThere(t *testing.T) {
	client := sharedClient(t)
	path := base()
	_, err := client.Get(t.Context(), path, nil)
	if failed := wantError(t, err, ErrNotFound); failed.Code != "key_not_found" || failed.Node == "" {
		t.Errorf("%+v", failed)
	}
	_, err = client.Entry(t.Context(), path, nil)
	wantError(t, err, ErrNotFound)
	put(t, client, path.MustJoin(1.0), nil, nil)
	put(t, client, path.MustJoin(1), "int", nil)
	put(t, client, path.MustJoin(true), "bool", nil)
	if found := get[any](t, client, path.MustJoin(1.0)); found != nil {
		t.Error(found)
	}
	names, err := client.Children(t.Context(), path)
	if !reflect.DeepEqual(names, []any{true, int64(1), 1.0}) || err != nil {
		t.Error(names, err)
	}
}

func TestWhichNamesAndEntriesThereAreBelowAPath(t *testing.T) {
	client, ctx, path := sharedClient(t), t.Context(), base()
	valued := path.MustJoin("valued")
	for _, one := range []Path{path, valued, path.MustJoin("between", "below"), path.MustJoin("valuedless", "x")} {
		put(t, client, one, 1, &PutOptions{Copies: 2})
	}
	for _, one := range []Path{path.MustJoin("deleted"), path.MustJoin("emptied", "x")} {
		put(t, client, one, 1, &PutOptions{Copies: 2})
		if _, err := client.Delete(ctx, one, &DeleteOptions{Copies: 2}); err != nil {
			t.Error(err)
		}
	}
	if names, err := client.Children(ctx, path); !reflect.DeepEqual(names, []any{"valued"}) || err != nil {
		t.Error(names, err)
	}
	names := []any{}
	for entry, err := range client.Tree(ctx, path, &TreeOptions{MinDepth: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Path.Elements()[path.Len()])
	}
	if !reflect.DeepEqual(names, []any{"between", "valued", "valuedless"}) {
		t.Error(names)
	}
	reply, err := client.Request(ctx, "enum", map[string]any{"empty": true}, &RequestOptions{Path: &path})
	if found, _ := reply["result"].([]any); !slices.Contains(found, any("between")) || err != nil {
		t.Error(reply, err)
	}
	// It is no text prefix.
	if found, err := client.TreeList(ctx, valued, nil); len(found) != 1 || found[0].Path != valued || err != nil {
		t.Error(found, err)
	}
}

func TestPreconditions(t *testing.T) {
	client, ctx := sharedClient(t), t.Context()
	path := base()
	refused := func(kind error, options PutOptions) {
		t.Helper()
		_, err := client.Put(ctx, path, 3, &options)
		failed := wantError(t, err, kind)
		wantError(t, err, ErrPrecondition)
		wantError(t, err, ErrRefused)
		if failed.Node == "" || failed.Attempts != 1 || failed.Fate != NotDone {
			t.Errorf("%+v", failed)
		}
	}
	first := put(t, client, path, 1, &PutOptions{IfNew: true})
	refused(ErrExists, PutOptions{IfNew: true})
	second := put(t, client, path, 2, &PutOptions{IfVersion: first.Version})
	if first.Version.Compare(second.Version) >= 0 || second.Version.Compare(second.Version) != 0 {
		t.Error(first.Version, second.Version)
	}
	refused(ErrChanged, PutOptions{IfVersion: first.Version})
	refused(ErrValueChanged, PutOptions{IfValue: 1})
	refused(ErrValueChanged, PutOptions{IfValue: Nil})
	read, err := ParseVersion(second.Version.String())
	if err != nil || read != second.Version {
		t.Error(read, err)
	}
	value := 2
	until(t, func() bool {
		put(t, client, path, 3, &PutOptions{IfValue: value})
		gone, err := client.Delete(ctx, path, &DeleteOptions{IfValue: 3})
		if !gone.Changed || gone.Version.IsZero() || err != nil {
			t.Fatal(gone, err)
		}
		entry, err := client.Entry(ctx, path, nil)
		isPurged := errors.Is(err, ErrNotFound)
		if !isPurged && (!entry.Deleted || entry.Version != gone.Version || entry.Value != nil || err != nil) {
			t.Fatal(entry, err)
		}
		_, err = client.Put(ctx, path, 1, &PutOptions{IfNew: true, IfVersion: gone.Version})
		wantError(t, err, ErrUsage)
		_, err = client.Put(ctx, path, 4, &PutOptions{IfVersion: gone.Version})
		if isPurged = isPurged || errors.Is(err, ErrChanged); isPurged {
			// Nodes forget a deletion once all know of it, at any moment.
			put(t, client, path, 4, nil)
			value = 4
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(ErrChanged, PutOptions{IfVersion: gone.Version})
		return true
	})
	for _, bad := range []string{"", "5", "x@n:1", "5@n:x", "5@:1"} {
		if _, err := ParseVersion(bad); err == nil {
			t.Error(bad)
		}
	}
}

func TestWhatAWriteTells(t *testing.T) {
	client := sharedClient(t)
	path := base()
	if first := put(t, client, path, "a", nil); !first.Changed || first.Repeated != No || first.Attempts != 1 {
		t.Errorf("%+v", first)
	}
	second := put(t, client, path, "b", nil)
	if previous, _ := As[string](second.Previous); previous != "a" {
		t.Errorf("%+v", second)
	}
	if same := put(t, client, path, "b", &PutOptions{Idempotent: true}); same.Changed || same.Version != second.Version {
		t.Errorf("%+v", same)
	}
	nothing, err := client.Delete(t.Context(), path.MustJoin("no"), nil)
	if nothing.Changed || !nothing.Version.IsZero() || err != nil {
		t.Error(nothing, err)
	}
}

func TestAWriteIDCountsOnce(t *testing.T) {
	client := sharedClient(t)
	path := base()
	id := WriteIDOf(path.String())
	first := put(t, client, path, 1, &PutOptions{WriteID: id})
	put(t, client, path, 2, nil)
	again := put(t, client, path, 1, &PutOptions{WriteID: WriteIDFrom(id.Bytes())})
	if again.Repeated != Yes || again.Version != first.Version || get[int](t, client, path) != 2 {
		t.Error("a retry undoes nothing later:", again)
	}
	_, err := client.Put(t.Context(), path, 3, &PutOptions{WriteID: id})
	if failed := wantError(t, err, ErrRefused); failed.Code != "wid_reused" {
		t.Errorf("%+v", failed)
	}
	if found := WriteIDOf("order 17").Bytes(); found[0] != 0x0b || found[15] != 0xd6 {
		t.Errorf("%x", found)
	}
}

func TestTheGreatestValueIsTakenAndOneByteMoreRefused(t *testing.T) {
	client := sharedClient(t)
	path := base()
	atMost := make([]byte, ValueBytesMax-5)
	put(t, client, path, atMost, nil)
	if found := get[[]byte](t, client, path); len(found) != len(atMost) {
		t.Error(len(found))
	}
	_, err := client.Put(t.Context(), path, append(atMost, 0), nil)
	if failed := wantError(t, err, ErrRefused); failed.Code != "too_large" {
		t.Errorf("%+v", failed)
	}
	_, err = client.Put(t.Context(), path, make([]byte, 9<<20), nil)
	wantError(t, err, ErrUsage)
}

func TestARequestThatIsTooLongForAnyNodeIsPlainlyTold(t *testing.T) {
	client := sharedClient(t)
	half := make([]byte, ValueBytesMax)
	_, one := client.Put(t.Context(), base(), [][]byte{half, half, half}, nil)
	_, copied := client.Put(t.Context(), base(), [][]byte{half, half, half}, &PutOptions{Copies: 1})
	_, many := client.Batch().Put(base(), half, nil).Put(base(), half, nil).Put(base(), half, nil).Run(t.Context(), nil)
	for name, err := range map[string]error{"put": one, "put with copies": copied, "batch": many} {
		failed := wantError(t, err, ErrUsage)
		if failed.Attempts != 0 || failed.Node != "" || !strings.HasSuffix(err.Error(), "can be sent") {
			t.Errorf("%s: %+v: %v", name, failed, err)
		}
	}
}

func TestBatches(t *testing.T) {
	client := sharedClient(t)
	one, two := base().MustJoin(1), base()
	replies, err := client.Batch().Put(one, "a", nil).Get(one).Put(one, "b", &PutOptions{IfNew: true}).Delete(two, nil).Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if read, _ := As[string](replies[1].Entry.Value); !replies[0].Written.Changed || read != "a" ||
		replies[1].Entry.Version != replies[0].Written.Version || replies[3].Written.Changed {
		t.Errorf("%+v", replies)
	}
	wantError(t, replies[2].Err, ErrExists)
	if none, err := client.Batch().Run(t.Context(), nil); len(none) != 0 || err != nil {
		t.Error(none, err)
	}
	many := client.Batch()
	for number := range BatchOpsMax {
		many.Put(two.MustJoin(number), number, nil)
	}
	if replies, err := many.Run(t.Context(), nil); len(replies) != BatchOpsMax || err != nil {
		t.Error(len(replies), err)
	}
	_, err = many.Get(two).Run(t.Context(), nil)
	wantError(t, err, ErrUsage)
	_, err = client.Batch().Put(two, make(chan int), nil).Run(t.Context(), nil)
	wantError(t, err, ErrBadValue)
	if count, err := client.DeleteTree(t.Context(), two, nil); count != BatchOpsMax || err != nil {
		t.Error(count, err)
	}
}

func TestTreesComeWholeAndOneByOne(t *testing.T) {
	client, ctx := sharedClient(t), t.Context()
	path := base()
	for _, element := range []any{"b", "a", 1} {
		put(t, client, path.MustJoin(element), itemText(element), nil)
	}
	put(t, client, path.MustJoin("a", "x"), 0, nil)
	entries, err := client.TreeList(ctx, path, &TreeOptions{Versions: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []Path{path.MustJoin(1), path.MustJoin("a"), path.MustJoin("a", "x"), path.MustJoin("b")}
	var found []Path
	for _, entry := range entries {
		found = append(found, entry.Path)
		if entry.Version.IsZero() {
			t.Error("without its version:", entry)
		}
	}
	if !reflect.DeepEqual(found, want) {
		t.Error(found)
	}
	found = nil
	for entry, err := range client.Tree(ctx, path, nil) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, entry.Path)
	}
	if !reflect.DeepEqual(found, want) {
		t.Error(found)
	}
	if entries, _ := client.TreeList(ctx, path, &TreeOptions{MaxDepth: 1}); len(entries) != 3 {
		t.Error(entries)
	}
	before := client.Stats().Pool.OpenRequests
	for range client.Tree(ctx, path, nil) {
		break
	}
	until(t, func() bool { return client.Stats().Pool.OpenRequests <= before })
	if entries, err := client.TreeList(ctx, path.MustJoin("nothing"), nil); len(entries) != 0 || err != nil {
		t.Error(entries, err)
	}
}

func TestReadModes(t *testing.T) {
	client := sharedClient(t)
	path := base()
	put(t, client, path, 1, &PutOptions{Copies: 2})
	for _, mode := range []ReadMode{"", Preferred, AnyNode, Freshest} {
		if found, err := Get[int](t.Context(), client, path, &GetOptions{Read: mode}); found != 1 || err != nil {
			t.Error(mode, found, err)
		}
	}
	_, err := client.Get(t.Context(), path, &GetOptions{Read: "linearizable"})
	if failed := wantError(t, err, ErrUsage); failed.Code != "read_mode" || !strings.Contains(err.Error(), "linearizable reads are refused") {
		t.Error(err)
	}
	_, err = client.Get(t.Context(), path, &GetOptions{Read: "psychic"})
	wantError(t, err, ErrUsage)
}

func TestMessagesAreMonitored(t *testing.T) {
	client := sharedClient(t)
	topic := base()
	monitor, err := client.OpenMonitor(t.Context(), topic.MustJoin("#"))
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if err := client.Send(t.Context(), topic.MustJoin("x"), map[string]int{"n": 1}); err != nil {
		t.Fatal(err)
	}
	event, err := monitor.Next(t.Context())
	message, ok := event.(TopicMessage)
	if err != nil || !ok || message.Topic != topic.MustJoin("x") {
		t.Fatal(event, err)
	}
	if data, err := As[map[string]int](message.Data); data["n"] != 1 || err != nil {
		t.Error(data, err)
	}
}

func TestAnyOtherRequest(t *testing.T) {
	client := sharedClient(t)
	status, err := client.Request(t.Context(), "status", nil, &RequestOptions{Idempotent: true})
	if status["ready"] != true || err != nil {
		t.Error(status, err)
	}
	_, err = client.Request(t.Context(), "no_such_action", nil, nil)
	if failed := wantError(t, err, ErrRefused); failed.Code != "unknown_action" {
		t.Errorf("%+v", failed)
	}
}

func TestShardsAreListedAndMoved(t *testing.T) {
	nodes := cluster(t, 2)
	client, other := connect(t, Config{Seeds: nodes.Seeds()}), connect(t, Config{Seeds: nodes.Seeds()})
	allLive(t, client, 2)
	allLive(t, other, 2)
	path := MustPath("moved")
	before := client.Preferred(path)
	to := map[string]string{"n1": "n2", "n2": "n1"}[before]
	told := make(chan []Move, 8)
	stop := must[func()](t)(client.OnTopologyChange(func(change TopologyChange) { told <- change.Moved }))
	if err := client.PreferShard(t.Context(), path.Shard(), to); err != nil {
		t.Fatal(err)
	}
	if moves := <-told; client.Preferred(path) != to || len(moves) != 1 || moves[0] != (Move{path.Shard(), before, to}) {
		t.Error(client.Preferred(path), moves)
	}
	stop()
	until(t, func() bool {
		_ = other.RefreshShards(t.Context())
		return other.Preferred(path) == to
	})
	rows, err := client.ListShards(t.Context())
	if err != nil || len(rows) < 2 || rows[0].First != 0 || rows[len(rows)-1].Last != ShardCount-1 {
		t.Error(rows, err)
	}
	nodes.ByName(to).Kill()
	until(t, func() bool { return client.Preferred(path) == before })
	wantError(t, client.PreferShard(t.Context(), ShardCount, "n1"), ErrUsage)
}
