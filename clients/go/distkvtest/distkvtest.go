//go:build unix

// Package distkvtest starts real nodes for your own tests: each is a distkv-node process with ports of its own. It is for Unix only:
// elsewhere it cannot be built.
//
// The program is the one that DISTKV_NODE_BIN names, else distkv-node on the PATH. Everything waits for readiness; nothing is
// kept when a node has ended.
package distkvtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startPatience  = 60 * time.Second // from the start of a process to its line on stdout
	stopPatience   = 10 * time.Second // until a node that was asked to end is killed
	freezePatience = time.Second      // until a node stands still, where the system does not tell
	lineBytesMax   = 64 << 10         // longest line that says where a node is
	portTaken      = "is in use by another program"
)

var numbers atomic.Int64

// Binary is the program; an error where there is none.
func Binary() (string, error) {
	if name := os.Getenv("DISTKV_NODE_BIN"); name != "" {
		return exec.LookPath(name)
	}
	found, err := exec.LookPath("distkv-node")
	if err != nil {
		return "", errors.New("there is no distkv-node: name one in DISTKV_NODE_BIN")
	}
	return found, nil
}

// Node is one node.
type Node struct {
	// Name is its name; Client and Gossip are its addresses for clients and for peers.
	Name, Client, Gossip string

	args    []string
	log     *os.File
	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{}
}

// StartNode starts one; it runs when this returns.
func StartNode(name string, args ...string) (*Node, error) {
	log, err := os.CreateTemp("", "distkv-node-*.log")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(log.Name()) // It lasts as long as it is open.
	n := &Node{Name: name, args: args, log: log}
	if err := n.start("127.0.0.1:0", "127.0.0.1:0"); err != nil {
		_ = log.Close()
		return nil, err
	}
	return n, nil
}

// start starts it. Once a node has ended, the system may give its port to any other program's connection for a while.
func (n *Node) start(client, gossip string) error {
	end := time.Now().Add(startPatience)
	for {
		from := len(n.Log())
		err := n.tryStart(client, gossip)
		if err == nil || !strings.Contains(n.Log()[from:], portTaken) || time.Now().After(end) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (n *Node) tryStart(client, gossip string) error {
	program, err := Binary()
	if err != nil {
		return err
	}
	args := append(append([]string{}, n.args...), "--name", n.Name, "--json")
	for _, option := range [][2]string{{"--client", client}, {"--gossip", gossip}} {
		if !contains(n.args, option[0]) {
			args = append(args, option[0], option[1])
		}
	}
	process := exec.Command(program, args...)
	process.Stderr = n.log
	output, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := start(process); err != nil {
		return err
	}
	lines := make(chan []byte, 1)
	go func() {
		line, _ := bufio.NewReaderSize(output, lineBytesMax).ReadSlice('\n')
		lines <- line
	}()
	var told struct{ Client, Gossip string }
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case line := <-lines:
		err = json.Unmarshal(line, &told)
	case <-timer.C:
		err = errors.New("it says nothing")
	}
	if err != nil {
		_ = process.Process.Kill()
		_ = process.Wait()
		return fmt.Errorf("%v did not start: %w; its log:\n%s", process.Args, err, n.Log())
	}
	ended := make(chan struct{})
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	n.mu.Lock()
	n.process, n.ended = process, ended
	n.Client, n.Gossip = told.Client, told.Gossip
	n.mu.Unlock()
	return nil
}

func contains(args []string, option string) bool {
	for _, arg := range args {
		if arg == option {
			return true
		}
	}
	return false
}

// Log is what the node wrote to stderr so far.
func (n *Node) Log() string {
	found, _ := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", n.log.Fd()))
	return string(found)
}

func (n *Node) signal(what os.Signal) { _ = n.process.Process.Signal(what) }

// Runs tells whether the process has not ended.
func (n *Node) Runs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process at once (SIGKILL), and waits for that.
func (n *Node) Kill() {
	n.signal(syscall.SIGKILL)
	<-n.ended
}

// Freeze stops the process without ending it (SIGSTOP); Thaw lets it go on.
func (n *Node) Freeze() {
	n.signal(syscall.SIGSTOP)
	// The signal takes a moment to reach all threads, and longer on a busy machine.
	patience := freezePatience
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		patience = startPatience
	}
	for end := time.Now().Add(patience); time.Now().Before(end) && n.Runs() && !n.isFrozen(); {
		time.Sleep(time.Millisecond)
	}
}

