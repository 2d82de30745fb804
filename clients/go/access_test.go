package distkv

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"distkv.example/client/distkvtest"
	"distkv.example/client/internal/msgpack"
)

// Logins, denial, TLS, tickets, client certificates, and secrets that change while a client runs.

// command is one of the node's program that must work; what it prints.
func command(t testing.TB, args ...string) string {
	t.Helper()
	program, err := distkvtest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := exec.Command(program, args...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("%v: %v\n%s", args, err, failed.Stderr)
		}
		t.Fatal(err)
	}
	return strings.TrimSpace(string(printed))
}

type users struct {
	nodes  *distkvtest.Cluster
	folder string
	ann    []string // what the program's commands need to be her
}

// withUsers is nodes on which clients must log in: ann, an admin, and bob, who may read below `open`.
func withUsers(t testing.TB, nodes int) users {
	u := users{nodes: cluster(t, nodes), folder: t.TempDir()}
	at := []string{"--connect", u.nodes.Nodes[0].Client}
	for _, name := range []string{"ann", "bob"} {
		if err := os.WriteFile(filepath.Join(u.folder, name), []byte(name+"'s secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command(t, append([]string{"user", "add", "ann", "--role", "admin", "--new-secret-file", filepath.Join(u.folder, "ann")}, at...)...)
	command(t, append([]string{"auth", "on", "password"}, at...)...)
	u.ann = append(at, "--user", "ann", "--secret-file", filepath.Join(u.folder, "ann"))
	for _, pattern := range []string{"open", "open.#"} {
		command(t, append([]string{"acl", "set", "readers", pattern, "rxe"}, u.ann...)...)
	}
	command(t, append([]string{"user", "add", "bob", "--acl", "readers", "--new-secret-file", filepath.Join(u.folder, "bob")}, u.ann...)...)
	u.isHeard(t)
	return u
}

// isHeard waits until all nodes have heard of what was said to the first one: they have it before what is written there then.
func (u *users) isHeard(t testing.TB) {
	t.Helper()
	client, err := Connect(t.Context(), Config{Seeds: u.nodes.Seeds()[:1], Login: PasswordLogin("ann", "ann's secret"),
		ConnectDeadline: time.Minute, Pool: PoolConfig{ConnectTimeout: patient}, Topology: TopologyConfig{OnlySeeds: true}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, MustPath("heard"), 1, &PutOptions{Copies: len(u.nodes.Nodes) - 1, Timeout: time.Minute})
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func denied(t testing.TB, config Config) *Error {
	t.Helper()
	before := footprint()
	client, err := Connect(t.Context(), config)
	if err == nil {
		_ = client.Close(context.Background())
	}
	failed := wantError(t, err, ErrDenied)
	nothingLeft(t, before)
	return failed
}

func TestWhoLogsInMayDoWhatItsRoleAllows(t *testing.T) {
	u := withUsers(t, 2)
	ann := connect(t, Config{Seeds: u.nodes.Seeds(), Login: PasswordLogin("ann", "ann's secret")})
	allLive(t, ann, 2)
	put(t, ann, MustPath("open.x"), 1, &PutOptions{Copies: 1})
	put(t, ann, MustPath("shut"), 2, &PutOptions{Copies: 1})
	bob := connect(t, Config{Seeds: u.nodes.Seeds(), Login: &Login{User: "bob", Secret: "bob's secret"}})
	if found := get[int](t, bob, MustPath("open.x")); found != 1 {
		t.Error(found)
	}
	_, read := bob.Get(t.Context(), MustPath("shut"), nil)
	_, write := bob.Put(t.Context(), MustPath("open.x"), 2, nil)
	_, remove := bob.Delete(t.Context(), MustPath("open.x"), nil)
	_, watch := bob.OpenWatch(t.Context(), MustPath("shut"), nil)
	_, monitor := bob.OpenMonitor(t.Context(), PathOf("shut", "#"))
	for _, err := range []error{read, write, remove, watch, monitor} {
		if failed := wantError(t, err, ErrDenied); failed.Code != "denied" || failed.Attempts != 1 {
			t.Errorf("%+v", failed)
		}
	}
	if event, err := openWatch(t, bob, MustPath("open"), nil).Next(t.Context()); err != nil || event.(Change).Path.String() != "open.x" {
		t.Error(event, err)
	}
	heard := must[*Monitor](t)(ann.OpenMonitor(t.Context(), PathOf("open", "#")))
	defer heard.Close()
	if err := ann.Send(t.Context(), PathOf("open", "m"), 7); err != nil {
		t.Error(err)
	}
	if event, err := heard.Next(t.Context()); err != nil || event.(TopicMessage).Topic.String() != "open.m" {
		t.Error(event, err)
	}
	until(t, func() bool { // The other node hears of the user a moment later.
		_, err := bob.Get(t.Context(), MustPath("shut"), &GetOptions{Read: Freshest})
		return wantError(t, err, ErrDenied).Code == "denied"
	})
	// Who is removed is refused from then on.
	command(t, append([]string{"user", "remove", "bob"}, u.ann...)...)
	until(t, func() bool {
		_, err := bob.Get(t.Context(), MustPath("open.x"), &GetOptions{Timeout: 2 * time.Second})
		return errors.Is(err, ErrDenied) || errors.Is(err, ErrUnavailable)
	})
	for _, ask := range []func() error{
		func() error {
			_, err := bob.Get(t.Context(), MustPath("open.x"), &GetOptions{Read: Freshest})
			return err
		},
		func() error { _, err := bob.ConflictsList(t.Context(), MustPath("open")); return err },
	} {
		until(t, func() bool { return errors.Is(ask(), ErrDenied) })
	}
}

func TestWhoIsRemovedIsToldSoAlsoByWhatIsOpen(t *testing.T) {
	u := withUsers(t, 3)
	bob := connect(t, Config{Seeds: u.nodes.Seeds(), Login: &Login{User: "bob", Secret: "bob's secret"}})
	allLive(t, bob, 3)
	watch := openWatch(t, bob, MustPath("open.x"), nil)
	collect(t, watch, is[UpToDate])
	ended := make(chan error, 1)
	go func() {
		_, err := watch.Next(t.Context())
		ended <- err
	}()
	command(t, append([]string{"user", "remove", "bob"}, u.ann...)...)
	until(t, func() bool { return bob.Stats().Pool.Connections == 0 })
	var err error
	var took time.Duration
	until(t, func() bool { // A node that it had no connection to hears of that a moment later.
		started := time.Now()
		_, err = bob.Get(t.Context(), MustPath("open.x"), nil)
		took = time.Since(started)
		return err != nil && !errors.Is(err, ErrNotFound)
	})
	if failed := wantError(t, err, ErrDenied); failed.Code != "no_access" || took > patient { // Of the minute that it may take.
		t.Errorf("%+v after %v", failed, took)
	}
	wantError(t, <-ended, ErrDenied)
}

func TestNobodyAndWrongSecretsAreRefusedAtOnce(t *testing.T) {
	u := withUsers(t, 2)
	for _, login := range []*Login{nil, PasswordLogin("ann", "wrong"), PasswordLogin("zoe", "x"), {Key: make([]byte, 32)}} {
		started := time.Now()
		failed := denied(t, Config{Seeds: u.nodes.Seeds(), Login: login, ConnectDeadline: time.Minute})
		if failed.Code != "no_access" || strings.Contains(failed.Error(), "wrong") && login.Key == nil {
			t.Errorf("%v", failed)
		}
		if took := time.Since(started); took > patient {
			t.Error("not at once:", took)
		}
	}
	secret := PasswordLogin("ann", "her-word")
	if text := fmt.Sprintf("%v %+v %#v", secret, secret, secret); strings.Contains(text, "her-word") {
		t.Error(text)
	}
}

func TestNoSecretIsShownHoweverItIsPrinted(t *testing.T) {
	login := PasswordLogin("ann", "her-word")
	login.Key = []byte("her-word")
	config := Config{Login: login, Ticket: "her-word", Seeds: []string{"one.example"}}
	hides := func(text string) {
		if strings.Contains(text, "her-word") || strings.Contains(text, base64.StdEncoding.EncodeToString(login.Key)) ||
			strings.Contains(text, hex.EncodeToString(login.Key)) {
			t.Error(text)
		}
	}
	for _, one := range []any{login, *login, config, &config, []any{*login, config}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
			hides(fmt.Sprintf(verb, one))
		}
		encoded, err := json.Marshal(one)
		if err != nil {
			t.Error(err)
		}
		hides(string(encoded))
		var log syncBuffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("started", "it", one)
		slog.New(slog.NewTextHandler(&log, nil)).Info("started", "it", one)
		hides(log.String())
	}
	if text := fmt.Sprintf("%+v", config); !strings.Contains(text, "one.example") || !strings.Contains(text, "ann") {
		t.Error(text)
	}
}

func TestASecretThatChangesKeepsTheConnectionsAndIsNeededForNewOnes(t *testing.T) {
	u := withUsers(t, 2)
	seeds := u.nodes.Seeds()[:1]
	old := Config{Seeds: seeds, Login: PasswordLogin("ann", "ann's secret"), Topology: TopologyConfig{OnlySeeds: true}}
	client := connect(t, old)
	put(t, client, MustPath("a"), 1, nil)
	other := filepath.Join(u.folder, "new")
	if err := os.WriteFile(other, []byte("another secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, append([]string{"user", "password", "ann", "--new-secret-file", other}, u.ann...)...)
	if found := get[int](t, client, MustPath("a")); found != 1 {
		t.Error(found)
	}
	denied(t, old)
	changed := old
	changed.Login = PasswordLogin("ann", "another secret")
	if found := get[int](t, connect(t, changed), MustPath("a")); found != 1 {
		t.Error(found)
	}
}

// certificate is what a node needs that speaks TLS.
func certificate(t testing.TB) []string {
	return []string{"--cert", fixtures(t, "tls/node.pem"), "--cert-key", fixtures(t, "tls/node.key")}
}

func TestTLSByAFileByAHashAndByATicket(t *testing.T) {
	ca := fixtures(t, "tls/ca.pem")
	for name, more := range map[string][]string{
		"TLS only": {"--client-plaintext", "none"},
		// It greets in plain text first on its own machine.
		"both": nil,
	} {
		t.Run(name, func(t *testing.T) {
			nodes := cluster(t, 1, append(certificate(t), more...)...)
			seeds := nodes.Seeds()
			text := command(t, "ticket", "new", seeds[0], "--ca", ca)
			ticket, err := ReadTicket(text)
			if err != nil {
				t.Fatal(err)
			}
			value := []byte(strings.Repeat("0123456789abcdef", 128<<10))
			for i, config := range []Config{
				{Seeds: seeds, TLS: &TLS{CAFile: ca}}, {Seeds: seeds, TLS: &TLS{CAHash: ticket.CAHash}}, {Ticket: text},
			} {
				client := connect(t, config)
				path := PathOf("big", i)
				put(t, client, path, value, nil)
				if found := get[[]byte](t, client, path); string(found) != string(value) {
					t.Error(len(found))
				}
				event := collect(t, openWatch(t, client, path, nil), is[Change])[0].(Change)
				if found := must[[]byte](t)(As[[]byte](event.Value)); len(found) != len(value) {
					t.Error(len(found))
				}
			}
		})
	}
}

func TestAnotherCAAnotherNameAndPlainTextAreRefused(t *testing.T) {
	nodes := cluster(t, 1, append(certificate(t), "--client-plaintext", "none")...)
	seeds := nodes.Seeds()
	failed := denied(t, Config{Seeds: seeds, TLS: &TLS{CAHash: make([]byte, 32)}})
	if !strings.Contains(failed.Error(), "another CA") {
		t.Error(failed)
	}
	second := cluster(t, 1, append(certificate(t), "--client-plaintext", "none")...)
	for _, several := range [][]string{seeds, append(second.Seeds(), seeds...)} {
		if failed := denied(t, Config{Seeds: several}); !strings.Contains(failed.Error(), "by TLS only") {
			t.Error("in plain text:", failed)
		}
	}
	for _, bad := range []TLS{{}, {CAFile: "/no/file"}, {CAHash: []byte("x")}, {CAHash: make([]byte, 32), CAFile: "x"},
		{CAFile: fixtures(t, "tls/node.key")}, {CAFile: fixtures(t, "tls/ca.pem"), CertFile: fixtures(t, "tls/joe.pem"), KeyFile: fixtures(t, "tls/node.key")}} {
		_, err := Connect(t.Context(), Config{Seeds: seeds, TLS: &bad})
		wantError(t, err, ErrUsage)
	}
	// By an address that is not in the certificate.
	other := cluster(t, 1, append(certificate(t), "--client-plaintext", "none", "--client", "127.0.0.2:0")...)
	failed = denied(t, Config{Seeds: other.Seeds(), TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem")}})
	if !strings.Contains(failed.Error(), "127.0.0.2") {
		t.Error(failed)
	}
}

// connectTo connects by TLS to what meets each client in this way, and then hangs up.
func connectTo(t *testing.T, meet func(net.Conn)) (*Client, error) {
	socket := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer socket.Close()
	go func() {
		for {
			met, err := socket.Accept()
			if err != nil {
				return
			}
			meet(met)
			_ = met.Close()
		}
	}()
	return Connect(t.Context(), Config{Seeds: []string{socket.Addr().String()}, TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem")},
		ConnectDeadline: 4 * time.Second})
}

// A node that stops while a client connects says nothing of that client: another one may serve it.
func TestANodeThatEndsInTheHandshakeRefusesNobody(t *testing.T) {
	pair := must[tls.Certificate](t)(tls.LoadX509KeyPair(fixtures(t, "tls/node.pem"), fixtures(t, "tls/node.key")))
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{tlsProtocol}}
	var isShaken atomic.Bool
	for name, meet := range map[string]func(net.Conn){
		"at once":         func(net.Conn) {},
		"after the hello": func(met net.Conn) { _, _ = met.Read(make([]byte, 4096)) },
		"before its greeting": func(met net.Conn) {
			// On a busy machine the client may have given up first.
			if tls.Server(met, config).Handshake() == nil {
				isShaken.Store(true)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // It takes all of its time.
			until(t, func() bool {
				_, err := connectTo(t, meet)
				wantError(t, err, ErrUnavailable)
				return name != "before its greeting" || isShaken.Load()
			})
		})
	}
}

func TestWhatANodeSaysInPlainTextBeforeTLSIsTold(t *testing.T) {
	for code, kind := range map[string]error{"too_many": ErrUnavailable, "auth_required": ErrUnavailable, "denied": ErrDenied, plaintextLogin: ErrDenied,
		"": ErrDenied} {
		t.Run(code, func(t *testing.T) {
			t.Parallel() // One takes all of its time.
			told := msgpack.AppendMapHead(nil, 2+boolean(code != ""))
			told = msgpack.AppendInt(msgpack.AppendString(told, "seq"), 0)
			told = msgpack.AppendString(msgpack.AppendString(told, "error"), "there are 7 connections")
			if code != "" {
				told = msgpack.AppendString(msgpack.AppendString(told, "code"), code)
			}
			_, err := connectTo(t, func(met net.Conn) {
				for i := range told { // In pieces.
					_, _ = met.Write(told[i : i+1])
				}
				_, _ = met.Read(make([]byte, 4096))
			})
			var kept *tryError
			failed := wantError(t, err, kind)
			if !strings.Contains(err.Error(), "there are 7 connections") || !errors.As(err, &kept) || kept.code != code ||
				failed.Code == plaintextLogin {
				t.Errorf("%+v, %+v", failed, kept)
			}
		})
	}
}

func TestANodeThatIsFullSaysSoAlsoWhereTLSIsUsed(t *testing.T) {
	nodes := cluster(t, 1, append(certificate(t), "--client-plaintext", "none", "--max-connections", "1")...)
	config := Config{Seeds: nodes.Seeds(), TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem")}}
	only := connect(t, config)
	put(t, only, PathOf("a"), 1, nil)
	config.ConnectDeadline = 4 * time.Second
	_, err := Connect(t.Context(), config)
	if wantError(t, err, ErrUnavailable); !strings.Contains(err.Error(), "connections") {
		t.Error(err)
	}
}

func TestANodeWithoutTLSIsNotUsedWithTLS(t *testing.T) {
	_, err := Connect(t.Context(), Config{Seeds: shared(t), TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem")}, ConnectDeadline: 3 * time.Second,
		Pool: PoolConfig{ConnectTimeout: time.Second}})
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrDenied) {
		t.Error(err)
	}
}

func TestATicketFromTheEnvironmentWithAUser(t *testing.T) {
	u := withUsers(t, 2)
	text := command(t, append(append([]string{"ticket", "new"}, u.nodes.Seeds()...), "--user", "ann", "--method", "password", "--secret",
		filepath.Join(u.folder, "ann"))...)
	t.Setenv("DISTKV_TICKET", text)
	client := connect(t, Config{})
	put(t, client, MustPath("t"), 1, nil)
	if told, err := client.Request(t.Context(), "auth_info", nil, nil); told["user"] != "ann" || err != nil {
		t.Error(told, err)
	}
	file := filepath.Join(u.folder, "ticket")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DISTKV_TICKET", "@"+file)
	until(t, func() bool {
		found, err := Get[int](t.Context(), connect(t, Config{}), MustPath("t"), nil)
		return found == 1 && err == nil
	})
	ticket := must[Ticket](t)(ReadTicket(text))
	if shown := fmt.Sprintf("%v %+v %#v", ticket, ticket, ticket); strings.Contains(shown, "secret") {
		t.Error(shown)
	}
}

func TestDamagedTicketsAreTold(t *testing.T) {
	text := command(t, "ticket", "new", "n1", "--ca", fixtures(t, "tls/ca.pem"))
	if ticket := must[Ticket](t)(ReadTicket(text)); len(ticket.Addresses) != 1 || !strings.HasPrefix(ticket.Addresses[0], "n1") {
		t.Error(ticket.Addresses)
	}
	for bad, told := range map[string]string{
		text[:len(text)-1]: "damaged", "distkv2.abc": "later version", "abc": "no ticket", "@/no/file": "file", "distkv1.": "damaged",
		ticketFrom(fields{"addresses": []any{}, "network": "x"}):                              "damaged",
		ticketFrom(fields{"addresses": []any{"n1"}, "network": 5}):                            "damaged",
		ticketFrom(fields{"addresses": []any{"n1"}, "network": "x", "user": "u"}):             "method",
		ticketFrom(fields{"addresses": []any{"n1"}, "network": "x", "ca": []byte("x")}):       "32 bytes",
		ticketFrom(fields{"addresses": []any{strings.Repeat("x", 2000)}, "network": "x"}):     "damaged",
		ticketFrom(fields{"addresses": []any{"n1"}, "network": "x", "chain": []any{1}}):       "damaged",
		ticketFrom(fields{"addresses": []any{"n1"}, "network": "x", "chain": make([]any, 5)}): "damaged",
		ticketFrom(fields{"addresses": make([]any, 17), "network": "x"}):                      "damaged",
	} {
		_, err := ReadTicket(bad)
		wantError(t, err, ErrUsage)
		if !strings.Contains(err.Error(), told) {
			t.Error(bad, err)
		}
	}
}

func ticketFrom(told fields) string {
	content, err := Encode(told)
	if err != nil {
		panic(err)
	}
	return ticketStart + base64.RawURLEncoding.EncodeToString(append(content, checksum(content)...))
}

func checksum(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:4]
}

func TestAClientCertificateIsPresentedWhereTheNodeAsksForIt(t *testing.T) {
	ca, cert, key := fixtures(t, "tls/ca.pem"), fixtures(t, "tls/joe.pem"), fixtures(t, "tls/joe.key")
	nodes := cluster(t, 1, append(certificate(t), "--client-ca", ca)...)
	client := connect(t, Config{Seeds: nodes.Seeds(), TLS: &TLS{CAFile: ca, CertFile: cert, KeyFile: key}})
	put(t, client, MustPath("a"), 1, nil)
	text := command(t, "ticket", "new", nodes.Seeds()[0], "--ca", ca, "--cert", cert, "--cert-key", key)
	if found := get[int](t, connect(t, Config{Ticket: text}), MustPath("a")); found != 1 {
		t.Error(found)
	}
}

func FuzzTickets(f *testing.F) {
	f.Add([]byte("\x82\xa9addresses\x91\xa2n1\xa7network\xa1x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		ticket, err := ReadTicket(ticketStart + base64.RawURLEncoding.EncodeToString(append(content, checksum(content)...)))
		if err != nil {
			wantError(t, err, ErrUsage)
			return
		}
		if msgpack.Whole(content) != nil || len(ticket.Addresses) == 0 || len(ticket.Addresses) > ticketAddressesMax {
			t.Errorf("%x: %v", content, ticket)
		}
	})
}
