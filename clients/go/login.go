package distkv

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"distkv.example/client/internal/msgpack"
)

const nonceBytes = 32

// Bounds of a login, as nodes take it, in bytes.
const (
	loginNameBytes   = 256 // of a user's name, or a method's
	loginSecretBytes = 4096
	loginKeyBytes    = 32
)

// Login is a user with its password or token, or the network's key.
//
// A secret is sent as it is (the node keeps its Argon2id): only within TLS, or to a node of the same machine, unless the
// configuration has PlaintextLogin. Nothing secret is in the text of a Login, or in any error. But fmt and slog call no methods of
// what is in an unexported field: a struct of your own that has a Login there shows the Secret and the Key that you have set.
type Login struct {
	// User has 1 to 256 bytes; with a Key, none is needed.
	User string
	// Secret is a password or token. PasswordLogin and TokenLogin leave it empty, and keep it where nothing shows it.
	Secret string
	// Method is "password", "token", or "root", which has no secret; none takes what the node asks for.
	Method string
	// Key is the network's key as far as it is for logins, 32 bytes: it is not sent, both sides prove to have it.
	Key []byte

	hidden, hiddenKey hidden // instead of Secret and Key
}

// PasswordLogin is a user of the method "password".
func PasswordLogin(user, password string) *Login {
	return &Login{User: user, Method: "password", hidden: hide(password)}
}

// TokenLogin is a user of the method "token".
func TokenLogin(user, token string) *Login {
	return &Login{User: user, Method: "token", hidden: hide(token)}
}

// concealed is a copy that has its secrets where nothing shows them: for what keeps a login.
func (l *Login) concealed() *Login {
	if l == nil {
		return nil
	}
	copied := Login{User: l.User, Method: l.Method, hidden: hide(l.secret())}
	if key := l.key(); key != nil {
		copied.hiddenKey = hide(string(key))
	}
	return &copied
}

func (l *Login) secret() string {
	if l.Secret != "" {
		return l.Secret
	}
	return l.hidden.shown()
}

func (l *Login) key() []byte {
	if l.hiddenKey.text != nil && l.Key == nil {
		return []byte(l.hiddenKey.shown())
	}
	return l.Key
}

// String has nothing secret.
func (l Login) String() string { return fmt.Sprintf("Login(%s, %s)", l.User, l.Method) }

// Format has nothing secret either, whatever the verb is.
func (l Login) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, l.String()) }

// LogValue has nothing secret either.
func (l Login) LogValue() slog.Value { return slog.StringValue(l.String()) }

// MarshalJSON has nothing secret either: what it writes cannot be read back.
func (l Login) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// check refuses, before anything is sent, what no node takes.
func (l *Login) check() error {
	if l == nil {
		return nil
	}
	if key := l.key(); key != nil {
		if len(key) != loginKeyBytes {
			return usage(fmt.Sprintf("Login.Key must have %d bytes, not %d", loginKeyBytes, len(key)))
		}
		return nil
	}
	for _, one := range []struct {
		name, value     string
		least, greatest int
	}{{"User", l.User, 1, loginNameBytes}, {"Secret", l.secret(), 0, loginSecretBytes}, {"Method", l.Method, 0, loginNameBytes}} {
		if size := len(one.value); size < one.least || size > one.greatest {
			return usage(fmt.Sprintf("Login.%s must have from %d to %d bytes, not %d", one.name, one.least, one.greatest, size))
		}
	}
	return nil
}

// blame is what may be wrong when a node refuses it.
func (l *Login) blame() string {
	switch {
	case l.key() != nil:
		return "wrong cluster key"
	case l.secret() == "":
		return fmt.Sprintf("there is no user %q, or it needs a secret", l.User)
	}
	return fmt.Sprintf("there is no user %q, or its secret is another one", l.User)
}

// proof is what a side sends to show that it has the key.
func proof(key []byte, label string, client, node []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(label))
	mac.Write(client)
	mac.Write(node)
	return mac.Sum(nil)
}

// greeting is what a node says first.
type greeting struct {
	node         string
	isCatchingUp bool
	window       int64 // -1: it does not say
	auth         string
	nonce        []byte
	network      string // "": an older node
}

func readGreeting(m message) (greeting, *tryError) {
	node, ok := msgpack.Text(m.get("node"))
	version, _ := msgpack.ReadHead(m.get("version"))
	if !ok || version.Kind != msgpack.Array {
		return greeting{}, &tryError{kind: tryProtocol, text: "its first message is no greeting"}
	}
	g := greeting{node: node, isCatchingUp: msgpack.IsNil(m.get("tick")), window: m.integer("qlen", -1), network: m.text("network")}
	msgpack.Items(m.get("auth"), func(first []byte) bool {
		g.auth, _ = msgpack.Text(first)
		return false
	})
	if nonce, ok := msgpack.Bytes(m.get("nonce")); ok && len(nonce) == nonceBytes {
		g.nonce = nonce
	}
	return g, nil
}

