package distkvtest

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
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

// leaves is the variable with which this program starts a node, and dies.
const leaves = "DISTKVTEST_LEAVES"

func TestANodeEndsWithTheProgramThatStartedIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere it is left behind")
	}
	if os.Getenv(leaves) != "" {
		// The thread that asks for it ends at once.
		started := make(chan *Node)
		go func() {
			runtime.LockOSThread()
			node, err := StartNode("n1", "run", "--peer-wait", "0s")
			if err != nil {
				panic(err)
			}
			started <- node
		}()
		node := <-started
		time.Sleep(50 * time.Millisecond) // It would end in that time.
		if !node.Runs() {
			panic("it has ended with a thread")
		}
		_, _ = os.Stdout.WriteString(strconv.Itoa(node.process.Process.Pid) + "\n")
		go func() { panic("a bug in a service") }()
		select {}
	}
	program := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	program.Env = append(os.Environ(), leaves+"=1")
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	_ = program.Wait()
	node, wrong := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || wrong != nil {
		t.Fatal(line, err, wrong)
	}
	for end := time.Now().Add(time.Minute); syscall.Kill(node, 0) == nil && !isDead(node); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(node, syscall.SIGKILL)
			t.Fatal("the node still runs")
		}
	}
}

// isDead tells whether a process has ended, of which nobody has asked for that yet.
func isDead(process int) bool {
	told, err := os.ReadFile("/proc/" + strconv.Itoa(process) + "/stat")
	_, state, _ := strings.Cut(string(told), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}
