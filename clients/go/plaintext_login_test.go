package distkv

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A password or token does not leave the machine in plain text, whoever asks for it, unless the client was told so.

func TestWhatIsSentToALoopbackAddressStaysOnTheMachine(t *testing.T) {
	for _, host := range strings.Fields("127.0.0.1 127.0.0.0 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:127.9.9.9") {
		if !isOwnMachine(&net.TCPAddr{IP: net.ParseIP(host)}) {
			t.Error(host)
		}
	}
	others := "10.0.0.7 126.255.255.255 128.0.0.1 0.0.0.0 169.254.0.1 192.168.1.1 255.255.255.255 :: ::2 ::127.0.0.1 " +
		"::ffff:10.0.0.7 ::ffff:128.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 fe80::1 fd00::1 2001:db8::1 7f00::1"
	for _, host := range strings.Fields(others) {
		if ip := net.ParseIP(host); ip == nil || isOwnMachine(&net.TCPAddr{IP: ip}) {
			t.Error(host)
		}
	}
	for _, peer := range []net.Addr{nil, &net.TCPAddr{}, &net.UnixAddr{Name: "127.0.0.1"}, &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "lo"}} {
		if isOwnMachine(peer) {
			t.Error(peer)
		}
	}
}

// farAway makes a client's sockets, which say at some ports that they are connected to another machine.
type farAway struct {
	mu    sync.Mutex
	ports map[int]bool
}

type farSocket struct {
	net.Conn
	peer net.Addr
}

func (s farSocket) RemoteAddr() net.Addr { return s.peer }

func (f *farAway) dial(ctx context.Context, network, address string) (net.Conn, error) {
	socket, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	peer := *socket.RemoteAddr().(*net.TCPAddr)
	if !f.ports[peer.Port] {
		return socket, nil
	}
	peer.IP = net.IPv4(10, 0, 0, 7)
	return farSocket{socket, &peer}, nil
}

// put tells whether nodes are at another machine.
func (f *farAway) put(isFar bool, nodes ...*scripted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ports == nil {
		f.ports = map[int]bool{}
	}
	for _, node := range nodes {
		f.ports[node.listener.Addr().(*net.TCPAddr).Port] = isFar
	}
}

const herSecret = "her secret"

// config is that of a client whose sockets it makes.
func (f *farAway) config(login *Login, seeds ...string) Config {
	config := quick()
	config.Seeds, config.Login, config.dial, config.ConnectDeadline = seeds, login, f.dial, time.Minute
	return config
}

// ownAddress is one of this machine that is no loopback address; "": it has no network.
func ownAddress() string {
	socket, err := net.Dial("udp4", "192.0.2.1:9") // Nothing is sent.
	if err != nil {
		return ""
	}
	defer socket.Close()
	if own := socket.LocalAddr().(*net.UDPAddr).IP; !own.IsLoopback() && !own.IsUnspecified() {
		return own.String()
	}
	return ""
}

// atNoLoopback runs a test with a node that says this in its greeting, at an address that is no loopback address.
func atNoLoopback(t *testing.T, greets fields, do func(t *testing.T, far *farAway, node *scripted)) {
	prepare := func(host string) *scripted {
		return &scripted{name: "s1", host: host, network: "n", script: always(with(writtenReply, "value", 1)), greets: greets}
	}
	t.Run("it says that it is far", func(t *testing.T) {
		far, node := new(farAway), prepare("")
		startScripted(t, node)
		far.put(true, node)
		do(t, far, node)
	})
	t.Run("it has another address of this machine", func(t *testing.T) {
		host := ownAddress()
		if host == "" {
			t.Skip("this machine has no network")
		}
		node := prepare(host)
		startScripted(t, node)
		do(t, new(farAway), node)
	})
}

// asks is the greeting of a node that asks for a login by this method.
func asks(method string) fields { return fields{"auth": []any{method}} }

// heardNothing: no client has said anything to it of the login that it has.
func heardNothing(t *testing.T, node *scripted) {
	t.Helper()
	// All that a client sends that does not log in.
	settings := must[[]byte](t)(Encode(fields{"seq": 0, "qlen": 10}))
	node.mu.Lock()
	defer node.mu.Unlock()
	if node.accepted == 0 || len(node.requests) > 0 || node.came > node.accepted*len(settings) {
		t.Errorf("%d connections, %d requests, %d bytes", node.accepted, len(node.requests), node.came)
	}
}

