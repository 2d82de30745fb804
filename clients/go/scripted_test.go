package distkv

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"distkv.example/client/internal/msgpack"
)

// scripted is a node that does what a test says: it speaks the protocol, and answers, stays silent, breaks off or sends
// garbage. `script` is asked for each request that the node does not answer by itself.
type scripted struct {
	name   string
	script func(request message) any
	isOld  bool

	asksLogin bool   // it greets like a node on which clients must log in
	isEmpty   bool   // it has not caught up yet
	network   string // its network's name; "": one of this process's own, unless it tells none, as older nodes do
	tellsNone bool
	greets    fields // more of its greeting
	tock      int64  // what its clock shows in all that it answers by itself; 0: it is not told
	viewsEnd  bool   // each view that is watched ends after its first message
	cluster   later  // how it answers who it is; nil: at once
	shards    any    // how it answers which shards have overrides; nil: none has
	tls       *tls.Config
	host      string                     // where it listens; "": at a loopback address
	judges    func(secret string) string // the code with which it refuses a login with this secret; nil: by refuses

	mu       sync.Mutex
	came     int    // bytes that clients have sent
	refuses  string // the code with which it refuses logins; "": it lets all in; also silently, crowded, full
	peers    []*scripted
	states   map[string]string
	places   map[string]string // where it says that others are, as far as that is wrong
	requests []message
	views    []viewer
	accepted int
	sockets  map[net.Conn]bool
	listener net.Listener
	running  sync.WaitGroup
}

type viewer struct {
	socket net.Conn
	seq    int64
}

// What a script may answer beside a map, and slowly.
type (
	silence struct{}
	reset   struct{}
	garbage []byte
	several []fields    // one after the other; after a nil one, the node sends nothing more on that connection
	later   chan fields // this, once it comes; none where it is closed
	flowing chan fields // each as it comes, until it is closed
)

// How a node refuses logins that answers none.
const (
	silently = "silently" // it says nothing
	crowded  = "crowded"  // it closes the connection, since too many wait to log in
	tooSlow  = "too slow" // it closes the connection, since the login takes too long
	full     = "full"     // it closes the connection instead of greeting
)

type fields = map[string]any

var writtenReply = fields{"changed": true, "tock": 5, "chain": fields{"node": "x~7", "tick": 1, "prev": nil}}

func with(reply fields, name string, value any) fields {
	found := fields{name: value}
	for field, other := range reply {
		if field != name {
			found[field] = other
		}
	}
	return found
}

func errorReply(code string) fields {
	if code == "" {
		return fields{"error": "no"}
	}
	return fields{"error": "no", "code": code}
}

// startScripted starts them as one network; their addresses.
func startScripted(t testing.TB, nodes ...*scripted) []string {
	t.Helper()
	var seeds []string
	for _, node := range nodes {
		host := node.host
		setDefault(&host, "127.0.0.1")
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, listener.Addr().String())
		node.startAt(listener, nodes)
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			node.stop()
		}
	})
	return seeds
}

// startAt starts it where this listens.
func (s *scripted) startAt(listener net.Listener, peers []*scripted) {
	s.listener, s.peers = listener, peers
	s.states, s.sockets = map[string]string{}, map[net.Conn]bool{}
	s.running.Add(1)
	go s.accept()
}

func (s *scripted) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for socket := range s.sockets {
		_ = socket.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// startAgain starts it where it was before it was stopped. It must have no peers. Meanwhile the system may have given its port to
// any other program's connection, for a while.
func (s *scripted) startAgain(t testing.TB) {
	t.Helper()
	where := s.listener.Addr().String()
	until(t, func() bool {
		listener, err := net.Listen("tcp", where)
		if err == nil {
			s.listener = listener
		}
		return err == nil
	})
	s.sockets = map[net.Conn]bool{}
	s.running.Add(1)
	go s.accept()
}

func (s *scripted) actions(action string) []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []message
	for _, request := range s.requests {
		if request.text("action") == action {
			found = append(found, request)
		}
	}
	return found
}

