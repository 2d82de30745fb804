package distkv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The table of shards, asked for where the client tells of its own fetch of it; and what else says how a try ended.

// waitingObserver waits for the table of shards where it is told that the client begins to fetch it itself.
type waitingObserver struct {
	noisyObserver
	wait    func(ctx context.Context, client *Client) error
	client  chan *Client
	results chan error
}

func (o *waitingObserver) CallBegins(ctx context.Context, action string) context.Context {
	if action != "list_shards" {
		return ctx
	}
	select {
	case client := <-o.client:
		o.results <- o.wait(ctx, client)
	default:
	}
	return ctx
}

func (o *waitingObserver) TryBegins(context.Context, string, int) {}

func TestAnObserverThatWaitsForTheTableOfShardsIsToldSo(t *testing.T) {
	for name, wait := range map[string]func(ctx context.Context, client *Client) error{
		"refresh":        func(ctx context.Context, c *Client) error { return c.RefreshShards(ctx) },
		"prefer":         func(ctx context.Context, c *Client) error { return c.PreferShard(ctx, 1, "s1") },
		"other refresh":  func(_ context.Context, c *Client) error { return c.RefreshShards(context.Background()) },
		"another prefer": func(_ context.Context, c *Client) error { return c.PreferShard(context.Background(), 1, "s1") },
	} {
		virtually(t, func(t *testing.T) {
			config := quick()
			config.Retry.TotalDeadline, config.ShardTableAge = time.Second, shardTableAgeMin
			observer := &waitingObserver{wait: wait, client: make(chan *Client, 1), results: make(chan error, 1)}
			config.Observer = observer
			client, one, two, _ := pair(t, config, always(writtenReply))
			observer.client <- client
			select {
			case err := <-observer.results:
				isOwn := name == "refresh" || name == "prefer"
				sent := len(one.actions("set_internal")) + len(two.actions("set_internal"))
				switch {
				case isOwn && (!errors.Is(err, ErrUsage) || sent != 0):
					t.Error(name, err, sent)
				case name == "other refresh" && (!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFateUnknown)):
					t.Error(name, err)
				case name == "another prefer" && (!errors.Is(err, ErrFateUnknown) || sent != 1):
					t.Error(name, err, sent)
				}
			case <-time.After(patient):
				t.Fatal(name, "it waits for itself")
			}
			if err := client.RefreshShards(t.Context()); err != nil {
				t.Error(name, "others are not held up:", err)
			}
		})
	}
}

// The first try was sent and not answered; then nobody can be connected to.
func TestATryThatWasSentIsNotSaidToHaveHadNoConnection(t *testing.T) {
	client, one, two, path := pair(t, shortTries(), nil)
	allLive(t, client, 2)
	one.mu.Lock()
	one.script = func(message) any {
		_, _ = one.listener.Close(), two.listener.Close()
		// A connection may have been on its way.
		two.mu.Lock()
		two.script = always(reset{})
		two.mu.Unlock()
		two.hangUpWith("")
		return reset{}
	}
	one.mu.Unlock()
	_, err := client.Put(t.Context(), path, 1, &PutOptions{Timeout: 3 * time.Second})
	if text := wantError(t, err, ErrFateUnknown).Error(); strings.Contains(text, "may have been done: cannot connect") ||
		!strings.Contains(text, "by an earlier try; the last one was not sent: ") {
		t.Error(text)
	}
	// Nobody has answered in time: it was connected.
	silent := &scripted{name: "s1", script: always(silence{})}
	client = connect(t, Config{Seeds: startScripted(t, silent)})
	for _, do := range []func() error{
		func() error {
			_, err := client.Put(t.Context(), path, 1, &PutOptions{Timeout: 300 * time.Millisecond})
			return err
		},
		func() error {
			_, err := client.Get(t.Context(), path, &GetOptions{Timeout: 300 * time.Millisecond})
			return err
		},
		func() error {
			_, err := client.Get(t.Context(), path, &GetOptions{Timeout: 300 * time.Millisecond, Read: Freshest})
			return err
		},
	} {
		if err := do(); err == nil || strings.Contains(err.Error(), "connect") {
			t.Error(err)
		}
	}
}

func TestALoginOfTheConfigurationCountsInsteadOfTheTickets(t *testing.T) {
	ticket := ticketFrom(fields{"addresses": []any{"n2"}, "network": "hers", "method": "password", "user": "ann", "secret": "x"})
	config := Config{Login: PasswordLogin("bea", "y"), Seeds: []string{"n1"}, Network: "mine", Ticket: ticket}
	if err := config.withTicket(); err != nil {
		t.Fatal(err)
	}
	if config.Login.User != "bea" || config.Seeds[0] != "n1" || config.Network != "mine" {
		t.Errorf("%+v", config)
	}
	config = Config{Ticket: ticket}
	if err := config.withTicket(); err != nil || config.Login == nil || config.Login.User != "ann" || config.Seeds[0] != "n2" || config.Network != "hers" {
		t.Errorf("%+v %v", config, err)
	}
}