func TestNoSecretGoesToAnotherMachineInPlainText(t *testing.T) {
	for name, way := range map[string]struct {
		login  *Login
		method string // that the node asks for
		what   string // that would be sent
	}{
		"password":              {PasswordLogin("ann", herSecret), "password", "password"},
		"token":                 {TokenLogin("ann", herSecret), "password", "token"},
		"as it asks":            {&Login{User: "ann", Secret: herSecret}, "password", "password"},
		"as it asks, for token": {&Login{User: "ann", Secret: herSecret}, "token", "token"},
		"by what it made up":    {&Login{User: "ann", Secret: herSecret}, "made up", "secret"},
		"by a ticket":           {nil, "password", "password"},
	} {
		t.Run(name, func(t *testing.T) {
			atNoLoopback(t, asks(way.method), func(t *testing.T, far *farAway, node *scripted) {
				config := far.config(way.login, node.seed())
				if way.login == nil {
					config.Ticket = ticketFrom(fields{"addresses": []any{node.seed()}, "network": "n", "method": "password", "user": "ann",
						"secret": herSecret})
				}
				failed := denied(t, config)
				var kept *tryError
				if failed.Code != "plaintext_login" || !errors.As(failed, &kept) || kept.kind != tryNoAccess || !errors.Is(failed, ErrRefused) {
					t.Errorf("%+v", failed)
				}
				for _, told := range []string{"into " + node.seed() + ": it asks for a login", "the " + way.what + " would", "Config.TLS", "PlaintextLogin"} {
					if !strings.Contains(failed.Error(), told) {
						t.Errorf("%v, without %q", failed, told)
					}
				}
				if strings.Contains(failed.Error(), herSecret) {
					t.Error(failed)
				}
				heardNothing(t, node)
			})
		})
	}
}

// getsIn checks that a client gets in, and gives how it has logged in.
func getsIn(t *testing.T, config Config, node *scripted) []message {
	t.Helper()
	if found := get[int](t, connect(t, config), PathOf("a")); found != 1 {
		t.Error(found)
	}
	return node.actions("auth")
}

func TestWhoWasToldToSendsItsSecretInPlainText(t *testing.T) {
	atNoLoopback(t, asks("password"), func(t *testing.T, far *farAway, node *scripted) {
		config := far.config(PasswordLogin("ann", herSecret), node.seed())
		config.PlaintextLogin = true
		if told := getsIn(t, config, node); len(told) != 1 || told[0].text("secret") != herSecret {
			t.Error(told)
		}
	})
}

func TestAMethodWithoutASecretGetsNone(t *testing.T) {
	for _, method := range []string{"root", "_test"} {
		for _, said := range []string{"", method} {
			atNoLoopback(t, asks(method), func(t *testing.T, far *farAway, node *scripted) {
				told := getsIn(t, far.config(&Login{User: "ann", Secret: herSecret, Method: said}, node.seed()), node)
				if len(told) != 1 || told[0].text("typ") != method || told[0].text("ident") != "ann" || told[0].get("secret") != nil {
					t.Error(method, said, told)
				}
			})
		}
	}
}

func TestWhoNeedsASecretAndHasNoneIsToldAtOnce(t *testing.T) {
	for _, method := range []string{"password", "token"} {
		for _, said := range []string{"", method} {
			atNoLoopback(t, asks(method), func(t *testing.T, far *farAway, node *scripted) {
				failed := denied(t, far.config(&Login{User: "ann", Method: said}, node.seed()))
				text := "cannot get into " + node.seed() + ": who logs in as \"ann\" needs the user's secret, and none was given"
				if failed.Code != "no_access" || !strings.Contains(failed.Error(), text) {
					t.Error(method, said, failed)
				}
				if told := node.actions("auth"); len(told) != 0 {
					t.Error(told, "there is nothing to look at")
				}
			})
		}
	}
}

