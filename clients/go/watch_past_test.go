package distkv

import (
	"reflect"
	"sync"
	"testing"
)

// A watch against a node that is played: what its stream still has is older than what it answers. The node says everything at
// once, and the watch reads at its own pace, so nothing here depends on time.

// version is one of the only entry; a nil value: it was deleted.
type toldVersion struct {
	value any
	tock  int64
}

// goneAt is the answer that nothing is there any more, and the node's own tock.
type goneAt int64

// playedFeed is what a node sends to a watch; nothing more after it where it is cut.
type playedFeed struct {
	state, changes []toldVersion
	isCut          bool
}

func (v toldVersion) fields() fields {
	told := fields{"tock": v.tock, "chain": fields{"node": "maker~1", "tick": v.tock, "prev": nil}}
	if v.value != nil {
		told["value"] = v.value
	}
	return told
}

func (f playedFeed) messages() several {
	said := several{{"state": "start"}}
	for _, one := range f.state {
		said = append(said, with(one.fields(), "path", PathOf("x")))
	}
	said = append(said, fields{"state": "uptodate"})
	for _, one := range f.changes {
		said = append(said, with(one.fields(), "path", PathOf("x")))
	}
	if f.isCut {
		said = append(said, nil)
	}
	return said
}

// play plays these feeds, one after the other, and answers the watch's questions about the entry in this order. It returns
// what is told, a zero Version as that of a deletion that was answered, up to the version with the last tock.
func play(t *testing.T, feeds []playedFeed, answers []any, last int64) []any {
	t.Helper()
	var mu sync.Mutex
	node := &scripted{name: "s1", script: func(request message) any {
		mu.Lock()
		defer mu.Unlock()
		switch request.text("action") {
		case "watch":
			if len(feeds) == 0 {
				t.Error("the watch began once more")
				return silence{}
			}
			said := feeds[0].messages()
			feeds = feeds[1:]
			return said
		case "check_deleted":
			return fields{"missing": fields{}, "tock": 1}
		case "get_value":
		default:
			return silence{}
		}
		if len(answers) == 0 {
			t.Error("it was asked once more")
			return silence{}
		}
		answer := answers[0]
		answers = answers[1:]
		if tock, isGone := answer.(goneAt); isGone {
			return fields{"tock": int64(tock)}
		}
		return answer.(toldVersion).fields()
	}}
	client := connect(t, Config{Seeds: startScripted(t, node), Retry: quick().Retry})
	w := openWatch(t, client, PathOf("q"), nil)
	var told []any
	collect(t, w, func(event Event) bool {
		change, isChange := event.(Change)
		if !isChange {
			told = append(told, reflect.TypeOf(event).Name())
			return false
		}
		one := toldVersion{tock: change.Version.Term()}
		if change.Version.IsZero() {
			one.tock = 0
		}
		if !change.Deleted {
			one.value = must[any](t)(change.Value.Any())
		}
		told = append(told, one)
		return one.tock == last
	})
	mu.Lock()
	defer mu.Unlock()
	if len(feeds)+len(answers) > 0 {
		t.Errorf("not played: %v %v; told: %v", feeds, answers, told)
	}
	return told
}

func TestAWatchPassesOverWhatItsNodeHasAnsweredNewer(t *testing.T) {
	v := func(value any, tock int64) toldVersion { return toldVersion{value, tock} }
	deleted := v(nil, 0)
	// The watch is told 1 at the first node. Then that one is gone, and the next one begins with this state.
	for name, row := range map[string]struct {
		before, state, changes []toldVersion
		answers                []any
		last                   int64
		want                   []any
	}{
		"the queue has it": {
			changes: []toldVersion{v("2", 20), v("3", 30), v(nil, 40), v("5", 50)},
			answers: []any{v("3", 30)},
			last:    50,
			want:    []any{v("3", 30), "Resumed", v(nil, 40), v("5", 50)},
		},
		"the state is older than what was told": {
			state:   []toldVersion{v("0", 5)},
			changes: []toldVersion{v("2", 20), v("3", 30), v(nil, 40), v("5", 50)},
			answers: []any{v("3", 30)},
			last:    50,
			want:    []any{v("3", 30), "Resumed", v(nil, 40), v("5", 50)},
		},
		"the state has it older, twice": {
			state:   []toldVersion{v("0", 5), v("0", 6)},
			changes: []toldVersion{v("2", 20), v("3", 30), v(nil, 40), v("5", 50)},
			answers: []any{v("3", 30)},
			last:    50,
			want:    []any{v("3", 30), "Resumed", v(nil, 40), v("5", 50)},
		},
		"it answers what was told": {
			state:   []toldVersion{v("0", 5)},
			changes: []toldVersion{v("0", 6), v("1", 10), v("2", 20)},
			answers: []any{v("1", 10)},
			last:    20,
			want:    []any{"Resumed", v("2", 20)},
		},
		"it answers a deletion": {
			changes: []toldVersion{v("2", 20), v("3", 30), v(nil, 40), v("5", 50)},
			answers: []any{v(nil, 40)},
			last:    50,
			want:    []any{v(nil, 40), "Resumed", v("5", 50)},
		},
		"it is gone": {
			changes: []toldVersion{v("1", 10), v("2", 20), v("3", 30), v(nil, 40), v("4", 41), v("5", 61)},
			answers: []any{goneAt(60), goneAt(60), goneAt(60), goneAt(60)},
			last:    61,
			want:    []any{deleted, "Resumed", v("5", 61)},
		},
		"it is gone, and was created again by a node whose clock is behind": {
			changes: []toldVersion{v("2", 20)},
			answers: []any{goneAt(60), v("2", 20)},
			last:    20,
			want:    []any{deleted, "Resumed", v("2", 20)},
		},
		"it is gone, was created again, and changed before it is asked": {
			changes: []toldVersion{v("2", 20), v("9", 90)},
			answers: []any{goneAt(60), v("9", 90)},
			last:    90,
			want:    []any{deleted, "Resumed", v("9", 90)},
		},
		"it is gone, and before it was told so, it is deleted again": {
			changes: []toldVersion{v("2", 20), v(nil, 80), v("9", 90)},
			answers: []any{goneAt(60), v(nil, 80)},
			last:    90,
			want:    []any{deleted, "Resumed", v("9", 90)},
		},
		"its deletion was told": {
			before:  []toldVersion{v(nil, 30)},
			state:   []toldVersion{v("2", 20)},
			changes: []toldVersion{v("5", 61)},
			answers: []any{goneAt(60)},
			last:    61,
			want:    []any{"Resumed", v("5", 61)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]toldVersion{v("1", 10)}, row.before...)
			told := play(t, []playedFeed{{changes: before, isCut: true}, {state: row.state, changes: row.changes}}, row.answers, row.last)
			want := []any{"UpToDate"}
			for _, one := range before {
				want = append(want, one)
			}
			if want = append(want, row.want...); !reflect.DeepEqual(told, want) {
				t.Errorf("told:\n%v, not\n%v", told, want)
			}
		})
	}
}