// methodAt is by which method it logs in: its own, or what the node asks for.
func (l *Login) methodAt(told greeting) string {
	switch {
	case l.Method != "":
		return l.Method
	case told.auth != "":
		return told.auth
	}
	return "password"
}

// secretFor is what is sent in such a login. Whoever asks for a method that has no secret gets none.
func (l *Login) secretFor(method string) string {
	if method == "root" || method == "_test" {
		return ""
	}
	return l.secret()
}

// plaintextLogin is the code of a client that itself sends its secret nowhere in plain text.
const plaintextLogin = "plaintext_login"

// inPlaintext: the client does not log in, since its secret would go to another machine in plain text.
func inPlaintext(where address, method string) *tryError {
	what := "secret"
	if method == "password" || method == "token" {
		what = method
	}
	err := tryErrorf(tryNoAccess, "cannot get into %s: it asks for a login, and the %s would go there in plain text: use TLS (a ticket, "+
		"or Config.TLS), a tunnel on this machine, or Config.PlaintextLogin", where, what)
	err.code = plaintextLogin
	return err
}

// logIn logs in right after the greeting. Where the node does not take the secret of a ticket in a file, and that has another one
// now, or gets one soon after a node had taken the old one, it logs in with that.
func (c *conn) logIn(ctx context.Context, config *Config, told greeting) *tryError {
	if config.own == nil {
		return c.logInAs(ctx, config, config.Login, told)
	}
	login := config.own.now()
	err := c.logInAs(ctx, config, login, told)
	// A node makes those wait who come with a secret that was replaced, too: it need not have looked at it.
	if err != nil && (err.isOfSecret || err.waits) {
		other := config.own.otherThan(ctx, login)
		switch {
		case other != nil:
			login, err = other, c.logInAs(ctx, config, other, told)
		case ctx.Err() != nil:
			return gaveUp(ctx, c.name)
		}
	}
	if err == nil {
		config.own.onTaken(login)
	}
	return err
}

func (c *conn) logInAs(ctx context.Context, config *Config, login *Login, told greeting) *tryError {
	request := newBody("auth")
	var expected []byte
	if key := login.key(); key != nil {
		if told.nonce == nil {
			return tryErrorf(tryNoAccess, "cannot get into %s: it has no cluster key, or does not ask for it yet (--plaintext-peers)", c.address)
		}
		nonce := make([]byte, nonceBytes)
		_, _ = rand.Read(nonce) // It never fails.
		request.text("typ", "key").text("ident", "*").binary("nonce", nonce)
		request.binary("proof", proof(key, "distkv login client 1", nonce, told.nonce))
		expected = proof(key, "distkv login node 1", nonce, told.nonce)
	} else {
		method := login.methodAt(told)
		if login.secret() == "" && (method == "password" || method == "token") {
			return tryErrorf(tryNoAccess, "cannot get into %s: who logs in as %q needs the user's secret, and none was given", c.address,
				login.User)
		}
		request.text("typ", method).text("ident", login.User)
		if secret := login.secretFor(method); secret != "" {
			// Whoever answers there may choose the method, so what counts is whether the secret would be sent.
			if config.TLS == nil && !config.PlaintextLogin && !isOwnMachine(c.net.RemoteAddr()) {
				return inPlaintext(c.address, method)
			}
			request.text("secret", secret)
		}
	}
	var theirs []byte
	s, err := c.ownStream(ctx, request.head(), exactly(never))
	for err == nil {
		var found *item
		if found, err = s.next(ctx, exactly(never)); err != nil || found == nil {
			break
		}
		if told, ok := msgpack.Bytes(found.message.get("proof")); ok {
			theirs = told
		}
	}
	switch {
	case err == nil:
	case err.kind == tryServer && isAccessCode(err): // A node that hangs up on a login that takes long has not looked at it.
		err = tryErrorf(tryNoAccess, "cannot get into %s: %s: %s", c.address, login.blame(), err.text)
		err.isOfSecret = true
		return err
	case err.kind == tryServer && err.code == "too_many":
		return &tryError{kind: tryConnect, waits: true, code: err.code, text: fmt.Sprintf("%s makes this login wait: %s", c.address, err.text)}
	default:
		return err
	}
	if expected != nil && subtle.ConstantTimeCompare(theirs, expected) != 1 {
		return tryErrorf(tryNoAccess, "cannot get into %s: it does not prove that it has the key", c.address)
	}
	return nil
}

// isAccessCode: the node says that it does not let this client in, as its answer, or as it closes the connection.
func isAccessCode(err *tryError) bool {
	return (err.kind == tryServer || err.kind == tryLost) &&
		(err.code == "auth_failed" || err.code == "denied" || err.code == "auth_required")
}
