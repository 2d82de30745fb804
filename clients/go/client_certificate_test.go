package distkv

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"distkv.example/client/distkvtest"
)

// Client certificates: that a node refuses one is told as that, and one that was replaced on disk is taken for new connections.

// pairOf copies the certificate of this name, and its key, to where a client has its own.
func pairOf(t *testing.T, folder, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "cert.key")
	write(t, cert, contentOf(t, "tls/"+name+".pem"))
	write(t, key, contentOf(t, "tls/"+name+".key"))
	return cert, key
}

func contentOf(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(fixtures(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// certificateTicket is a ticket with the client certificate of this name, for the nodes of ca.pem.
func certificateTicket(t *testing.T, address, name string) string {
	t.Helper()
	inside := func(file string) (all [][]byte) {
		for block, rest := pem.Decode([]byte(contentOf(t, file))); block != nil; block, rest = pem.Decode(rest) {
			all = append(all, block.Bytes)
		}
		return all
	}
	ca := sha256.Sum256(inside("tls/ca.pem")[0])
	return ticketFrom(fields{"addresses": []any{address}, "network": "", "ca": ca[:], "chain": inside("tls/" + name + ".pem"),
		"key": inside("tls/" + name + ".key")[0]})
}

// strict is a node that takes client certificates of these CAs.
func strict(t *testing.T, cas ...string) *distkvtest.Cluster {
	t.Helper()
	all := ""
	for _, ca := range cas {
		all += contentOf(t, "tls/"+ca+".pem")
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, all)
	return cluster(t, 1, append(certificate(t), "--client-ca", file)...)
}

// startAgain: all connections to the node end.
func startAgain(t *testing.T, node *distkvtest.Node) {
	t.Helper()
	node.Kill()
	if err := node.Restart(); err != nil {
		t.Fatal(err)
	}
}

// refusedCertificate is the error of a call that is not made, since the nodes refuse the client's certificate.
func refusedCertificate(t *testing.T, client *Client) *Error {
	t.Helper()
	var failed *Error
	until(t, func() bool { // The node may not be up again.
		_, err := client.Put(t.Context(), MustPath("a"), 1, nil)
		return errors.As(err, &failed) && errors.Is(err, ErrDenied)
	})
	return failed
}

// isServed waits until the client is let in.
func isServed(t *testing.T, client *Client) {
	t.Helper()
	until(t, func() bool {
		_, err := client.Put(t.Context(), MustPath("a"), 1, nil)
		return err == nil
	})
}

func TestARefusedClientCertificateIsToldAsThat(t *testing.T) {
	ca := fixtures(t, "tls/ca.pem")
	for name, one := range map[string]struct {
		nodes      *distkvtest.Cluster
		cert, told string
	}{
		"expired":         {strict(t, "ca", "past-ca"), "past", "(by the clock there it has expired, or is not valid yet): renew it"},
		"of another CA":   {strict(t, "past-ca"), "joe", "(no CA that is trusted there has issued it): use one of the network's CA"},
		"not for clients": {strict(t, "ca"), "node", "(it is not for clients): use one with the extended key usage clientAuth"},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := one.nodes.Seeds()
			cert, key := fixtures(t, "tls/"+one.cert+".pem"), fixtures(t, "tls/"+one.cert+".key")
			file := filepath.Join(t.TempDir(), "ticket")
			text := certificateTicket(t, seeds[0], one.cert)
			write(t, file, text)
			for place, config := range map[string]Config{
				"that in " + wholeName(cert):    {Seeds: seeds, TLS: &TLS{CAFile: ca, CertFile: cert, KeyFile: key}},
				"that in its ticket":            {Ticket: text},
				"that in the ticket in " + file: {Ticket: "@" + file},
			} {
				failed := denied(t, config)
				told := "the node refuses the client's certificate, " + place + " " + one.told
				if !strings.Contains(failed.Error(), told) || failed.Code != "no_access" {
					t.Errorf("%v, not %q", failed, told)
				}
			}
		})
	}
}

func TestAClientCertificateThatIsReplacedIsTakenForNewConnections(t *testing.T) {
	nodes := strict(t, "ca", "past-ca")
	folder := t.TempDir()
	cert, key := pairOf(t, folder, "joe")
	for name, config := range map[string]Config{
		"files":  {Seeds: nodes.Seeds(), TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem"), CertFile: cert, KeyFile: key}},
		"ticket": {Ticket: "@" + filepath.Join(folder, "ticket")},
	} {
		t.Run(name, func(t *testing.T) {
			replace := func(with string) {
				pairOf(t, folder, with)
				write(t, filepath.Join(folder, "ticket"), certificateTicket(t, nodes.Seeds()[0], with))
			}
			replace("joe")
			client := connect(t, config)
			put(t, client, MustPath("a"), 1, nil)
			replace("past")
			put(t, client, MustPath("a"), 2, nil) // Its connection stays as it is.
			startAgain(t, nodes.Nodes[0])
			if failed := refusedCertificate(t, client); !strings.Contains(failed.Error(), "has expired") {
				t.Error(failed)
			}
			replace("joe")
			isServed(t, client)
		})
	}
}

func TestHalfAPairIsNotTakenAndToldToTheLogger(t *testing.T) {
	nodes := strict(t, "ca", "past-ca")
	folder := t.TempDir()
	cert, key := pairOf(t, folder, "joe")
	var log syncBuffer
	client := connect(t, Config{Seeds: nodes.Seeds(), TLS: &TLS{CAFile: fixtures(t, "tls/ca.pem"), CertFile: cert, KeyFile: key},
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	put(t, client, MustPath("a"), 1, nil)
	write(t, key, contentOf(t, "tls/past.key"))
	for range 2 { // It is told once.
		startAgain(t, nodes.Nodes[0])
		isServed(t, client)
	}
	if told := log.String(); strings.Count(told, "level=WARN") != 1 || !strings.Contains(told, "cannot be used") {
		t.Error(told)
	}
	// Nor is one that is gone, or no plain file: whoever opens that one waits for ever.
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	startAgain(t, nodes.Nodes[0])
	isServed(t, client)
	write(t, cert, contentOf(t, "tls/past.pem"))
	write(t, key, contentOf(t, "tls/past.key"))
	startAgain(t, nodes.Nodes[0])
	if failed := refusedCertificate(t, client); strings.Contains(failed.Error(), "another one") {
		t.Error(failed)
	}
	// What cannot be used is told with the refusal, too.
	write(t, cert, contentOf(t, "tls/joe.pem"))
	until(t, func() bool {
		return strings.Contains(refusedCertificate(t, client).Error(), "; there is another one by now, which cannot be used: ")
	})
	write(t, key, contentOf(t, "tls/joe.key"))
	isServed(t, client)
	if told := log.String(); strings.Count(told, "level=INFO") != 2 {
		t.Error(told)
	}
}

// deaf is a connection to a name server that answers nothing, and heeds no deadline: it lasts until it is closed.
type deaf struct {
	net.Conn
	asked, closed chan struct{}
}

func (d deaf) Write(b []byte) (int, error) { d.asked <- struct{}{}; return len(b), nil }

func (d deaf) SetDeadline(time.Time) error { return nil }

func (d deaf) Read([]byte) (int, error) {
	<-d.closed
	return 0, net.ErrClosed
}

func (d deaf) Close() error {
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
	return nil
}

func TestWhatWaitsForANameServerEndsWithTheClient(t *testing.T) {
	asked, usual := make(chan struct{}, 100), net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return deaf{asked: asked, closed: make(chan struct{})}, nil
	}}
	defer func() { net.DefaultResolver = usual }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := Connect(ctx, Config{Seeds: []string{"silent.example:1", "silent.example:2"}, ConnectDeadline: time.Hour,
		Pool: PoolConfig{ConnectTimeout: time.Hour}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	until(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "net.(*Resolver)")
	})
}
