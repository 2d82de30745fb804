package distkv

import (
	"testing"

	"distkv.example/client/internal/msgpack"
)

func TestARequestThatMayHaveBeenMadeSaysSoUnlessItOnlyReads(t *testing.T) {
	config := quick()
	config.Retry.AttemptsMax = 1
	client, one, _, path := pair(t, config, onceThen(with(writtenReply, "tock", 9), reset{}))
	put(t, client, path, 1, nil)
	options := &RequestOptions{Path: &path, Idempotent: true}
	_, err := client.Request(t.Context(), "set_value", map[string]any{"value": 1}, options)
	if failed := wantError(t, err, ErrFateUnknown); failed.Fate != Unknown {
		t.Errorf("%+v", failed)
	}
	if sent := one.actions("set_value")[1]; sent.integer("above", 0) != 9 {
		t.Error("it does not come after what was written before:", Value(sent))
	}
	until(t, func() bool {
		return client.Preferred(path) == "s1" && !client.pool.isFailing(client.topology.routing().byName["s1"].address)
	})
	_, err = client.Request(t.Context(), "enum", nil, options)
	if failed := wantError(t, err, ErrUnavailable); failed.Fate != NotDone {
		t.Errorf("%+v", failed)
	}
	if len(one.actions("enum")) != 1 || one.actions("enum")[0].get("above") != nil {
		t.Error(one.actions("enum"))
	}
}

func TestARequestThatIsAnsweredWithAStreamIsRefused(t *testing.T) {
	one := &scripted{name: "s1", script: always(several{{"state": "start"}, {"value": 1}})}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	for action := range streaming {
		before := len(one.actions(action))
		_, err := client.Request(t.Context(), action, nil, &RequestOptions{Idempotent: true})
		wantError(t, err, ErrUsage)
		if len(one.actions(action)) != before {
			t.Error(action, "was sent")
		}
	}
	_, err := client.Request(t.Context(), "delete_tree", map[string]any{"nchain": uint8(1)}, nil)
	wantError(t, err, ErrUsage)
	// Of an action that the client does not know, it sees that once it has begun.
	_, err = client.Request(t.Context(), "tell_all", nil, nil)
	wantError(t, err, ErrFateUnknown)
	sent := one.actions("tell_all")[0].get("seq")
	until(t, func() bool { return len(one.actions("stop")) == 1 })
	task, _ := msgpack.Integer(one.actions("stop")[0].get("task"))
	if seq, _ := msgpack.Integer(sent); task != seq {
		t.Error(seq, task)
	}
}
