package distkv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// An address at which another node answers than the one that a view has there.

// held is what a node answers that holds this value, of that time.
func held(value string, tock int) func(message) any {
	return always(fields{"value": value, "tock": tock, "chain": fields{"node": "x~7", "tick": tock, "prev": nil}})
}

// listing is a node's answers, also to who asks for what it lists.
func listing(request message) any {
	switch request.text("action") {
	case "watch":
		return several{{"state": "start"}, {"state": "uptodate"}}
	case "conflicts":
		return several{{"state": "start"}, {"state": "end"}}
	}
	return with(writtenReply, "value", "there")
}

// misled is nodes "s1", "s2" and so on, which all say that the first one is where the last one is, and a client.
func misled(t *testing.T, config Config, scripts ...func(message) any) (*Client, []*scripted) {
	t.Helper()
	var nodes []*scripted
	for i, script := range scripts {
		nodes = append(nodes, &scripted{name: "s" + itemText(int64(i+1)), script: script})
	}
	seeds := startScripted(t, nodes...)
	for _, node := range nodes {
		node.places = map[string]string{"s1": nodes[len(nodes)-1].seed()}
	}
	config.Seeds = seeds[1:]
	return connect(t, config), nodes
}

// askedForViews is how often nodes were asked for the cluster view.
func askedForViews(nodes []*scripted) int {
	count := 0
	for _, node := range nodes {
		count += len(node.actions("watch_cluster"))
	}
	return count
}

// placeOf is where the client's view has a node.
func placeOf(client *Client, name string) string {
	return client.topology.routing().byName[name].address.String()
}

func TestAnotherNodeIsNotCountedInAMajority(t *testing.T) {
	client, nodes := misled(t, quick(), held("new", 2), held("new", 2), held("old", 1))
	read := func(patience time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return Get[string](ctx, client, PathOf("p"), &GetOptions{Read: Freshest})
	}
	if found, err := read(patient); found != "new" || err != nil {
		t.Fatal(found, err)
	}
	nodes[1].stop()
	_, err := read(3 * time.Second)
	if failed := wantError(t, err, ErrNoMajority); !strings.Contains(failed.Error(), "of 3 nodes 1 answered, 2 must") {
		t.Error(failed)
	}
}

func TestConflictsAreThoseOfTheNodesThatAnswer(t *testing.T) {
	client, nodes := misled(t, quick(), listing, listing, listing)
	found, err := client.ConflictsList(t.Context(), Path{})
	if err != nil || !slices.Equal(found.Nodes, []string{"s2", "s3"}) || len(found.Missing) != 1 {
		t.Error(found, err)
	}
	missing := wantError(t, found.Missing["s1"], ErrUnavailable)
	if missing.Node != "s1" || !strings.Contains(missing.Error(), "at "+nodes[2].seed()+" another node answers, s3") {
		t.Error(missing)
	}
	for i, count := range []int{0, 1, 1} {
		if asked := len(nodes[i].actions("conflicts")); asked != count {
			t.Error(nodes[i].name, asked)
		}
	}
}

func TestCallsAndStreamsGoOnAtAnotherNode(t *testing.T) {
	client, nodes := misled(t, quick(), listing, listing, listing)
	// The node at whose address the first one is said to be comes next.
	var path Path
	for n := int64(0); ; n++ {
		path = PathOf("p" + itemText(n))
		if order := client.topology.routing().order(path.Shard()); order[0].name == "s1" && order[1].name == "s3" {
			break
		}
	}
	if written := put(t, client, path, 1, nil); written.Node != "s3" || written.Attempts > 2 {
		t.Errorf("%+v", written)
	}
	// It is known by now that the first one is not there.
	if written := put(t, client, path, 1, nil); written.Node != "s3" || written.Attempts != 1 {
		t.Errorf("%+v", written)
	}
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	if watch.Node() != "s3" {
		t.Error(watch.Node())
	}
	if nodes[0].accepted != 0 {
		t.Error(nodes[0].accepted)
	}
}

func TestACallThatIsMadeAgainAtItsNodeGoesToThatNode(t *testing.T) {
	told := make(chan any, 1)
	told <- errorReply("unknown_fate")
	client, _ := misled(t, quick(), listing, listing, func(message) any {
		select {
		case reply := <-told:
			return reply
		default:
			return writtenReply
		}
	})
	if written := put(t, client, preferredPath(t, client, "s3"), 1, &PutOptions{Copies: 1}); written.Node != "s3" || written.Attempts != 2 {
		t.Errorf("%+v", written)
	}
}

