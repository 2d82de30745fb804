package distkv

import (
	"net"
	"sync"
	"testing"
	"time"
)

// The seeds of a client: in which time they are asked, and which texts name one.

// silentSeeds are addresses where connections are taken, and nothing is ever said, as by a node that is frozen.
func silentSeeds(t *testing.T, count int) []string {
	t.Helper()
	var seeds []string
	for range count {
		listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		t.Cleanup(func() { _ = listener.Close() })
		seeds = append(seeds, listener.Addr().String())
	}
	return seeds
}

// TestOneSeedIsEnoughHoweverManyAreSilent: each of them alone may take all the time that there is. What a seed has told must
// still be used when all others have been asked.
func TestOneSeedIsEnoughHoweverManyAreSilent(t *testing.T) {
	var connecting sync.WaitGroup
	all := map[string][]string{
		"a good one is the last":        append(silentSeeds(t, 4), startScripted(t, &scripted{name: "s1"})...),
		"an old one is the last":        append(silentSeeds(t, 4), startScripted(t, &scripted{name: "s1", isOld: true})...),
		"one without data is the last":  append(silentSeeds(t, 4), startScripted(t, &scripted{name: "s1", isEmpty: true})...),
		"an old one is the first":       append(startScripted(t, &scripted{name: "s1", isOld: true}), silentSeeds(t, 4)...),
		"one without data is the first": append(startScripted(t, &scripted{name: "s1", isEmpty: true}), silentSeeds(t, 4)...),
	}
	before := footprint()
	for name, seeds := range all {
		connecting.Go(func() {
			client, err := Connect(t.Context(), Config{Seeds: seeds, ConnectDeadline: 15 * time.Second,
				Pool: PoolConfig{ConnectTimeout: patient}, Topology: TopologyConfig{FirstViewTimeout: patient}})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			_ = client.Close(t.Context())
		})
	}
	connecting.Wait()
	nothingLeft(t, before)
}
