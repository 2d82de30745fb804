package distkv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// An IPv6 address with a zone, and the name that the node's certificate must have.

func TestAZoneIsNoPartOfTheNameThatACertificateMustHave(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP("fe80::5")}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	node := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{tlsProtocol}}
	begin := func(host string) error {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			_ = tls.Server(there, node).HandshakeContext(t.Context())
		}()
		hash := sha256.Sum256(der)
		trust := &TLS{CAHash: hash[:]}
		if err := trust.prepare(slog.Default()); err != nil {
			return err
		}
		_, err := trust.begin(t.Context(), here, host)
		return err
	}
	for _, host := range []string{"fe80::5", "fe80::5%eth0", "fe80::5%3"} {
		if err := begin(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := begin("fe80::6%eth0"); err == nil || !strings.Contains(err.Error(), "fe80::6") {
		t.Errorf("another address: %v", err)
	}
}
