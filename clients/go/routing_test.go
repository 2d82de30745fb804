package distkv

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
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
		if to == nil || client.pool.ready(to.place(), forCall) == nil || client.Preferred(path) != to.name {
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

// A listener hears of what changes while it listens: who comes when a view is to be seen already is not told of it.
func TestWhoSeesAViewAndListensThenIsNotToldOfIt(t *testing.T) {
	config := Config{}
	config.fill()
	seed := must[address](t)(parseAddress("127.0.0.1:1", DefaultPort))
	for range 500 {
		var goroutines group
		pool := newPool(&config, &goroutines)
		topology := newTopology([]address{seed}, pool, &config)
		var told atomic.Int64
		must[func()](t)(topology.listen(func(TopologyChange) { told.Add(1) }))
		done := make(chan struct{})
		go func() {
			defer close(done)
			topology.applySeeds()
		}()
		for topology.routing().view.Epoch == 0 {
		}
		must[func()](t)(topology.listen(func(TopologyChange) { told.Add(100) }))
		<-done
		for _, one := range topology.toTell {
			topology.tell(t.Context(), one)
		}
		if told.Load() != 1 {
			t.Fatal(told.Load())
		}
		pool.close()
		<-goroutines.none()
	}
}

func TestTheTableOfShardsIsNotFetchedWithoutAPause(t *testing.T) {
	node := &scripted{name: "s1"}
	started := time.Now()
	connect(t, Config{Seeds: startScripted(t, node), ShardTableAge: shardTableAgeMin})
	until(t, func() bool { return len(node.actions("list_shards")) >= 3 })
	if took := time.Since(started); took < 2*shardTableAgeMin {
		t.Errorf("three times within %v", took)
	}
}

// Nodes tell each other of an override; until then the one that took it knows it alone.
func TestAnOverrideIsReadBackWhereItWasMade(t *testing.T) {
	both := []*scripted{{name: "s1"}, {name: "s2"}}
	for _, one := range both {
		one.script = func(message) any { return writtenReply }
	}
	client := connect(t, Config{Seeds: startScripted(t, both...)})
	allLive(t, client, 2)
	until(t, func() bool { return len(both[0].actions("list_shards"))+len(both[1].actions("list_shards")) == 1 }) // The first.
	for _, one := range both {
		asked := len(one.actions("list_shards"))
		if err := client.PreferShard(t.Context(), preferredPath(t, client, one.name).Shard(), "s1"); err != nil {
			t.Fatal(err)
		}
		if now := len(one.actions("list_shards")); now != asked+1 {
			t.Error(one.name, asked, now)
		}
	}
}
