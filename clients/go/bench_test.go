package distkv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What a GET of 32 bytes costs this process, over loopback: go test -run '^$' -bench Get. The metric cpu-µs/op is what the
// system says that the process has used. Beside it, the same with Redis' protocol, written with the standard library.

const benchValue = "01234567890123456789012345678901"

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchGets makes b.N calls, so many of them at once.
func benchGets(b *testing.B, inFlight int, get func() error) {
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	var working sync.WaitGroup
	for worker := range inFlight {
		count := b.N / inFlight
		if worker < b.N%inFlight {
			count++
		}
		working.Go(func() {
			for range count {
				if err := get(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	b.ReportMetric(float64(cpuTime(b)-before)/1e3/float64(b.N), "cpu-µs/op")
}

func BenchmarkGet(b *testing.B) {
	client, err := Connect(b.Context(), Config{Seeds: shared(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close(context.Background())
	writer, err := Connect(b.Context(), Config{Seeds: shared(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer writer.Close(context.Background())
	path := MustPath("bench.value")
	if _, err := writer.Put(b.Context(), path, benchValue, &PutOptions{Copies: 2}); err != nil {
		b.Fatal(err)
	}
	redis := startRedis(b)
	for _, inFlight := range []int{1, 100} {
		for _, one := range []struct {
			name string
			get  func() error
		}{
			{"distkv", func() error { _, err := client.Get(b.Context(), path, nil); return err }},
			{"distkv-typed", func() error { _, err := Get[string](b.Context(), client, path, nil); return err }},
			{"distkv-own-write", func() error { _, err := writer.Get(b.Context(), path, nil); return err }},
			{"redis-pool", redis.get},
		} {
			b.Run(fmt.Sprintf("%s/in-flight=%d", one.name, inFlight), func(b *testing.B) {
				if one.name == "redis-pool" && redis == nil {
					b.Skip("there is no redis-server")
				}
				benchGets(b, inFlight, one.get)
			})
		}
	}
}

func BenchmarkRouting(b *testing.B) {
	one := &scripted{name: "s1"}
	client, err := Connect(b.Context(), Config{Seeds: startScripted(b, one)})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close(context.Background())
	path := PathOf("a", "b")
	_, _ = client.Get(b.Context(), path, nil)
	p := plan{action: "get_value", shard: path.Shard()}
	b.ReportAllocs()
	for b.Loop() {
		var round tries
		routing := client.topology.routing()
		p.first = client.caller.home(routing, p.shard)
		to := client.caller.choose(routing, &p, &round)
		_ = client.pool.ready(to.place(), forCall)
	}
}

func BenchmarkParsePath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = ParsePath("site.hall.lamp:1")
	}
}

// redisPool is a plain client with connections of its own for each call at a time, as such clients do it.
type redisPool struct {
	where string
	idle  chan *redisConn
}

type redisConn struct {
	net.Conn
	replies *bufio.Reader
	request []byte
}

func startRedis(b *testing.B) *redisPool {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	server := exec.Command(program, "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", b.TempDir())
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	})
	pool := &redisPool{net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), make(chan *redisConn, 100)}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := pool.take()
		if err == nil {
			_, err = c.do("SET", "bench.value", benchValue)
			pool.idle <- c
		}
		if err == nil {
			return pool
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

func (p *redisPool) take() (*redisConn, error) {
	select {
	case c := <-p.idle:
		return c, nil
	default:
	}
	socket, err := net.Dial("tcp", p.where)
	if err != nil {
		return nil, err
	}
	return &redisConn{Conn: socket, replies: bufio.NewReader(socket)}, nil
}

func (p *redisPool) get() error {
	c, err := p.take()
	if err != nil {
		return err
	}
	// As every client that keeps deadlines.
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	value, err := c.do("GET", "bench.value")
	if err == nil && string(value) != benchValue {
		err = errors.New("another value: " + string(value))
	}
	p.idle <- c
	return err
}

func (c *redisConn) do(words ...string) ([]byte, error) {
	c.request = append(strconv.AppendInt(append(c.request[:0], '*'), int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		c.request = append(strconv.AppendInt(append(c.request, '$'), int64(len(word)), 10), "\r\n"...)
		c.request = append(append(c.request, word...), "\r\n"...)
	}
	if _, err := c.Write(c.request); err != nil {
		return nil, err
	}
	line, err := c.replies.ReadSlice('\n')
	if err != nil || len(line) < 3 {
		return nil, err
	}
	if line[0] != '$' {
		return append([]byte{}, line...), nil
	}
	size, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || size < 0 {
		return nil, err
	}
	value := make([]byte, size+2)
	_, err = io.ReadFull(c.replies, value)
	return value[:size], err
}
