package distkv

// A client that is closed while calls wait for their next try.

import (
	"context"
	"testing"
	"time"
)

func TestCallsThatPauseAreClosedAtOnce(t *testing.T) {
	one := &scripted{name: "s1", script: always(errorReply("not_ready"))}
	// The next try would be in half a minute or a whole one.
	slow := RetryPolicy{InitialDelay: time.Minute, DelayMax: time.Minute, TotalDeadline: 5 * time.Minute}
	client := connect(t, Config{Seeds: startScripted(t, one), Retry: slow})
	results := make(chan error, 3)
	for _, call := range []func() error{
		func() error { _, err := client.Get(context.Background(), PathOf("a"), nil); return err },
		func() error { _, err := client.Put(context.Background(), PathOf("a"), 1, nil); return err },
		func() error {
			_, err := client.Get(context.Background(), PathOf("a"), &GetOptions{Read: Freshest})
			return err
		},
	} {
		go func() { results <- call() }()
	}
	until(t, func() bool { return len(one.actions("get_value")) == 2 && len(one.actions("set_value")) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_ = client.Close(ctx)
	for range 3 {
		select {
		case err := <-results:
			wantError(t, err, ErrClosed)
		case <-time.After(20 * time.Second):
			t.Fatal("a call still waits for its next try")
		}
	}
}
