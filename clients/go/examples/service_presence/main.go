// Which services are up, by recent heartbeats: go run ./examples/service_presence [SEED…].
//
// Each service writes a number that rises; who watches takes a service for gone when its number has not risen for a while by
// the watcher's own clock, so no clocks are compared.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	distkv "distkv.example/client"
)

const (
	beat     = 50 * time.Millisecond
	patience = 500 * time.Millisecond
)

var above = distkv.MustPath("services")

// serve is a service: it beats until its context ends.
func serve(ctx context.Context, client *distkv.Client, name string) {
	for number := 1; ctx.Err() == nil; number++ {
		if _, err := client.Put(ctx, above.MustJoin(name), number, nil); err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
		time.Sleep(beat)
	}
}

// presence is when each service was heard last.
type presence struct {
	mu    sync.Mutex
	heard map[string]time.Time
}

func (p *presence) listen(ctx context.Context, client *distkv.Client) {
	for event, err := range client.Watch(ctx, above, &distkv.WatchOptions{NoFetch: true}) {
		if err != nil {
			return
		}
		if change, ok := event.(distkv.Change); ok && !change.Deleted {
			p.mu.Lock()
			p.heard[fmt.Sprint(change.Path.Last())] = time.Now()
			p.mu.Unlock()
		}
	}
}

func (p *presence) up() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for name, at := range p.heard {
		if time.Since(at) < patience {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: os.Args[1:]})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())
	mail, stopMail := context.WithCancel(ctx)
	web, stopWeb := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { serve(mail, client, "mail") })
	running.Go(func() { serve(web, client, "web") })
	found := &presence{heard: map[string]time.Time{}}
	listening, stopListening := context.WithCancel(ctx)
	running.Go(func() { found.listen(listening, client) })
	for len(found.up()) < 2 {
		time.Sleep(beat)
	}
	fmt.Println("up:", found.up())
	stopMail()
	// A machine that stands still for a while hears neither of them, and then the other one again.
	up := found.up()
	for ; !slices.Equal(up, []string{"web"}); up = found.up() {
		if ctx.Err() != nil {
			log.Fatal("that is wrong: ", up)
		}
		time.Sleep(beat)
	}
	fmt.Println("up:", up)
	stopWeb()
	stopListening()
	running.Wait()
	if _, err := client.DeleteTree(ctx, above, nil); err != nil {
		log.Fatal(err)
	}
}
