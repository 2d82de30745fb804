package distkv

import (
	"testing"
	"time"
)

// Views of the cluster that end again and again, or once.

func TestAViewThatBreaksAgainAndAgainIsAskedForAfterLongerAndLongerPauses(t *testing.T) {
	node := &scripted{name: "s1", viewsEnd: true}
	began := time.Now()
	// No view lasts as long as the longest pause, however slow the machine is.
	topology := TopologyConfig{RetryDelay: 50 * time.Millisecond, RetryDelayMax: time.Hour}
	client := connect(t, Config{Seeds: startScripted(t, node), Topology: topology})
	until(t, func() bool { return len(node.actions("watch_cluster")) >= 6 })
	// At least half of 50, 100, 200, 400 and 800 ms.
	if took := time.Since(began); took < 770*time.Millisecond {
		t.Error(took)
	}
	if stats := client.Stats().Topology; stats.Epoch != 1 || stats.Lost < 5 {
		t.Errorf("%+v", stats)
	}
}

func TestAViewThatHasLastedIsAskedForWithoutAPause(t *testing.T) {
	node := &scripted{name: "s1"}
	topology := TopologyConfig{RetryDelay: time.Hour, RetryDelayMax: time.Millisecond}
	_ = connect(t, Config{Seeds: startScripted(t, node), Topology: topology})
	seen := now()
	until(t, func() bool { return now() > seen+2*time.Millisecond })
	node.mu.Lock()
	for socket := range node.sockets {
		_ = socket.Close()
	}
	node.mu.Unlock()
	until(t, func() bool { return len(node.actions("watch_cluster")) >= 2 })
}

func TestASilentNodeIsAskedWhetherItIsAlive(t *testing.T) {
	for what, ask := range map[string]func(*Client) error{
		"conflicts": func(client *Client) error {
			_, err := client.ConflictsList(t.Context(), Path{})
			return err
		},
		"a read of a majority": func(client *Client) error {
			_, err := client.Get(t.Context(), PathOf("p"), &GetOptions{Read: Freshest})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			silent := func(message) any { return silence{} }
			nodes := []*scripted{{name: "s1", script: silent}, {name: "s2", script: silent}}
			config := quick()
			config.Seeds = startScripted(t, nodes...)
			config.Retry.TryDeadline, config.Retry.TotalDeadline = 100*time.Millisecond, time.Second
			client := connect(t, config)
			// As after any other call: otherwise that is only asked once nothing has come for long. What the client asks by
			// itself may be answered meanwhile: then the nodes are not silent.
			for range 20 {
				if err := ask(client); err == nil {
					t.Fatal("nobody can have answered")
				}
				if client.Stats().Pool.Probes > 0 {
					return
				}
			}
			t.Error("nobody was asked")
		})
	}
}