func TestWhoHasNoSecretOrNeedsNoneGoesOn(t *testing.T) {
	// Of a method that this client does not know, it cannot say whether it needs one.
	atNoLoopback(t, asks("another"), func(t *testing.T, far *farAway, node *scripted) {
		if told := getsIn(t, far.config(&Login{User: "ann"}, node.seed()), node); len(told) != 1 || told[0].get("secret") != nil {
			t.Error(told)
		}
	})
	atNoLoopback(t, nil, func(t *testing.T, far *farAway, node *scripted) {
		if told := getsIn(t, far.config(PasswordLogin("ann", herSecret), node.seed()), node); len(told) != 0 {
			t.Error(told)
		}
	})
	// What proves that one has the key is of no use to anybody else.
	atNoLoopback(t, with(asks("password"), "nonce", make([]byte, nonceBytes)), func(t *testing.T, far *farAway, node *scripted) {
		failed := denied(t, far.config(&Login{Key: make([]byte, 32)}, node.seed()))
		told := node.actions("auth")
		if failed.Code != "no_access" || !strings.Contains(failed.Error(), "does not prove") || len(told) == 0 || told[0].text("typ") != "key" {
			t.Error(failed, told)
		}
	})
}

func TestByTLSASecretGoesAnywhere(t *testing.T) {
	far, node := new(farAway), &scripted{name: "s1", asksLogin: true, tls: certified(t, "node"), script: always(with(writtenReply, "value", 1))}
	startScripted(t, node)
	far.put(true, node)
	config := far.config(PasswordLogin("ann", herSecret), node.seed())
	config.TLS = &TLS{CAFile: fixtures(t, "tls/ca.pem")}
	if told := getsIn(t, config, node); len(told) != 1 || told[0].text("secret") != herSecret {
		t.Error(told)
	}
}

func TestANameCountsByTheAddressThatItHas(t *testing.T) {
	far, node := new(farAway), &scripted{name: "s1", asksLogin: true}
	startScripted(t, node)
	_, port, _ := net.SplitHostPort(node.seed())
	config := far.config(PasswordLogin("ann", herSecret), "localhost:"+port)
	config.Topology.OnlySeeds = true
	connect(t, config)
	before := logins(node)
	far.put(true, node)
	_, err := Connect(t.Context(), config)
	if failed := wantError(t, err, ErrDenied); failed.Code != "plaintext_login" || !strings.Contains(failed.Error(), "into localhost:"+port) {
		t.Error(failed)
	}
	if logins(node) != before || before == 0 {
		t.Error(before, logins(node))
	}
}

func TestANodeThatWouldGetASecretInPlainTextIsPassedOver(t *testing.T) {
	far := new(farAway)
	client, one, two, path := withLogin(t, far.config(nil))
	watch := must[*Watch](t)(client.OpenWatch(t.Context(), path, nil))
	defer watch.Close()
	isAtBoth(t, client)
	before := logins(one) + logins(two)
	far.put(true, one)
	one.hangUpWith("")
	until(t, func() bool { return client.Stats().Pool.Connections == 1 })
	if written := put(t, client, path, 1, nil); written.Node != "s2" {
		t.Errorf("%+v", written)
	}
	far.put(true, two)
	two.hangUpWith("")
	until(t, func() bool { return client.Stats().Pool.Connections == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	calls := operations(client, path)
	delete(calls, "connect") // It is another client's.
	delete(calls, "shards")  // They are fetched behind it.
	calls["freshest"] = func(ctx context.Context) error {
		_, err := client.Get(ctx, path, &GetOptions{Read: Freshest})
		return err
	}
	calls["watch that is open"] = func(context.Context) error { return nextError(watch) }
	for name, call := range calls {
		started := time.Now()
		if failed := wantError(t, call(ctx), ErrDenied); failed.Code != "plaintext_login" || !strings.Contains(failed.Error(), "in plain text") {
			t.Errorf("%s: %+v", name, failed)
		}
		if took := time.Since(started); took > patient { // Of the minute that a call may take.
			t.Errorf("%s: not at once, but after %v", name, took)
		}
	}
	if now := logins(one) + logins(two); now != before {
		t.Errorf("%d logins, before that %d", now, before)
	}
}

func TestASeedThatWouldGetASecretInPlainTextIsPassedOver(t *testing.T) {
	far := new(farAway)
	one, two := &scripted{name: "s1", asksLogin: true}, &scripted{name: "s2", asksLogin: true, script: always(writtenReply)}
	seeds := startScripted(t, one, two)
	far.put(true, one)
	client := connect(t, far.config(PasswordLogin("ann", herSecret), seeds...))
	if written := put(t, client, preferredPath(t, client, "s1"), 1, nil); written.Node != "s2" {
		t.Errorf("%+v", written)
	}
	heardNothing(t, one)
}
