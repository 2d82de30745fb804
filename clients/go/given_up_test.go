package distkv

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Calls that their caller gave up, or that had no time from the beginning: what is sent, and what is known then.

func TestACallThatIsCancelledSaysWhatIsKnown(t *testing.T) {
	one := &scripted{name: "s1", script: always(silence{})}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		until(t, func() bool { return len(one.actions("set_value")) == 1 })
		cancel()
	}()
	_, err := client.Put(ctx, PathOf("a"), 1, nil)
	failed := wantError(t, err, context.Canceled)
	if failed.Fate != Unknown || failed.Code != "canceled" || !errors.Is(err, ErrFateUnknown) {
		t.Errorf("%+v", failed)
	}
	_, err = client.Get(ctx, PathOf("a"), nil)
	if failed = wantError(t, err, context.Canceled); failed.Fate != NotDone || errors.Is(err, ErrFateUnknown) {
		t.Errorf("%+v", failed)
	}
}

// asked are the requests that a scripted node got for calls of a program, and not by the client's own doing.
func (s *scripted) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for _, request := range s.requests {
		if action := request.text("action"); action != "cluster" && action != "watch_cluster" && action != "list_shards" {
			found = append(found, action)
		}
	}
	return found
}

func TestACallWithoutTimeSendsNothing(t *testing.T) {
	node := &scripted{name: "s1"}
	client := connect(t, Config{Seeds: startScripted(t, node)})
	path := PathOf("a")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	const none = -time.Nanosecond
	get := func(mode ReadMode) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := client.Get(ctx, path, &GetOptions{Read: mode, Timeout: none})
			return err
		}
	}
	for name, row := range map[string]struct {
		ctx        context.Context
		kind       error
		operations map[string]func(context.Context) error
	}{
		"cancelled":        {canceled, context.Canceled, operations(client, path)},
		"its time is over": {expired, context.DeadlineExceeded, operations(client, path)},
		"an option": {t.Context(), context.DeadlineExceeded, map[string]func(context.Context) error{
			"get": get(Preferred), "any": get(AnyNode), "freshest": get(Freshest),
			"put": func(ctx context.Context) error {
				_, err := client.Put(ctx, path, 1, &PutOptions{Timeout: none})
				return err
			},
			"delete": func(ctx context.Context) error {
				_, err := client.Delete(ctx, path, &DeleteOptions{Timeout: none})
				return err
			},
			"batch": func(ctx context.Context) error {
				_, err := client.Batch().Put(path, 1, nil).Run(ctx, &BatchOptions{Timeout: none})
				return err
			},
			"request": func(ctx context.Context) error {
				_, err := client.Request(ctx, "status", nil, &RequestOptions{Timeout: none})
				return err
			},
		}},
	} {
		for what, operation := range row.operations {
			failed := wantError(t, operation(row.ctx), row.kind)
			if failed.Fate != NotDone || failed.Attempts != 0 || errors.Is(failed, ErrFateUnknown) {
				t.Errorf("%s, %s: %+v", name, what, failed)
			}
			if errors.Is(failed, ErrUnavailable) != (row.kind == context.DeadlineExceeded) {
				t.Errorf("%s, %s: of which kind it is: %v", name, what, failed)
			}
		}
	}
	// What was sent before comes before this.
	if _, err := client.Get(t.Context(), path, nil); err != nil {
		t.Error(err)
	}
	if found := node.asked(); len(found) != 1 || found[0] != "get_value" {
		t.Error("it was sent:", found)
	}
}

func TestAListingOfConflictsThatIsCancelledIsAnError(t *testing.T) {
	empty, silent := several{{"state": "start"}, {"state": "end"}}, silence{}
	for name, list := range map[string]func(client *Client, ctx context.Context) error{
		"at once": func(client *Client, ctx context.Context) error {
			_, err := client.ConflictsList(ctx, Path{})
			return err
		},
		"one by one": func(client *Client, ctx context.Context) error {
			var last error
			for _, last = range client.Conflicts(ctx, Path{}) {
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := &scripted{name: "s1", script: always(empty)}, &scripted{name: "s2", script: always(silent)}
			client := connect(t, Config{Seeds: startScripted(t, one, two)})
			allLive(t, client, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- list(client, ctx) }()
			until(t, func() bool {
				// Both were asked, and the one that answers was read to its end.
				return len(one.actions("conflicts"))*len(two.actions("conflicts")) > 0 && client.Stats().Pool.OpenRequests == 2
			})
			cancel()
			if failed := wantError(t, <-result, context.Canceled); failed.Fate != NotDone {
				t.Errorf("%+v", failed)
			}
		})
	}
}

func TestConnectingWithoutTimeSaysWhoseTimeItWas(t *testing.T) {
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer silent.Close()
	before := footprint()
	for name, seed := range map[string]string{"it is silent": silent.Addr().String(), "nobody listens": "127.0.0.1:1"} {
		for _, isContext := range []bool{true, false} {
			const patience = 60 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			config := Config{Seeds: []string{seed}, ConnectDeadline: patience}
			if isContext {
				config.ConnectDeadline = time.Hour
				ctx, cancel = context.WithTimeout(t.Context(), patience)
			}
			started := time.Now()
			_, err := Connect(ctx, config)
			took := time.Since(started) + time.Millisecond // It is rounded.
			cancel()
			wantError(t, err, ErrUnavailable)
			if errors.Is(err, context.DeadlineExceeded) != isContext {
				t.Errorf("%s: whose time it was: %v", name, err)
			}
			_, text, _ := strings.Cut(err.Error(), "within ")
			text, _, _ = strings.Cut(text, ":")
			// A context's time runs from before the call.
			least := patience - time.Millisecond
			if isContext {
				least = 0
			}
			if told, wrong := time.ParseDuration(text); wrong != nil || told < least || told > took {
				t.Errorf("%s: how long it was waited: %v", name, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := Connect(ctx, Config{Seeds: []string{seed}})
		wantError(t, err, context.Canceled)
	}
	nothingLeft(t, before)
}
