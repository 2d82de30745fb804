package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	distkv "distkv.example/client"
)

// errorsMax is how many errors of a storm are told.
const errorsMax = 5

// looksMax is more looks at its context than any operation takes.
const looksMax = 400

// sockets is how many sockets this process has open.
func sockets() int {
	found := 0
	files, _ := os.ReadDir("/proc/self/fd")
	for _, file := range files {
		if to, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			found++
		}
	}
	return found
}

// operations are everything that a client does.
func operations(client *distkv.Client, path distkv.Path) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { _, err := client.Get(ctx, path, nil); return err },
		func(ctx context.Context) error { _, err := client.Entry(ctx, path, nil); return err },
		func(ctx context.Context) error {
			_, err := client.Get(ctx, path, &distkv.GetOptions{Read: distkv.Freshest})
			return err
		},
		func(ctx context.Context) error {
			_, err := client.Put(ctx, path, 2, &distkv.PutOptions{Copies: 1})
			return err
		},
		func(ctx context.Context) error { _, err := client.Delete(ctx, path, nil); return err },
		func(ctx context.Context) error {
			_, err := client.Batch().Put(path, 1, nil).Get(path).Run(ctx, nil)
			return err
		},
		func(ctx context.Context) error { _, err := client.TreeList(ctx, path, nil); return err },
		func(ctx context.Context) error {
			for event, err := range client.Watch(ctx, path, nil) {
				if _, isThere := event.(distkv.UpToDate); isThere || err != nil {
					return err
				}
			}
			return nil
		},
		func(ctx context.Context) error { _, err := client.ConflictsList(ctx, path); return err },
		client.RefreshShards,
	}
}

// countdown is a context that ends when it was looked at so many times: so a call is cancelled at each place where it waits.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func (c *countdown) look() {
	if c.left.Add(-1) <= 0 {
		c.cancel()
	}
}

func (c *countdown) Done() <-chan struct{} { c.look(); return c.Context.Done() }

func (c *countdown) Err() error { c.look(); return c.Context.Err() }

// cancelEverywhere begins each operation again and again, and cancels it at its first wait, at its second, and so on to
// its end.
func cancelEverywhere(ctx context.Context, client *distkv.Client, path distkv.Path) (any, error) {
	places := 0
	every := operations(client, path)
	for number, operation := range every {
		for looks := 1; ; looks++ {
			inner, cancel := context.WithCancel(ctx)
			counted := &countdown{Context: inner, cancel: cancel}
			counted.left.Store(int64(looks))
			err := operation(counted)
			isWhole := counted.left.Load() > 0
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, distkv.ErrNotFound) {
				return nil, err
			}
			if isWhole {
				break
			}
			if places++; looks > looksMax {
				return nil, fmt.Errorf("operation %d never ends", number)
			}
		}
		// And after a while, wherever it is then.
		for range 20 {
			soon, cancel := context.WithTimeout(ctx, rand.N(2*time.Millisecond))
			_ = operation(soon)
			cancel()
		}
	}
	return object{"operations": len(every), "is_many": places >= len(every)}, nil
}

// storm is many goroutines that write and read, while the runner kills nodes.
type storm struct {
	client *distkv.Client
	// nodes: one client for each, where writes go to any of them.
	nodes        []*distkv.Client
	isOver       atomic.Bool
	writes       atomic.Int64
	working      sync.WaitGroup
	acknowledged sync.Map

	mu     sync.Mutex
	errors []string
}

// beginStorm: with nodes, each write goes to any of these addresses.
func beginStorm(ctx context.Context, client *distkv.Client, order object) (*storm, error) {
	s := &storm{client: client, errors: []string{}}
	nodes, _ := order["nodes"].([]any)
	for _, node := range nodes {
		one, err := distkv.Connect(ctx, distkv.Config{Seeds: []string{text(node, "")},
			Topology: distkv.TopologyConfig{OnlySeeds: true}, Retry: distkv.RetryPolicy{TotalDeadline: time.Second / 2}})
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, one)
	}
	for task := range int(number(order["tasks"])) {
		s.working.Go(func() {
			for count := 1; !s.isOver.Load(); count++ {
				if err := s.once(ctx, task, count); err != nil {
					s.mu.Lock()
					if len(s.errors) < errorsMax {
						s.errors = append(s.errors, err.Error())
					}
					s.mu.Unlock()
				}
			}
		})
	}
	return s, nil
}

// once is a write of its own, one where all write, and now and then a read.
func (s *storm) once(ctx context.Context, task, count int) error {
	path, value := distkv.PathOf("storm", task, count%8), fmt.Sprintf("%d of %d", count, task)
	if _, err := s.writer().Put(ctx, path, value, &distkv.PutOptions{Copies: 1}); err != nil {
		return err
	}
	s.acknowledged.Store(path, value)
	// Where all write, nobody's value is expected to stay.
	if _, err := s.writer().Put(ctx, distkv.PathOf("shared", count%8), value, nil); err != nil {
		return err
	}
	s.writes.Add(2)
	if count%3 != 0 || s.nodes != nil {
		return nil
	}
	found, err := distkv.Get[string](ctx, s.client, path, nil)
	if err == nil && found != value {
		return fmt.Errorf("%v is %q, not %q", path, found, value)
	}
	return err
}

func (s *storm) writer() *distkv.Client {
	if s.nodes == nil {
		return s.client
	}
	return s.nodes[rand.IntN(len(s.nodes))]
}

// end is what was written, and what of it is missing.
func (s *storm) end(ctx context.Context) (any, error) {
	s.isOver.Store(true)
	s.working.Wait()
	missing := 0
	s.acknowledged.Range(func(path, value any) bool {
		if found, err := distkv.Get[string](ctx, s.client, path.(distkv.Path), nil); err != nil || found != value {
			missing++
		}
		return true
	})
	for _, node := range s.nodes {
		_ = node.Close(ctx)
	}
	return object{"writes": s.writes.Load(), "missing": missing, "errors": s.errors}, nil
}
