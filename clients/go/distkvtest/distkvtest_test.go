package distkvtest

import (
	"net"
	"strings"
	"testing"
	"time"
)

func TestANodeWaitsForItsPortThatAnotherProgramHasForAWhile(t *testing.T) {
	cluster, err := StartCluster(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	node := cluster.Nodes[1]
	node.Kill()
	gossip := node.Gossip
	taker, err := net.ListenPacket("udp", gossip)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cluster.Rejoin(1) }()
	for !strings.Contains(node.Log(), portTaken) {
		select {
		case err := <-ended:
			t.Fatal("it did not wait:", err)
		case <-time.After(time.Millisecond):
		}
	}
	_ = taker.Close()
	if err := <-ended; err != nil || !node.Runs() || node.Gossip != gossip {
		t.Error(err, node.Runs(), node.Gossip)
	}
}