func (s *scripted) view() fields {
	var nodes []any
	for _, peer := range s.peers {
		state := "up"
		if told := s.states[peer.name]; told != "" {
			state = told
		}
		if peer == s {
			state = "self"
		}
		client := peer.listener.Addr().String()
		if told := s.places[peer.name]; told != "" {
			client = told
		}
		nodes = append(nodes, fields{"name": peer.name, "incarnation": 7, "client": client, "state": state,
			"ready": !peer.isEmpty, "gossip": nil, "housekeeper": nil})
	}
	return fields{"epoch": 1, "nodes": nodes, "id": fields{"name": s.name, "incarnation": 7}}
}

func (s *scripted) shown(reply fields) fields {
	if s.tock == 0 {
		return reply
	}
	return with(reply, "tock", s.tock)
}

// refuse lets nobody in from now on, with this code, and ends what is open, as a node does where a user is removed.
func (s *scripted) refuse(code string) { s.refuseAndSay(code, "auth_required") }

// refuseAndSay is the same with another last word; none where it is "".
func (s *scripted) refuseAndSay(code, word string) {
	s.mu.Lock()
	s.refuses = code
	s.mu.Unlock()
	s.hangUpWith(word)
}

// hangUp ends all connections.
func (s *scripted) hangUp() { s.hangUpWith("auth_required") }

func (s *scripted) hangUpWith(word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views = nil
	for socket := range s.sockets {
		if word != "" {
			send(socket, with(errorReply(word), "seq", 0))
		}
		_ = socket.(*net.TCPConn).CloseWrite()
	}
}

// letIn takes that back.
func (s *scripted) letIn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = ""
}

// tellDown reports a node as down, to all who follow the view.
func (s *scripted) tellDown(name string) { s.tell(func() { s.states[name] = "down" }) }

// tell changes what it reports of the others, to all who follow the view.
func (s *scripted) tell(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for _, one := range s.views {
		send(one.socket, fields{"seq": one.seq, "cluster": s.view(), "wseq": 3})
	}
}

func send(socket net.Conn, reply fields) {
	encoded, err := Encode(reply)
	if err != nil {
		panic(err)
	}
	_, _ = socket.Write(encoded)
}

func (s *scripted) accept() {
	defer s.running.Done()
	for {
		socket, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.accepted++
		s.sockets[socket] = true
		s.mu.Unlock()
		s.running.Add(1)
		go s.serve(socket)
	}
}

