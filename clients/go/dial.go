package distkv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"distkv.example/client/internal/msgpack"
)

// keepAlive is TCP's own probes of a silent connection.
const keepAlive = 15 * time.Second

var dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive}}

// dialerUntil makes one connection, while the context lasts. With the context ends what Go's own resolver waits for from a name
// server; that would go on otherwise, for 5 s and more per server. A look-up by the C library, where Go leaves it to that, cannot
// be ended: its thread waits as long as the library does.
func dialerUntil(ctx context.Context) *net.Dialer {
	usual := net.DefaultResolver // The program may have put one of its own there.
	ask := usual.Dial
	if ask == nil {
		ask = new(net.Dialer).DialContext
	}
	own := dialer
	// For this connection alone: of a resolver that is shared, a look-up for which two wait is not given up.
	own.Resolver = &net.Resolver{PreferGo: usual.PreferGo, StrictErrors: usual.StrictErrors,
		Dial: func(until context.Context, network, server string) (net.Conn, error) {
			socket, err := ask(until, network, server)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = socket.Close() })
			}
			return socket, err
		}}
	return &own
}

// openConn connects, reads the greeting, logs in, and learns who the node is. A node of another network is left before
// anything is sent to it. After an error nothing is left behind.
func openConn(ctx context.Context, where address, config *Config, own *network, goroutines *group) (*conn, *tryError) {
	ctx, cancel := context.WithTimeout(ctx, config.Pool.ConnectTimeout)
	defer cancel()
	dial := config.dial
	if dial == nil {
		dial = dialerUntil(ctx).DialContext
	}
	socket, err := dial(ctx, "tcp", where.String())
	if err != nil {
		return nil, connectError(where, config, err)
	}
	if config.TLS != nil {
		secured, err := config.TLS.begin(ctx, socket, where.host)
		if err != nil {
			_ = socket.Close()
			var told *tryError
			if errors.As(err, &told) {
				failure := connectError(where, config, told)
				// A node that says this took the client for one without TLS, because nothing came for too long.
				if classOfCode(told.code) == classFinal && told.code != "auth_required" {
					failure = notMet(fmt.Sprintf("cannot get into %s: it says, in plain text: %s", where, told.text))
				}
				failure.code = told.code
				return nil, failure
			}
			if errors.Is(err, context.DeadlineExceeded) || isCut(err) {
				return nil, connectError(where, config, err)
			}
			return nil, notMet(fmt.Sprintf("cannot get into %s: %v", where, err))
		}
		socket = secured
	}
	c := newConn(where, socket, goroutines)
	greets := c.greeting
	goroutines.Add(1)
	go c.read()
	failure := c.begin(ctx, config, own, greets)
	if failure == nil {
		return c, nil
	}
	c.close(failure.text)
	switch {
	case failure.kind == tryTimedOut || failure.kind == tryCanceled:
		return nil, connectError(where, config, ctx.Err())
	case failure.kind == tryLost && isAlert(failure.cause):
		// A node that does not accept the client's certificate says so only now.
		return nil, config.TLS.refusal(where, failure.cause, failure.text)
	case failure.kind == tryLost || failure.kind == tryServer:
		err := tryErrorf(tryConnect, "cannot connect to %s: %s", where, failure.text)
		err.code = failure.code
		return nil, err
	}
	return nil, failure
}

func connectError(where address, config *Config, err error) *tryError {
	if errors.Is(err, context.DeadlineExceeded) {
		return tryErrorf(tryConnect, "cannot connect to %s: no greeting within %v; is this a node's client port?", where,
			config.Pool.ConnectTimeout)
	}
	failure := tryErrorf(tryConnect, "cannot connect to %s: %v", where, err)
	switch {
	case isOutOfFiles(err):
		failure.cause = outOfFiles{err}
	case errors.As(err, new(syscall.Errno)):
		failure.cause = err
	}
	return failure
}

// isOwnMachine tells whether nothing that is sent there leaves the machine; peer: what a socket is connected to.
func isOwnMachine(peer net.Addr) bool {
	where, isTCP := peer.(*net.TCPAddr)
	return isTCP && where.IP.IsLoopback() // Also in the long form that IPv4 addresses have at an IPv6 socket.
}

// notMet is a refusal before a greeting that can be believed.
func notMet(text string) *tryError { return &tryError{kind: tryNoAccess, notMet: true, text: text} }

func (c *conn) begin(ctx context.Context, config *Config, own *network, greets <-chan message) *tryError {
	first, err := c.greeted(ctx, greets)
	switch {
	case err != nil && isAccessCode(err):
		// The node serves clients by TLS only, and this one does not use it.
		return notMet(fmt.Sprintf("cannot get into %s: %s", c.address, err.text))
	case err != nil:
		return err
	}
	told, err := readGreeting(first)
	if err != nil {
		return err
	}
	if err := own.check(c.address, told.network); err != nil {
		return err
	}
	c.name = told.node
	c.nodeClock = newNodeClock(first, now())
	granted := told.window
	if granted < 0 {
		granted = windowMax
	}
	if granted > 0 {
		c.window = min(max(min(config.Pool.Window, int(granted)), windowMin), windowMax)
	}
	settings := msgpack.AppendMapHead(nil, 2+boolean(told.isCatchingUp))
	settings = msgpack.AppendInt(msgpack.AppendString(settings, "seq"), 0)
	settings = msgpack.AppendInt(msgpack.AppendString(settings, "qlen"), int64(c.window))
	if told.isCatchingUp {
		// There are other nodes to go to.
		settings = msgpack.AppendBool(msgpack.AppendString(settings, "nowait"), true)
	}
	c.post(settings)
	if config.Login != nil && (config.Login.key() != nil || told.auth != "") {
		if err := c.logIn(ctx, config, told); err != nil {
			return err
		}
	}
	if err := c.learnIdentity(ctx); err != nil {
		return err
	}
	return own.settle(c.address, told.network)
}

// greeted waits for the node's first message, which may be an error.
func (c *conn) greeted(ctx context.Context, greets <-chan message) (message, *tryError) {
	select {
	case m := <-greets:
		return m, m.check()
	case <-c.done:
	case <-ctx.Done():
		return nil, gaveUp(ctx, c.name)
	}
	// A node that is full says so, and closes the connection at once.
	select {
	case m := <-greets:
		if err := m.check(); err != nil {
			return nil, err
		}
	default:
	}
	return nil, c.ended.Load()
}

// learnIdentity asks who the node is. An old node does not know the question.
func (c *conn) learnIdentity(ctx context.Context) *tryError {
	found, err := c.request(ctx, newBody("cluster").head(), exactly(never))
	switch {
	case err == nil:
	case isAccessCode(err):
		return tryErrorf(tryNoAccess, "cannot get into %s: %s", c.address, err.text)
	case err.kind == tryServer:
		return nil
	default:
		return err
	}
	identity := message(found.get("id"))
	if name := identity.text("name"); name != "" {
		c.name = name
		c.incarnation = identity.integer("incarnation", -1)
	}
	return nil
}
