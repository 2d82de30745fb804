package distkv

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Scripted nodes and clients in virtual time: it goes on when all of them wait, so a test may say when something is to happen, and
// no machine is too slow for it.

// isVirtual tells whether a test runs in virtual time.
var isVirtual bool

// virtually runs a test in virtual time.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// What is kept to be used again has channels, and those belong to one time.
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	real := processStart.Load()
	isVirtual = true
	defer func() { isVirtual = false }()
	defer processStart.Store(real)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now() // Virtual time begins long before.
		processStart.Store(&start)
		time.Sleep(time.Hour)
		test(t)
	})
}

// pipes is a listener without sockets: whoever waits for a socket keeps virtual time from going on.
type pipes struct {
	where  net.TCPAddr
	opened chan net.Conn
	closed chan struct{}
	close  func()
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.opened:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &p.where }

// connectVirtually starts scripted nodes as one network, and a client of it, which has nothing more to do when this returns.
func connectVirtually(t *testing.T, config Config, nodes ...*scripted) *Client {
	t.Helper()
	listeners := map[string]*pipes{}
	for i, node := range nodes {
		p := &pipes{where: net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: i + 1}, opened: make(chan net.Conn), closed: make(chan struct{})}
		p.close = sync.OnceFunc(func() { close(p.closed) })
		listeners[p.where.String()] = p
		config.Seeds = append(config.Seeds, p.where.String())
		node.startAt(p, nodes)
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			node.stop()
		}
	})
	config.dial = func(ctx context.Context, _, where string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case listeners[where].opened <- far:
			return near, nil
		case <-listeners[where].closed:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	setDefault(&config.ShardTableAge, time.Hour) // No test lasts as long: nothing but its own calls is sent.
	client := connect(t, config)
	allLive(t, client, len(nodes))
	synctest.Wait()
	return client
}

// joined starts scripted nodes as one network, and a client of it: in virtual time, if that is the test's.
func joined(t *testing.T, config Config, nodes ...*scripted) *Client {
	t.Helper()
	if isVirtual {
		return connectVirtually(t, config, nodes...)
	}
	config.Seeds = startScripted(t, nodes...)
	return connect(t, config)
}

// oneTry is a configuration of calls with one try.
func oneTry() Config { return Config{Retry: RetryPolicy{AttemptsMax: 1, TryDeadline: 2 * time.Second}} }

// slowly is an answer of several messages. One of them comes in pieces: so many bytes at a time, with this pause in between.
type slowly struct {
	first  several
	slow   fields
	last   several
	piece  int
	pause  time.Duration
	pieces int // so many come, and then nothing for an hour; 0: all
}

func (s slowly) send(socket net.Conn, seq int64) {
	for _, one := range s.first {
		send(socket, with(one, "seq", seq))
	}
	rest, err := Encode(with(s.slow, "seq", seq))
	if err != nil {
		panic(err)
	}
	for piece := 1; len(rest) > s.piece; piece++ {
		_, _ = socket.Write(rest[:s.piece])
		if rest = rest[s.piece:]; piece == s.pieces {
			time.Sleep(time.Hour)
			return
		}
		time.Sleep(s.pause)
	}
	_, _ = socket.Write(rest)
	for _, one := range s.last {
		send(socket, with(one, "seq", seq))
	}
}
