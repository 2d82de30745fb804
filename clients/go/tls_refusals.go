package distkv

import (
	"errors"
	"fmt"
	"net"
	"reflect"
)

// What it means that a node ends TLS by an alert: it has looked at the client's certificate, which it gets only once the
// handshake is over for the client.

// Alerts by which a node refuses a client's certificate (RFC 8446, 6.2).
const (
	alertBadCertificate         = 42
	alertUnsupportedCertificate = 43
	alertCertificateRevoked     = 44
	alertCertificateExpired     = 45
	alertCertificateUnknown     = 46
	alertUnknownCA              = 48
	alertAccessDenied           = 49
	alertDecryptError           = 51
	alertCertificateRequired    = 116
)

const useTrusted = "use one of the network's CA (`distkv-node key cert`), or start the nodes with --client-ca"

// alertOf is the number of the alert by which the other side has ended a session, and what TLS calls it; 0: there was none.
func alertOf(err error) (uint8, string) {
	var told *net.OpError
	if !errors.As(err, &told) || told.Op != "remote error" {
		return 0, ""
	}
	// Its type is crypto/tls' own.
	if number := reflect.ValueOf(told.Err); number.Kind() == reflect.Uint8 {
		return uint8(number.Uint()), told.Err.Error()
	}
	return 0, told.Err.Error()
}

// isAlert says whether the other side ended the session by an alert of TLS.
func isAlert(err error) bool {
	var told *net.OpError
	return errors.As(err, &told) && told.Op == "remote error"
}

// refusal is what it means that a node at this address has ended the session so instead of greeting: text is what is said where
// that says nothing of a client certificate.
func (t *TLS) refusal(at address, cause error, text string) *tryError {
	made, trouble := t.files.now()
	number, name := alertOf(cause)
	var reason, advice string
	switch number {
	case alertCertificateExpired: // The same is said of one that is not valid yet.
		reason, advice = "by the clock there it has expired, or is not valid yet", "renew it"
	case alertUnknownCA:
		reason, advice = "no CA that is trusted there has issued it", useTrusted
	case alertDecryptError: // Mostly, a CA of that name is trusted, which has another key.
		reason, advice = "its signature is not one that is trusted there", useTrusted
	case alertUnsupportedCertificate:
		reason, advice = "it is not for clients", "use one with the extended key usage clientAuth"
	case alertBadCertificate, alertCertificateRevoked, alertCertificateUnknown, alertAccessDenied, alertCertificateRequired:
		reason, advice = name, "use another one"
	default:
		return notMet(text)
	}
	if made.GetClientCertificate == nil {
		return notMet(text)
	}
	told := fmt.Sprintf("cannot get into %s: the node refuses the client's certificate, that in %s (%s): %s", at,
		t.certificatePlace(), reason, advice)
	if trouble != "" {
		told += "; there is another one by now, which cannot be used: " + trouble
	}
	return notMet(told)
}

// certificatePlace is where the client's certificate comes from.
func (t *TLS) certificatePlace() string {
	switch {
	case t.ticket == nil:
		return t.CertFile
	case t.ticket.file == "":
		return "its ticket"
	}
	return "the ticket in " + t.ticket.file
}
