package distkv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAStormOfKills: goroutines write and read while nodes are killed and come back. It takes 10 s, or as long as
// DISTKV_STORM says.
func TestAStormOfKills(t *testing.T) {
	lasts := 10 * time.Second
	if told := os.Getenv("DISTKV_STORM"); told != "" {
		lasts = must[time.Duration](t)(time.ParseDuration(told))
	}
	nodes := cluster(t, 3)
	client := connect(t, Config{Seeds: nodes.Seeds(), Retry: RetryPolicy{TotalDeadline: 20 * time.Second}})
	allLive(t, client, 3)
	var stop atomic.Bool
	var writes atomic.Int64
	var acknowledged sync.Map
	var working sync.WaitGroup
	for worker := range 64 {
		working.Go(func() {
			for number := 1; !stop.Load(); number++ {
				path := PathOf("storm", worker, number%8)
				value := fmt.Sprintf("%d of %d", number, worker)
				if _, err := client.Put(t.Context(), path, value, &PutOptions{Copies: 1}); err != nil {
					t.Error("a write:", err)
					return
				}
				acknowledged.Store(path, value)
				// Where all write, nobody's value is expected to stay.
				if _, err := client.Put(t.Context(), PathOf("shared", number%8), value, nil); err != nil {
					t.Error("a shared write:", err)
					return
				}
				writes.Add(2)
				if number%3 == 0 {
					if found, err := Get[string](t.Context(), client, path, nil); found != value || err != nil {
						t.Errorf("%v: %q, not %q: %v", path, found, value, err)
						return
					}
				}
			}
		})
	}
	kills := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); kills++ {
		time.Sleep(2 * time.Second)
		index := rand.IntN(3)
		nodes.Nodes[index].Kill()
		time.Sleep(2 * time.Second)
		if err := nodes.Rejoin(index); err != nil {
			t.Error(err)
			break
		}
		allLive(t, client, 3)
	}
	stop.Store(true)
	working.Wait()
	missing := 0
	acknowledged.Range(func(path, value any) bool {
		if found, err := Get[string](t.Context(), client, path.(Path), nil); found != value || err != nil {
			t.Errorf("%v is missing: %q, not %q: %v", path, found, value, err)
			missing++
		}
		return missing < 10
	})
	t.Logf("%d kills, %d writes, %d missing, retries: %+v", kills, writes.Load(), missing, client.Stats().Retry)
	if kills < 2 || writes.Load() < 64 {
		t.Error("that was no storm")
	}
}
