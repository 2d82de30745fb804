package distkv

import (
	"context"
	"sync"
	"testing"
	"time"
)

// How watches and monitors look for a node again, against a scripted one whose streams break.

// follower is a watch or a monitor, by what the node is asked for.
type follower struct {
	action string
	item   fields // what brings a message to its reader
	open   func(client *Client, ctx context.Context) (next func(ctx context.Context) error, of *subscription, err error)
}

var followers = []follower{
	{"watch", with(writtenReply, "path", PathOf("a")), func(client *Client, ctx context.Context) (func(context.Context) error, *subscription, error) {
		w, err := client.OpenWatch(ctx, PathOf("a"), nil)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) error { _, err := w.Next(ctx); return err }, w.subscription, nil
	}},
	{"msg_monitor", fields{"topic": PathOf("a"), "data": 1}, func(client *Client, ctx context.Context) (func(context.Context) error, *subscription, error) {
		m, err := client.OpenMonitor(ctx, PathOf("a"))
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) error { _, err := m.Next(ctx); return err }, m.subscription, nil
	}},
}

func TestAStreamThatBreaksAfterItsFirstMessageIsLookedForWithPauses(t *testing.T) {
	const breaks = 6
	for _, one := range followers {
		for how, end := range map[string]fields{"it ends": {"state": "end"}, "the connection is lost": nil} {
			t.Run(one.action+", "+how, func(t *testing.T) {
				var mu sync.Mutex
				var asked []time.Time
				node := &scripted{name: "s1", script: func(request message) any {
					if request.text("action") != one.action {
						return silence{}
					}
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, time.Now())
					return several{{"state": "start"}, one.item, end}
				}}
				// No stream lasts as long as the longest pause, however slow the machine is.
				policy := RetryPolicy{InitialDelay: 10 * time.Millisecond, DelayMax: time.Hour}
				client := connect(t, Config{Seeds: startScripted(t, node), Retry: policy})
				ctx, cancel := context.WithCancel(t.Context())
				next, of, err := one.open(client, ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer of.Close()
				var reading sync.WaitGroup
				reading.Go(func() {
					for next(ctx) == nil {
					}
				})
				until(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(asked) > breaks
				})
				cancel()
				reading.Wait()
				for failures := 1; failures <= breaks; failures++ {
					pause := asked[failures].Sub(asked[failures-1])
					if least := backoff(policy.InitialDelay, 2, policy.DelayMax, failures, 0); pause < least {
						t.Errorf("search %d came after %v, and not %v", failures, pause, least)
					}
				}
			})
		}
	}
}

func TestAStreamThatHasLastedIsLookedForAtOnce(t *testing.T) {
	for _, one := range followers {
		t.Run(one.action, func(t *testing.T) {
			node := &scripted{name: "s1", script: always(several{{"state": "start"}, one.item})}
			client := connect(t, Config{Seeds: startScripted(t, node),
				Retry: RetryPolicy{InitialDelay: time.Millisecond, DelayMax: 10 * time.Millisecond}})
			next, of, err := one.open(client, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer of.Close()
			for range 3 {
				from, _ := of.now()
				until(t, func() bool { return now()-from.since >= client.config.Retry.DelayMax })
				from.conn.close("a test's own")
				until(t, func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					_ = next(ctx)
					found, _ := of.now()
					return found != nil && found != from
				})
				if of.search.tried != 1 {
					t.Error("it was waited before search", of.search.tried)
				}
			}
		})
	}
}