func (s *scripted) serve(socket net.Conn) {
	defer s.running.Done()
	defer func() { _ = socket.Close() }()
	if s.tls != nil {
		socket = tls.Server(socket, s.tls)
	}
	greeting := fields{"seq": 0, "version": []any{0, 65, 0}, "node": s.name, "tick": 1, "tock": 1, "qlen": 10}
	if s.asksLogin {
		greeting["auth"] = []any{"password"}
	}
	if s.network != "" {
		greeting["network"] = s.network
	} else if !s.isOld && !s.tellsNone {
		// A client of another test, whose node was killed and had this one's port, must not take this one for it.
		greeting["network"] = fmt.Sprintf("scripted-%d", os.Getpid())
	}
	maps.Copy(greeting, s.greets)
	s.mu.Lock()
	isFull := s.refuses == full
	s.mu.Unlock()
	if isFull {
		greeting = with(errorReply("too_many"), "seq", 0)
	}
	send(socket, greeting)
	if isFull {
		_ = socket.(*net.TCPConn).CloseWrite()
	}
	var splitter msgpack.Splitter
	for {
		count, err := socket.Read(splitter.Room())
		splitter.Read(count)
		s.mu.Lock()
		s.came += count
		s.mu.Unlock()
		for {
			m, malformed := splitter.Next()
			if malformed != nil || m == nil {
				break
			}
			if !s.answer(socket, append(message{}, m...)) {
				_ = socket.(*net.TCPConn).SetLinger(0)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *scripted) answer(socket net.Conn, request message) bool {
	action, seq := request.text("action"), request.integer("seq", 0)
	if action == "" {
		return true
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	script, refuses := s.script, s.refuses
	s.mu.Unlock()
	if action == "auth" && s.judges != nil {
		refuses = s.judges(request.text("secret"))
	}
	var reply any
	switch {
	case action == "auth" && refuses == silently:
		reply = silence{}
	case action == "auth" && (refuses == crowded || refuses == tooSlow):
		send(socket, errorReply(map[string]string{crowded: "too_many", tooSlow: "auth_required"}[refuses]))
		_ = socket.(*net.TCPConn).CloseWrite()
		reply = silence{}
	case action == "auth" && refuses != "":
		reply = several{{"state": "start"}, s.shown(errorReply(refuses))}
	case action == "auth":
		reply = several{{"state": "start"}, s.shown(fields{"state": "end"})}
	case s.isOld && (action == "cluster" || action == "watch_cluster" || action == "list_shards"):
		reply = fields{"error": "unknown action " + action}
	case action == "cluster" && s.cluster != nil:
		reply = s.cluster
	case action == "cluster":
		s.mu.Lock()
		reply = s.shown(s.view())
		s.mu.Unlock()
	case action == "watch_cluster":
		s.mu.Lock()
		defer s.mu.Unlock()
		send(socket, fields{"seq": seq, "state": "start", "wseq": 1})
		send(socket, fields{"seq": seq, "cluster": s.view(), "wseq": 2})
		if s.viewsEnd {
			send(socket, fields{"seq": seq, "state": "end", "wseq": 3})
		} else {
			s.views = append(s.views, viewer{socket, seq})
		}
		return true
	case action == "list_shards" && s.shards != nil:
		reply = s.shards
	case action == "list_shards":
		reply = fields{"result": []any{}, "next": nil}
	case action == "auth_info":
		s.mu.Lock()
		reply = s.shown(fields{})
		s.mu.Unlock()
	case script == nil:
		reply = fields{"value": s.name, "tock": 1}
	default:
		reply = script(request)
	}
	switch told := reply.(type) {
	case fields:
		send(socket, with(told, "seq", seq))
	case slowly:
		told.send(socket, seq)
	case garbage:
		_, _ = socket.Write(told)
	case several:
		for _, one := range told {
			if one == nil {
				_ = socket.(*net.TCPConn).CloseWrite()
				break
			}
			send(socket, with(one, "seq", seq))
		}
	case later:
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			if reply, isThere := <-told; isThere {
				send(socket, with(reply, "seq", seq))
			}
		}()
	case flowing:
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			for reply := range told {
				send(socket, with(reply, "seq", seq))
			}
		}()
	case reset:
		return false
	}
	return true
}

// always is a script with one answer.
func always(reply any) func(message) any { return func(message) any { return reply } }

// once is a script whose first answer is another one than all others.
func onceThen(first, then any) func(message) any {
	var mu sync.Mutex
	isFirst := true
	return func(message) any {
		mu.Lock()
		defer mu.Unlock()
		if isFirst {
			isFirst = false
			return first
		}
		return then
	}
}

// quick is a configuration with short pauses.
func quick() Config {
	return Config{
		Retry: RetryPolicy{InitialDelay: time.Millisecond, DelayMax: 10 * time.Millisecond},
		Pool:  PoolConfig{FailureMemory: 10 * time.Millisecond, FailureMemoryMax: 50 * time.Millisecond, ConnectTimeout: patient},
	}
}

// shortTries is the same where a node is silent.
func shortTries() Config {
	config := quick()
	config.Retry.TryDeadline = time.Second
	return config
}

// pair is two nodes and a client; those calls about the path come first to the first one. The second one is well.
func pair(t *testing.T, config Config, first func(message) any) (*Client, *scripted, *scripted, Path) {
	t.Helper()
	one := &scripted{name: "s1", script: first}
	two := &scripted{name: "s2", script: always(with(writtenReply, "value", "two"))}
	client := joined(t, config, one, two)
	return client, one, two, preferredPath(t, client, "s1")
}

func preferredPath(t testing.TB, client *Client, name string) Path {
	t.Helper()
	for n := range 1000 {
		if path := PathOf("p" + itemText(int64(n))); client.Preferred(path) == name {
			return path
		}
	}
	t.Fatalf("no path goes to %s", name)
	return Path{}
}
