package distkv

import (
	"errors"
	"testing"
	"time"
)

// Where a write with a condition goes when what it builds on is at a node that the others call down, and that clients reach all
// the same.

var (
	oldReply = with(with(writtenReply, "value", "old"), "tock", 1)
	newReply = with(with(writtenReply, "value", "new"), "tock", 9)
)

// splitNodes is two live nodes, which take no condition, and one that they call down and that alone has the client's change of the
// path. Each answers what its channel had last.
func splitNodes(t *testing.T, config Config) (client *Client, path Path, nodes []*scripted, answer func(name string, reply any)) {
	t.Helper()
	answers := map[string]any{"s1": oldReply, "s2": oldReply, "s3": newReply}
	asked := make(chan struct{}, 1)
	asked <- struct{}{}
	told := func(name string) any {
		<-asked
		defer func() { asked <- struct{}{} }()
		return answers[name]
	}
	answer = func(name string, reply any) {
		<-asked
		answers[name] = reply
		asked <- struct{}{}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		nodes = append(nodes, &scripted{name: name, script: func(request message) any {
			reply := told(name)
			hasCondition := request.get("chain") != nil || request.get("prev") != nil
			if found, isMap := reply.(fields); isMap && hasCondition && found["value"] == "old" {
				return errorReply("chain_mismatch")
			}
			return reply
		}})
	}
	client = joined(t, config, nodes...)
	path = preferredPath(t, client, "s3")
	if written := put(t, client, path, "new", nil); written.Node != "s3" {
		t.Fatal(written)
	}
	nodes[0].tellDown("s3")
	nodes[1].tellDown("s3")
	until(t, func() bool { return client.Preferred(path) != "s3" })
	return client, path, nodes, answer
}

// patientQuick is a client that looks for its own writes as long as a test lasts.
func patientQuick() Config {
	config := quick()
	config.OwnWritePatience = time.Hour
	return config
}

func TestWhatWasReadAtANodeThatIsCalledDownIsChangedThere(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest} {
		client, path, nodes, answer := splitNodes(t, patientQuick())
		wantNode := func(isThere bool, path Path, options *PutOptions) {
			t.Helper()
			written := put(t, client, path, "newer", options)
			if (written.Node == "s3") != isThere || written.Attempts != 1 {
				t.Errorf("%v %+v", mode, written)
			}
		}
		for range 2 {
			entry := must[Entry](t)(client.Entry(t.Context(), path, &GetOptions{Read: mode}))
			wantNode(true, path, &PutOptions{IfVersion: entry.Version})
			// So is what this client has changed there, whatever the condition is.
			wantNode(true, path, &PutOptions{IfNew: true})
			wantNode(true, path, &PutOptions{IfValue: "new"})
			if deleted := must[Written](t)(client.Delete(t.Context(), path, &DeleteOptions{IfVersion: entry.Version})); deleted.Node != "s3" {
				t.Error(mode, deleted)
			}
		}
		answer("s3", fields{"results": []any{newReply, newReply}, "tock": 9})
		batch := client.Batch().Put(PathOf("other"), 1, nil).Put(path, 1, &PutOptions{IfNew: true})
		if _, err := batch.Run(t.Context(), nil); err != nil || len(nodes[2].actions("batch")) != 1 {
			t.Error(mode, err)
		}
		// Without a condition, and with that of another path, a live node takes it.
		for _, name := range []string{"s1", "s2", "s3"} {
			answer(name, newReply)
		}
		wantNode(false, PathOf("third"), &PutOptions{IfNew: true})
		wantNode(false, path, nil)
		wantNode(false, path, &PutOptions{IfNew: true})
	}
}

func TestOnceALiveNodeHasItOrSomethingLaterItIsChangedThere(t *testing.T) {
	for _, mode := range []ReadMode{Preferred, Freshest, AnyNode} {
		client, path, _, answer := splitNodes(t, patientQuick())
		entry := must[Entry](t)(client.Entry(t.Context(), path, nil))
		answer("s1", newReply)
		answer("s2", newReply)
		if mode == Freshest {
			answer("s3", silence{})
		}
		must[Value](t)(client.Get(t.Context(), path, &GetOptions{Read: mode}))
		if written := put(t, client, path, 1, &PutOptions{IfVersion: entry.Version}); written.Node == "s3" || written.Attempts != 1 {
			t.Errorf("%v %+v", mode, written)
		}
	}
}

func TestWhereThatNodeDoesNotAnswerTheNextOneIsAskedAndTheFateIsTold(t *testing.T) {
	config := quick()
	config.Retry.TryDeadline = 150 * time.Millisecond
	client, path, nodes, answer := splitNodes(t, config)
	entry := must[Entry](t)(client.Entry(t.Context(), path, nil))
	answer("s3", silence{})
	_, err := client.Put(t.Context(), path, 1, &PutOptions{IfVersion: entry.Version})
	if failed := wantError(t, err, ErrPrecondition); failed.Fate != Unknown || failed.Attempts != 2 || !errors.Is(err, ErrFateUnknown) {
		t.Errorf("%+v", failed)
	}
	if asked := len(nodes[2].actions("set_value")); asked != 2 {
		t.Error(asked)
	}
}

func TestTheNodeOfTheLastAnswerIsRememberedWhileItIsNotLive(t *testing.T) {
	own := newOwnWrites(2, &clock{})
	paths := []Path{PathOf("a"), PathOf("b"), PathOf("c")}
	own.onAnswer(paths[0], "n1")
	own.onAnswer(paths[1], "n2")
	own.onAnswer(paths[0], "n3")
	if own.apartOf(paths[0]) != "n3" || own.apartOf(paths[1]) != "n2" {
		t.Error(own.apart)
	}
	own.onAnswer(paths[0], "")
	if own.apartOf(paths[0]) != "" || !own.hasApart.Load() {
		t.Error(own.apart)
	}
	own.onAnswer(paths[1], "")
	if own.hasApart.Load() {
		t.Error(own.apart)
	}
	for _, path := range paths {
		own.onAnswer(path, "n1")
		if own.apartOf(path) != "n1" || len(own.apart) > 2 {
			t.Error(own.apart)
		}
	}
}
