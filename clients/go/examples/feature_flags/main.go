// All flags in memory, kept up to date by a watch: go run ./examples/feature_flags [SEED…].
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	distkv "distkv.example/client"
)

var above = distkv.MustPath("flags")

// flags are asked without a call; what is asked is at most as old as the network is slow.
type flags struct {
	mu    sync.RWMutex
	on    map[distkv.Path]bool
	ready chan struct{}
}

func (f *flags) isOn(name string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.on[above.MustJoin(name)]
}

func (f *flags) follow(ctx context.Context, client *distkv.Client) {
	// What is asked meanwhile is the last state that was whole.
	state := map[distkv.Path]bool{}
	for event, err := range client.Watch(ctx, above, &distkv.WatchOptions{MinDepth: 1, MaxDepth: 1}) {
		if err != nil {
			return // The context has ended, or the client was closed.
		}
		f.mu.Lock()
		switch e := event.(type) {
		case distkv.Change:
			on, err := distkv.As[bool](e.Value)
			state[e.Path] = on && err == nil
		case distkv.Restarted:
			state = map[distkv.Path]bool{}
		case distkv.UpToDate:
			f.on = state
			select {
			case <-f.ready:
			default:
				close(f.ready)
			}
		}
		f.mu.Unlock()
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: os.Args[1:]})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	put := func(name string) {
		if _, err := client.Put(ctx, above.MustJoin(name), true, nil); err != nil {
			log.Fatal(err)
		}
	}
	put("dark_mode")
	found := &flags{ready: make(chan struct{})}
	go found.follow(ctx, client)
	<-found.ready
	fmt.Println("dark mode:", found.isOn("dark_mode"), "- beta:", found.isOn("beta"))
	if !found.isOn("dark_mode") || found.isOn("beta") {
		log.Fatal("that is wrong")
	}
	put("beta")
	for !found.isOn("beta") {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("beta was switched on")
	if _, err := client.DeleteTree(ctx, above, nil); err != nil {
		log.Fatal(err)
	}
}
