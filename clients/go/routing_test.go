package distkv

import (
	"fmt"
	"testing"
)

func TestRoutingAllocatesNothing(t *testing.T) {
	one, two := &scripted{name: "s1"}, &scripted{name: "s2"}
	client := connect(t, Config{Seeds: startScripted(t, one, two)})
	paths := make([]Path, 64)
	for i := range paths {
		paths[i] = PathOf(fmt.Sprintf("a%d", i), "b")
		get[string](t, client, paths[i])
	}
	p := plan{action: "get_value"}
	at := 0
	allocated := testing.AllocsPerRun(1000, func() {
		path := paths[at%len(paths)]
		at++
		routing := client.topology.routing()
		p.shard, p.first = path.Shard(), client.caller.home(routing, path.Shard())
		var round tries
		to := client.caller.choose(routing, &p, &round)
		if to == nil || client.pool.ready(to.address) == nil || client.Preferred(path) != to.name {
			t.Error("no node, or no connection")
		}
	})
	if allocated != 0 {
		t.Errorf("routing allocates %v times", allocated)
	}
	if allocated := testing.AllocsPerRun(1000, func() { _ = hashKey("a key that is longer than thirty-two bytes") }); allocated != 0 {
		t.Errorf("hashing allocates %v times", allocated)
	}
}

func TestARefreshDoesNotTakeAFetchThatWasUnderWay(t *testing.T) {
	one := &scripted{name: "s1"}
	client := connect(t, Config{Seeds: startScripted(t, one)})
	for range 50 {
		before := len(one.actions("list_shards"))
		if err := client.RefreshShards(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(one.actions("list_shards")) <= before {
			t.Fatal("nothing was asked after the call began")
		}
	}
}
