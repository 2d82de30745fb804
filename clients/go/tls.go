package distkv

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"

	"distkv.example/client/internal/msgpack"
)

const (
	// plainGreetingMax is the longest greeting in plain text that is skipped.
	plainGreetingMax = 16 << 10
	tlsProtocol      = "distkv"
)

// TLS is how nodes are known, and as whom this client presents itself. Nothing is believed because the system believes it.
// Only TLS 1.3 is spoken. The files are read again for a new connection, all of them, once one has changed; what cannot be used
// then, as a certificate without the key that belongs to it, changes nothing (Config.Logger is told). Open connections stay.
type TLS struct {
	// CAHash is the SHA-256 of the CA's certificate (DER), which nodes must present; CAFile is a PEM file with CAs. One of
	// the two.
	CAHash []byte
	CAFile string
	// CertFile and KeyFile are a client certificate (PEM) and its private key. Without KeyFile, CertFile has both.
	CertFile, KeyFile string

	ticket *ticketCertificate // in place of CertFile and KeyFile
	files  *tlsFiles
}

// prepare checks the settings, and reads the files.
func (t *TLS) prepare(log *slog.Logger) error {
	if (t.CAHash == nil) == (t.CAFile == "") {
		return usage("TLS needs either the CA's hash or a file with it")
	}
	if t.CAFile == "" && len(t.CAHash) != sha256.Size {
		return usage("the CA's hash has 32 bytes")
	}
	var names []string
	if t.CAFile != "" {
		t.CAFile = wholeName(t.CAFile)
		names = append(names, t.CAFile)
	}
	switch {
	case t.KeyFile != "" && t.CertFile == "":
		return usage("TLS.KeyFile needs TLS.CertFile, which has the certificate for that key")
	case t.CertFile != "":
		t.CertFile, t.KeyFile = wholeName(t.CertFile), wholeName(cmp.Or(t.KeyFile, t.CertFile))
		names = append(names, t.CertFile, t.KeyFile)
	case t.ticket != nil && t.ticket.file != "":
		names = append(names, t.ticket.file)
	}
	files, err := readTLS(names, log, t.read)
	if err != nil {
		return usage(err.Error())
	}
	t.files = files
	return nil
}

// read makes the settings of sessions from what the files have.
func (t *TLS) read() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{tlsProtocol}, SessionTicketsDisabled: true}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("the file with the CA cannot be used: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("the file with the CA cannot be used: it has no certificate")
		}
	}
	var certificate tls.Certificate
	var err error
	switch {
	case t.CertFile != "":
		certificate, err = tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil && t.KeyFile == t.CertFile && hasNoKey(t.CertFile) {
			return nil, errors.New("the client certificate cannot be used: TLS.KeyFile is missing: TLS.CertFile has no private key")
		}
		if err != nil {
			return nil, fmt.Errorf("the client certificate cannot be used: %w", err)
		}
	case t.ticket != nil:
		certificate, err = t.ticket.read()
		if err != nil {
			return nil, fmt.Errorf("the client certificate in the ticket cannot be used: %w", err)
		}
	default:
		return config, nil
	}
	// Also where it is of no CA that the node names: then the node says that it refuses it, and not that somebody must log in.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	return config, nil
}

// hasNoKey tells whether a file can be read, and has no private key.
func hasNoKey(file string) bool {
	text, err := os.ReadFile(file)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return false
		}
	}
	return err == nil
}

func privateKey(der []byte) (any, error) {
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	return x509.ParsePKCS1PrivateKey(der)
}

// begin makes a session over a socket, and knows the node at its end. The zone of an IPv6 address is this machine's, so no
// certificate has it.
func (t *TLS) begin(ctx context.Context, socket net.Conn, host string) (net.Conn, error) {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() != "" {
		host = ip.WithZone("").String()
	}
	made, _ := t.files.now()
	config := made.Clone()
	config.ServerName = host
	if t.CAHash != nil {
		// The CA comes with the chain; VerifyConnection, which is always called, verifies all of it.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error {
			return verifyByHash(state.PeerCertificates, t.CAHash, host)
		}
	}
	session := tls.Client(&plainSkipper{Conn: socket}, config)
	if err := session.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.As(err, new(*tryError)) {
			return nil, err
		}
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			return nil, fmt.Errorf("the node's certificate is not believed: %w", err)
		}
		return nil, fmt.Errorf("no TLS came about: %w", err)
	}
	return session, nil
}

// isCut tells a handshake that ended with its connection from one that was refused: a node that stops says nothing of this
// client, and another one may serve it.
func isCut(err error) bool {
	var broken *net.OpError
	isBroken := errors.As(err, &broken) && (broken.Op == "read" || broken.Op == "write")
	return isBroken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// verifyByHash finds the CA with this hash in what a node presents, and verifies the chain to it, the name and the time.
func verifyByHash(presented []*x509.Certificate, hash []byte, host string) error {
	if len(presented) == 0 {
		return errors.New("the node presents no certificate")
	}
	options := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	isThere := false
	for _, certificate := range presented {
		if sum := sha256.Sum256(certificate.Raw); bytes.Equal(sum[:], hash) {
			options.Roots.AddCert(certificate)
			isThere = true
		} else {
			options.Intermediates.AddCert(certificate)
		}
	}
	if !isThere {
		return errors.New("the node is of another CA than the one with this hash")
	}
	if _, err := presented[0].Verify(options); err != nil {
		return fmt.Errorf("the node's certificate is not believed: %w", err)
	}
	return nil
}

// plainSkipper leaves out one greeting in plain text before the first record of TLS: a node on the client's own machine
// sends it before it sees that TLS begins. Nothing in it is believed; but an error is told (a [tryError]): a node that is
// full, say, sends no more than that.
type plainSkipper struct {
	net.Conn
	begun bool
	rest  []byte
}

func (p *plainSkipper) Read(b []byte) (int, error) {
	if !p.begun {
		if err := p.skip(); err != nil {
			return 0, err
		}
		p.begun = true
	}
	if len(p.rest) > 0 {
		count := copy(b, p.rest)
		p.rest = p.rest[count:]
		return count, nil
	}
	return p.Conn.Read(b)
}

func (p *plainSkipper) skip() error {
	var plain []byte
	chunk := make([]byte, 4096)
	for {
		count, err := p.Conn.Read(chunk)
		plain = append(plain, chunk[:count]...)
		if err != nil {
			return err
		}
		if len(plain) == 0 {
			continue
		}
		if isRecord(plain[0]) {
			p.rest = plain
			return nil
		}
		end, err := msgpack.Skip(plain, 0)
		if err == nil {
			if told := message(plain[:end]).check(); told != nil {
				return told
			}
			if p.rest = plain[end:]; len(p.rest) > 0 && !isRecord(p.rest[0]) {
				return errors.New("the node does not speak TLS")
			}
			return nil
		}
		if err != msgpack.ErrShort || len(plain) > plainGreetingMax {
			return errors.New("the node does not speak TLS")
		}
	}
}

// isRecord tells whether a record of TLS begins with this byte.
func isRecord(b byte) bool { return b >= 20 && b <= 23 }