func TestAViewThatIsWrongIsAskedForAnewAtAnotherNode(t *testing.T) {
	var nodes []*scripted
	for _, name := range []string{"s1", "s2", "s3"} {
		nodes = append(nodes, &scripted{name: name, script: listing})
	}
	seeds := startScripted(t, nodes...)
	nodes[2].places = map[string]string{"s1": seeds[2]}
	config := quick()
	config.Seeds = seeds[2:]
	client := connect(t, config)
	if where := placeOf(client, "s1"); where != seeds[2] {
		t.Fatal(where)
	}
	path := preferredPath(t, client, "s1")
	put(t, client, path, 1, nil)
	until(t, func() bool { return placeOf(client, "s1") == seeds[0] })
	if written := put(t, client, path, 1, nil); written.Node != "s1" {
		t.Errorf("%+v", written)
	}
}

func TestAWrongViewIsAskedForAnewNowAndThen(t *testing.T) {
	client, nodes := misled(t, quick(), listing, listing, listing)
	for count := 2; count < 5; count++ {
		until(t, func() bool { // While it still asks for one, no other one is asked for.
			_ = must[ConflictsFound](t)(client.ConflictsList(t.Context(), Path{}))
			return askedForViews(nodes) >= count
		})
		_ = must[ConflictsFound](t)(client.ConflictsList(t.Context(), Path{}))
		if asked := askedForViews(nodes); asked != count {
			t.Fatal(asked, count)
		}
		client.topology.mu.Lock()
		if left := client.topology.askAgain - now(); left > askAnewAfter || left < askAnewAfter-patient {
			t.Error(left)
		}
		client.topology.askAgain = 0
		client.topology.mu.Unlock()
	}
}

func TestANodeThatIsNotLiveIsNoReasonToAskAnew(t *testing.T) {
	client, nodes := misled(t, quick(), held("a", 1), held("a", 1), held("a", 1))
	for _, node := range nodes {
		node.tellDown("s1")
	}
	until(t, func() bool { return !client.topology.routing().byName["s1"].isLive })
	for range 3 {
		if found, err := Get[string](t.Context(), client, PathOf("p"), &GetOptions{Read: Freshest}); found != "a" || err != nil {
			t.Error(found, err)
		}
	}
	if asked := askedForViews(nodes); asked != 1 {
		t.Error(asked)
	}
}

func TestANodeWithANewNameIsFoundWhereItWas(t *testing.T) {
	one := &scripted{name: "old", script: listing}
	config := quick()
	config.Seeds = startScripted(t, one)
	client := connect(t, config)
	if written := put(t, client, PathOf("p"), 1, nil); written.Node != "old" {
		t.Fatalf("%+v", written)
	}
	one.stop()
	one.name = "new"
	one.startAgain(t)
	if written := put(t, client, PathOf("p"), 1, nil); written.Node != "new" {
		t.Errorf("%+v", written)
	}
	if nodes := client.ClusterView().Nodes; len(nodes) != 1 || nodes[0].Name != "new" {
		t.Error(nodes)
	}
}

func TestSeedsHaveNoNameToAnswerTo(t *testing.T) {
	one := &scripted{name: "old", script: listing}
	config := quick()
	config.Topology = TopologyConfig{OnlySeeds: true, OldNodesDelay: time.Hour}
	config.Seeds = startScripted(t, one)
	client := connect(t, config)
	if written := put(t, client, PathOf("p"), 1, nil); written.Node != "old" {
		t.Fatalf("%+v", written)
	}
	one.stop()
	one.name = "new"
	one.startAgain(t)
	if written := put(t, client, PathOf("p"), 1, nil); written.Node != "new" {
		t.Errorf("%+v", written)
	}
	if name := client.ClusterView().Nodes[0].Name; name != "old" {
		t.Error(name, "the view is not asked for anew so soon")
	}
}

func TestWhatAnswersInsteadIsTold(t *testing.T) {
	client, nodes := misled(t, quick(), listing, always(errorReply("not_ready")))
	to := client.topology.routing().byName["s1"]
	_, failed := client.pool.getAt(t.Context(), to.place(), now()+patient, forCall)
	if failed == nil || failed.text != "at "+nodes[1].seed()+" another node answers, s2" {
		t.Error(failed)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := client.Get(ctx, preferredPath(t, client, "s1"), nil)
	if wantError(t, err, ErrUnavailable); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if nodes[1].accepted != 1 {
		t.Error(nodes[1].accepted, "the connection is kept for the node that it is")
	}
	if shown := otherNode(address{"h", 1}, "a\nb").text; shown != `at h:1 another node answers, "a\nb"` {
		t.Error(shown)
	}
}