// isFrozen tells whether all threads stand still, where the system tells it in /proc.
func (n *Node) isFrozen() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.process.Process.Pid))
	for _, thread := range threads {
		told, err := os.ReadFile(thread)
		if _, state, _ := strings.Cut(string(told), ") "); err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// Thaw lets a frozen one go on (SIGCONT).
func (n *Node) Thaw() { n.signal(syscall.SIGCONT) }

// Restart starts a node that has ended again, at its addresses, with these arguments if there are any.
func (n *Node) Restart(args ...string) error {
	if len(args) > 0 {
		n.args = args
	}
	return n.start(n.Client, n.Gossip)
}

// Stop ends the process, in order if it can.
func (n *Node) Stop() {
	if n.Runs() {
		n.signal(syscall.SIGCONT)
		n.signal(syscall.SIGTERM)
		timer := time.NewTimer(stopPatience)
		defer timer.Stop()
		select {
		case <-n.ended:
		case <-timer.C:
			n.Kill()
		}
	}
	_ = n.log.Close()
}

// Cluster is the nodes of one network of its own, n1 first.
type Cluster struct {
	Network string
	Nodes   []*Node

	args []string
}

// StartCluster starts so many nodes; the arguments go to each of them. It runs when this returns; somebody must Stop it.
func StartCluster(nodes int, args ...string) (*Cluster, error) {
	if nodes < 1 {
		return nil, fmt.Errorf("a cluster has at least one node, not %d", nodes)
	}
	c := &Cluster{Network: "go-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(numbers.Add(1), 10), args: args}
	for range nodes {
		if _, err := c.Add(""); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) every(more ...string) []string {
	return append(append([]string{"--network", c.Network}, c.args...), more...)
}

func (c *Cluster) living() *Node {
	for _, node := range c.Nodes {
		if node.Runs() {
			return node
		}
	}
	return nil
}

// Add starts another node; without a name it is called n1, n2 ….
func (c *Cluster) Add(name string, args ...string) (*Node, error) {
	if name == "" {
		name = "n" + strconv.Itoa(len(c.Nodes)+1)
	}
	begin := []string{"run", "--peer-wait", "0s"}
	if living := c.living(); living != nil {
		begin = []string{"join", living.Gossip}
	}
	node, err := StartNode(name, append(begin, c.every(args...)...)...)
	if err == nil {
		c.Nodes = append(c.Nodes, node)
	}
	return node, err
}

// Rejoin starts a node that was killed again, as one that joins, at its addresses for clients and peers.
func (c *Cluster) Rejoin(index int) error {
	if index < 0 || index >= len(c.Nodes) {
		return fmt.Errorf("there is no node with the index %d: the cluster has %d", index, len(c.Nodes))
	}
	living := c.living()
	if living == nil {
		return errors.New("no node runs that it could join")
	}
	return c.Nodes[index].Restart(append([]string{"join", living.Gossip}, c.every()...)...)
}

// Seeds are the client addresses of all nodes.
func (c *Cluster) Seeds() []string {
	var found []string
	for _, node := range c.Nodes {
		found = append(found, node.Client)
	}
	return found
}

// ByName is the node of this name; nil without one.
func (c *Cluster) ByName(name string) *Node {
	for _, node := range c.Nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// Index is the number of the node of this name; -1 without one.
func (c *Cluster) Index(name string) int {
	for i, node := range c.Nodes {
		if node.Name == name {
			return i
		}
	}
	return -1
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	for _, node := range c.Nodes {
		node.Stop()
	}
	c.Nodes = nil
}
