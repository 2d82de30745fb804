package distkv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"distkv.example/client/distkvtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	sharedMu.Lock()
	if sharedCluster != nil {
		sharedCluster.Stop()
	}
	sharedMu.Unlock()
	os.Exit(code)
}

var (
	sharedMu      sync.Mutex
	sharedCluster *distkvtest.Cluster
	bases         atomic.Int64
)

// SharedSeeds are those of three nodes for all tests that kill nothing and keep to paths of their own.
func SharedSeeds() ([]string, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedCluster == nil {
		started, err := distkvtest.StartCluster(3)
		if err != nil {
			return nil, err
		}
		sharedCluster = started
	}
	for _, node := range sharedCluster.Nodes {
		if !node.Runs() {
			return nil, fmt.Errorf("%s has died:\n%s", node.Name, node.Log())
		}
	}
	return sharedCluster.Seeds(), nil
}

func shared(t testing.TB) []string {
	t.Helper()
	seeds, err := SharedSeeds()
	if err != nil {
		t.Fatal(err)
	}
	return seeds
}

// cluster is nodes of the test's own.
func cluster(t testing.TB, nodes int, args ...string) *distkvtest.Cluster {
	t.Helper()
	c, err := distkvtest.StartCluster(nodes, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// clients is how many there are of one test, and what there was before the first. (Tests run one after the other.)
var clients struct {
	count  int
	before print
}

// patient is how long a test waits at least for what must come: machines stand still for a while.
const patient = 20 * time.Second

// connect is a client that is closed at the end, and leaves nothing behind then. It is patient where the configuration does not
// say otherwise: a test in which a node is silent says so.
func connect(t testing.TB, config Config) *Client {
	t.Helper()
	setDefault(&config.ConnectDeadline, time.Minute)
	setDefault(&config.Retry.TotalDeadline, time.Minute)
	for _, wait := range []*time.Duration{&config.Retry.TryDeadline, &config.Pool.ConnectTimeout, &config.Topology.FirstViewTimeout} {
		setDefault(wait, patient)
	}
	if clients.count == 0 {
		clients.before = footprint()
	}
	client, err := Connect(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	clients.count++
	t.Cleanup(func() {
		_ = client.Close(context.Background())
		if clients.count--; clients.count == 0 {
			nothingLeft(t, clients.before)
		}
	})
	return client
}

func sharedClient(t testing.TB) *Client {
	t.Helper()
	client := connect(t, Config{Seeds: shared(t)})
	allLive(t, client, 3)
	return client
}

// base is a path that no other test uses.
func base() Path { return PathOf(fmt.Sprintf("t%d", bases.Add(1))) }

// print is what a client has of this process: its goroutines, and the process's sockets.
type print struct{ goroutines, sockets int }

func footprint() print {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	ours := 0
	for _, one := range strings.Split(string(stacks), "\n\n") {
		// Started by the client, not by tests.
		_, by, _ := strings.Cut(one, "created by distkv.example/client.")
		if strings.HasPrefix(by, "(*") || strings.HasPrefix(by, "settle") {
			ours += boolean(!strings.HasPrefix(by, "(*scripted"))
		}
	}
	return print{ours, sockets()}
}

// sockets are those that this process has open.
func sockets() int {
	found := 0
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		if to, err := os.Readlink("/proc/self/fd/" + name.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			found++
		}
	}
	return found
}

func nothingLeft(t testing.TB, before print) {
	t.Helper()
	// The other sides of scripted nodes' sockets are this process's, too, and close a moment later.
	until(t, func() bool {
		after := footprint()
		return after.goroutines <= before.goroutines && after.sockets <= before.sockets
	})
}

// until waits until it holds; it looks often, for at most a minute.
func until(t testing.TB, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("it did not come true; the goroutines:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// allLive waits until the client sees so many live nodes.
func allLive(t testing.TB, client *Client, count int) {
	t.Helper()
	until(t, func() bool {
		live := 0
		for _, node := range client.ClusterView().Nodes {
			live += boolean(node.IsLive())
		}
		return live == count
	})
}

// wantError checks an error's kind, and returns it.
func wantError(t testing.TB, err, kind error) *Error {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) || !errors.Is(err, kind) {
		t.Fatalf("the error is %v, not %q", err, kind)
	}
	return failed
}

func must[T any](t testing.TB) func(found T, err error) T {
	return func(found T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
}

func put(t testing.TB, client *Client, path Path, value any, options *PutOptions) Written {
	t.Helper()
	written, err := client.Put(t.Context(), path, value, options)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

func get[T any](t testing.TB, client *Client, path Path) T {
	t.Helper()
	found, err := Get[T](t.Context(), client, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
