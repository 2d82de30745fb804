package distkv

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"distkv.example/client/internal/msgpack"
)

// This client against the vectors that the Rust code writes, and is compared with: clients/conformance/vectors.

func vectorRows[T any](t *testing.T, name string) []T {
	t.Helper()
	var file struct{ Rows []T }
	readJSON(t, name+".json", &file)
	if len(file.Rows) == 0 {
		t.Fatalf("%s has lost its rows", name)
	}
	return file.Rows
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCodesHaveTheClassesOfTheVectors(t *testing.T) {
	for _, row := range vectorRows[struct{ Code, Class, Made string }](t, "codes") {
		for isMade, class := range map[bool]string{false: row.Class, true: row.Made} {
			err := &tryError{kind: tryServer, code: row.Code, made: isMade}
			if found := classOf(err, true).String(); found != class {
				t.Errorf("%q, made: %v, is %s, not %s", row.Code, isMade, found, class)
			}
		}
	}
}

func TestDecisionsAreThoseOfTheVectors(t *testing.T) {
	var policy RetryPolicy
	policy.fill()
	requests := map[string]idempotency{"read": reading, "guarded": guarded, "unguarded": unguarded}
	words := map[verdict]string{giveUpFinal: "final", giveUpFate: "fate_unknown", giveUpDeadline: "deadline"}
	rows := vectorRows[struct {
		Class, Request, Decision string
		ElapsedMS                int `json:"elapsed_ms"`
	}](t, "decisions")
	if len(rows) != 8*3*2 {
		t.Error(len(rows))
	}
	for _, row := range rows {
		kind := classUnavailable
		for kind.String() != row.Class {
			if kind++; kind > classFinal {
				t.Fatal(row.Class)
			}
		}
		elapsed := time.Duration(row.ElapsedMS) * time.Millisecond
		decision, _ := policy.decide(kind, 1, elapsed, policy.TotalDeadline, requests[row.Request], 0.5)
		found := words[decision]
		if decision == tryAgain {
			found = "elsewhere"
			if kind.isSameNode() {
				found = "there"
			}
		}
		if found != row.Decision {
			t.Errorf("%+v: %s", row, found)
		}
	}
}

func TestPausesAreThoseOfTheVectors(t *testing.T) {
	for _, row := range vectorRows[struct {
		FirstMS   int `json:"first_ms"`
		LongestMS int `json:"longest_ms"`
		Factor    int
		Failures  int
		Random    string
		PauseNS   float64 `json:"pause_ns"`
	}](t, "backoff") {
		random := must[uint64](t)(strconv.ParseUint(row.Random, 10, 64))
		first, longest := time.Duration(row.FirstMS)*time.Millisecond, time.Duration(row.LongestMS)*time.Millisecond
		pause := backoff(first, row.Factor, longest, row.Failures, float64(random)/math.MaxUint64)
		if math.Abs(float64(pause)-row.PauseNS) > 2+row.PauseNS*1e-8 {
			t.Errorf("%+v: %d", row, pause)
		}
	}
}

func TestRoutesAreThoseOfTheVectors(t *testing.T) {
	for _, row := range vectorRows[struct {
		Nodes     [][2]any
		Prefer    *string `json:"prefer_of_even_shards"`
		Shard     int
		Preferred *int
		Order     []int
	}](t, "routes") {
		r := &routing{overrides: map[int]string{}}
		for i, told := range row.Nodes {
			name := told[0].(string)
			r.targets = append(r.targets, &target{name: name, isLive: told[1].(bool), hash: hashKey(name),
				address: address{host: "h", port: i}})
		}
		if row.Prefer != nil && row.Shard%2 == 0 {
			r.overrides[row.Shard] = *row.Prefer
		}
		preferred := r.preferred(row.Shard)
		if (preferred == nil) != (row.Preferred == nil) || (preferred != nil && preferred != r.targets[*row.Preferred]) {
			t.Errorf("%+v: preferred: %+v", row, preferred)
		}
		order := []int{}
		for _, one := range r.order(row.Shard) {
			order = append(order, slices.Index(r.targets, one))
		}
		if !slices.Equal(order, row.Order) {
			t.Errorf("%+v: %v", row, order)
		}
	}
}

func TestPathsHaveTheBytesOfTheVectors(t *testing.T) {
	for _, row := range vectorRows[struct {
		Text, Bytes string
		Shard       int
	}](t, "path_bytes") {
		path := must[Path](t)(ParsePath(row.Text))
		if hex.EncodeToString([]byte(path.canonical)) != row.Bytes || path.Shard() != row.Shard {
			t.Errorf("%+v: %x, %d", row, path.canonical, path.Shard())
		}
		if read := must[Path](t)(pathFromBytes(unhex(t, row.Bytes))); read != path {
			t.Errorf("%+v is read as %v", row, read)
		}
	}
}

func TestMessagesEndWhereTheVectorsSayWhereverTheyAreCut(t *testing.T) {
	for _, row := range vectorRows[struct {
		Bytes, End string
		Messages   []string
	}](t, "messages") {
		data := unhex(t, row.Bytes)
		cuts := [][][]byte{{data}, slices.Collect(slices.Chunk(data, 1))}
		for at := 1; at < min(len(data), 300); at++ {
			cuts = append(cuts, [][]byte{data[:at], data[at:]})
		}
		for _, pieces := range cuts {
			found, err := splitPieces(pieces)
			if (err != nil) != (row.End == "error" || row.End == "too_long") {
				t.Errorf("%+v, in %d pieces: %v", row, len(pieces), err)
			}
			// What came before an error may be told or not, as the pieces fall.
			if expected := row.Messages[:min(len(found), len(row.Messages))]; !slices.Equal(found, expected) ||
				(err == nil && len(found) != len(row.Messages)) {
				t.Errorf("%+v, in %d pieces: %v", row, len(pieces), found)
			}
		}
	}
}

func splitPieces(pieces [][]byte) ([]string, error) {
	var s msgpack.Splitter
	found := []string{}
	for _, data := range pieces {
		for len(data) > 0 {
			count := copy(s.Room(), data)
			s.Read(count)
			data = data[count:]
			for {
				m, err := s.Next()
				if err != nil {
					return found, err
				}
				if m == nil {
					break
				}
				found = append(found, hex.EncodeToString(m))
			}
		}
	}
	return found, nil
}

func versionOfVector(t *testing.T, told []any) Version {
	t.Helper()
	tick := int64(-1)
	if told[2] != nil {
		tick = int64(told[2].(float64))
	}
	return Version{int64(told[0].(float64)), told[1].(string), tick}
}

func TestVersionsCompareAsInTheVectors(t *testing.T) {
	for _, row := range vectorRows[struct {
		One, Other []any
		Order      int
	}](t, "versions") {
		one, other := versionOfVector(t, row.One), versionOfVector(t, row.Other)
		if found := one.Compare(other); found != row.Order {
			t.Errorf("%+v: %d", row, found)
		}
		if read, err := ParseVersion(one.String()); err != nil || read != one {
			t.Errorf("%v is read as %v, %v", one, read, err)
		}
	}
}

func TestWhatAWatchRemembersIsWhatTheVectorsSay(t *testing.T) {
	words := map[string]look{"new": lookNew, "known": lookKnown, "older": lookOlder, "doubtful": lookDoubtful}
	for _, row := range vectorRows[struct {
		PathsMax int `json:"paths_max"`
		BytesMax int `json:"bytes_max"`
		Steps    []struct {
			Do, Path, Node, Look       string
			Tock, Tick                 int64
			Version                    []any
			Value                      *int
			Resuming, Delivered, Whole bool
			NotSeen                    []string `json:"not_seen"`
		}
	}](t, "memory") {
		m := newMemory(row.PathsMax, row.BytesMax)
		for number, step := range row.Steps {
			path := Path{}
			if step.Path != "" {
				path = MustPath(step.Path)
			}
			switch step.Do {
			case "begin_feed":
				m.beginFeed()
			case "gone":
				m.onGone(path, versionOfVector(t, step.Version), step.Tock)
			case "clear":
				m.clear()
			case "look":
				entry := Entry{Deleted: step.Value == nil, Version: Version{step.Tock, step.Node, step.Tick}, tock: step.Tock}
				if step.Value != nil {
					entry.Value = Value{byte(*step.Value)}
				}
				if found := m.look(path, entry, step.Resuming); found != words[step.Look] {
					t.Fatalf("step %d: %+v: %d", number, step, found)
				}
				if step.Delivered {
					m.onDelivered(path, entry, byFeed)
				}
			default:
				t.Fatal(step.Do)
			}
			notSeen := []string{}
			for path := range m.notSeen() {
				notSeen = append(notSeen, path.String())
			}
			slices.Sort(notSeen)
			if m.isWhole() != step.Whole || !slices.Equal(notSeen, step.NotSeen) {
				t.Fatalf("step %d: %+v: %v, %v", number, step, m.isWhole(), notSeen)
			}
		}
	}
}

func TestViewsAreReadAndDifferAsTheVectorsSay(t *testing.T) {
	type shown struct {
		Name, State    string
		Incarnation    int64
		Client, Gossip string
		Ready, Live    bool
		Counts         bool
	}
	var before []Node
	for _, row := range vectorRows[struct {
		Report                  string
		Source                  string
		Nodes                   []shown
		Added, Removed, Changed []string
	}](t, "views") {
		nodes, source, ok := decodeView(unhex(t, row.Report))
		if !ok || source != row.Source {
			t.Error(ok, source)
		}
		found := []shown{}
		for _, n := range nodes {
			found = append(found, shown{n.Name, n.State, n.incarnation, n.Client, n.Gossip, n.Ready, n.IsLive(), n.counts()})
		}
		if !slices.Equal(found, row.Nodes) {
			t.Errorf("%+v, not %+v", found, row.Nodes)
		}
		added, removed, changed := compareViews(before, nodes)
		names := [3][]string{{}, {}, {}}
		for _, node := range added {
			names[0] = append(names[0], node.Name)
		}
		for _, node := range removed {
			names[1] = append(names[1], node.Name)
		}
		for _, change := range changed {
			names[2] = append(names[2], change.After.Name)
		}
		for i, expected := range [3][]string{row.Added, row.Removed, row.Changed} {
			if !slices.Equal(names[i], expected) {
				t.Errorf("%v, not %v", names[i], expected)
			}
		}
		before = nodes
	}
}

func TestTheTableOfShardsIsReadAsTheVectorsSay(t *testing.T) {
	for _, row := range vectorRows[struct {
		Reply string
		Next  *string
		Rows  []struct {
			ID, Start, End string
			First, Last    int
			Prefer         string
		}
	}](t, "shard_pages") {
		reply := message(unhex(t, row.Reply))
		count := 0
		msgpack.Items(reply.get("result"), func(item []byte) bool {
			found, ok := shardRowOf(item)
			expected := row.Rows[count]
			id := must[uint64](t)(strconv.ParseUint(expected.ID, 10, 64))
			want := ShardRow{id, [16]byte(unhex(t, expected.Start)), [16]byte(unhex(t, expected.End)), expected.First,
				expected.Last, expected.Prefer}
			if !ok || found != want {
				t.Errorf("%+v, not %+v", found, want)
			}
			count++
			return true
		})
		next, _ := msgpack.Bytes(reply.get("next"))
		if count != len(row.Rows) || hex.EncodeToString(next) != text(row.Next) {
			t.Error(count, next)
		}
	}
}

func text(told *string) string {
	if told == nil {
		return ""
	}
	return *told
}
