package distkv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestWhatNothingWasTriedForHasNoAttempts(t *testing.T) {
	client := connect(t, Config{Seeds: shared(t)})
	ctx, path := context.Background(), base()
	watch := must[*Watch](t)(client.OpenWatch(ctx, path, nil))
	monitor := must[*Monitor](t)(client.OpenMonitor(ctx, path))
	if err := client.Close(ctx); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"a put":               func() error { _, err := client.Put(ctx, path, 1, nil); return err },
		"a get":               func() error { _, err := client.Get(ctx, path, nil); return err },
		"a get of any":        func() error { _, err := client.Get(ctx, path, &GetOptions{Read: AnyNode}); return err },
		"a get of a majority": func() error { _, err := client.Get(ctx, path, &GetOptions{Read: Freshest}); return err },
		"a deletion":          func() error { _, err := client.Delete(ctx, path, nil); return err },
		"a tree's deletion":   func() error { _, err := client.DeleteTree(ctx, path, nil); return err },
		"a tree":              func() error { _, err := client.TreeList(ctx, path, nil); return err },
		"a message":           func() error { return client.Send(ctx, path, 1) },
		"a request":           func() error { _, err := client.Request(ctx, "auth_info", nil, nil); return err },
		"all conflicts":       func() error { _, err := client.ConflictsList(ctx, path); return err },
		"conflicts": func() (err error) {
			for _, failed := range client.Conflicts(ctx, path) {
				err = failed
			}
			return err
		},
		"a new watch":   func() error { _, err := client.OpenWatch(ctx, path, nil); return err },
		"a new monitor": func() error { _, err := client.OpenMonitor(ctx, path); return err },
		"an open watch": func() (err error) {
			for err == nil { // What had come before.
				_, err = watch.Next(ctx)
			}
			return err
		},
		"an open monitor": func() error { _, err := monitor.Next(ctx); return err },
		"the shards":      func() error { return client.RefreshShards(ctx) },
	}
	for name, call := range calls {
		err := call()
		var failed *Error
		if !errors.As(err, &failed) || !errors.Is(err, ErrClosed) || failed.Attempts != 0 || strings.Contains(err.Error(), "1 try") {
			t.Errorf("%s: %v", name, err)
		}
	}
	late, cancel := context.WithTimeout(ctx, -time.Second)
	defer cancel()
	if _, err := client.Get(late, path, nil); err == nil || strings.Contains(err.Error(), "try") {
		t.Error(err)
	}
}
