package distkv

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// DefaultPort is the client port where none is named.
const DefaultPort = 27586

// SeedsMax is the most seeds of a client.
const SeedsMax = 1024

// ReadMode is which node's answer a read takes.
type ReadMode string

// The read modes.
const (
	// Preferred: of the node that took this client's last write of the shard; without one, of the preferred node.
	Preferred ReadMode = "preferred"
	// AnyNode: of any node. A write of one's own may not be seen yet.
	AnyNode ReadMode = "any"
	// Freshest: the newest version of a majority of the nodes; where that is not reached, a node's refusal counts.
	Freshest ReadMode = "freshest"
)

const linearizable = "linearizable reads are refused: a node acknowledges a write alone, before any other node has it, and while " +
	"the network is split both sides take writes, so no number of nodes can tell whether there is a newer one; " +
	"'freshest' asks a majority for the newest that they have, and a put with IfVersion finds out whether what it read was current"

// check returns the mode, in whatever case it is written, or an error with the reason why there is none like that.
func (m ReadMode) check(byDefault ReadMode) (ReadMode, error) {
	text := fmt.Sprintf("there is no read mode %q; there are preferred, any (what etcd calls serializable), freshest", string(m))
	switch word := ReadMode(strings.ToLower(string(m))); word {
	case "":
		return byDefault, nil
	case Preferred, AnyNode, Freshest:
		return word, nil
	case "linearizable", "linearisable", "strong":
		text = linearizable
	}
	return "", &Error{Code: "read_mode", text: text, kind: ErrUsage}
}

// Config is what a client does. Fields that are zero, also times, have their defaults, which are for a program that would rather
// wait some seconds than get an error; negative numbers, and what is out of the range that a field tells, are refused.
type Config struct {
	// Seeds are "host:port" or "host"; one is enough. Without any, those of the ticket count, or of the environment's
	// DISTKV_TICKET, or else 127.0.0.1.
	Seeds []string

	// ReadMode is for reads that do not say it themselves: Preferred.
	ReadMode ReadMode
	// NoWriteIDs: writes carry no ids by which nodes know them again, unless they bring one.
	NoWriteIDs bool
	// ConnectDeadline is how long Connect tries to reach a seed, where the context does not end before: 10 s. Seeds that do not
	// answer share it, so that one that does is asked before it is over.
	ConnectDeadline time.Duration
	// CloseGrace is how long open calls may go on when the client is closed, where the context says nothing: 1 s.
	CloseGrace time.Duration
	// OwnWritePatience is how long reads look for a node that has this client's own last write of a path, from the first answer
	// that lacked it on, all reads together: 1 s. A read whose own time, or context's deadline, ends before takes what there is.
	OwnWritePatience time.Duration
	// OwnWritesMax is how many paths' own last writes are remembered: 16,384.
	OwnWritesMax int
	// WatchPathsMax and WatchBytesMax are what a watch remembers in order to continue at another node: 65,536, 16 MiB.
	WatchPathsMax int
	WatchBytesMax int
	// WatchPatience is how long a watch waits at another node for versions that it delivered and that node lacks: 2 s.
	WatchPatience time.Duration
	// ShardTableAge is how old the table of overrides of preferred nodes gets before it is fetched again: 30 s, and at least
	// 100 ms.
	ShardTableAge time.Duration

	Retry    RetryPolicy
	Pool     PoolConfig
	Topology TopologyConfig

	// Login is as whom the nodes are used, where they ask for a login. The user of a Ticket beside it does not count.
	Login *Login
	// PlaintextLogin: a password or token is also sent without TLS to another machine, where whoever is in between, or answers in
	// the node's place, can read it. Otherwise a node that asks for it there counts as one that refuses the client.
	PlaintextLogin bool
	// TLS is how nodes are known; none: plain text.
	TLS *TLS
	// Network is the network's name: nodes of another one are not used. Without it, the ticket's counts, or else that of the
	// first node that lets the client in and tells it.
	Network string
	// Ticket is a ticket, or "@FILE" with one: seeds, TLS, login and network at once. What the configuration says itself counts
	// instead of that part of the ticket: its Seeds, its TLS (also of the ticket's client certificate), its Login, its Network.
	// A file is read again when a node does not take its secret any more: another one for the same user is taken then; so is
	// another client certificate in it, for new connections, once the file has changed.
	//
	// Nothing that shows a Config shows the ticket. But fmt and slog call no methods of what is in an unexported field, so a struct
	// of your own that has a Config there shows it when it is printed; so it does with a Login that has a Secret or a Key. Keep
	// "@FILE" there, and logins of [PasswordLogin] and [TokenLogin].
	Ticket string

	isTicketsNetwork bool      // Network is the ticket's
	own              *ownLogin // in place of Login, where that is the user of a ticket in a file
	// dial makes sockets; nil: as usual.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger gets what the program cannot be told otherwise, without the words of nodes, which name paths and values: that an observer
	// or a listener has panicked, that files for TLS have changed, or have and cannot be used, and, for debugging, that the table of
	// shards could not be fetched. None: nothing is logged.
	Logger *slog.Logger
	// Observer is told of calls and tries; none: that costs nothing.
	Observer Observer
}

// shownConfig is a configuration as it is shown: without the secrets that a ticket has. A Login shows none itself.
type shownConfig Config

func (c Config) shown() shownConfig {
	if c.Ticket != "" && !strings.HasPrefix(c.Ticket, "@") {
		c.Ticket = "(a ticket)"
	}
	return shownConfig(c)
}

// Format has nothing secret, whatever the verb is: it is that of a struct otherwise.
func (c Config) Format(to fmt.State, _ rune) {
	// Of a verb that a field does not take, fmt would show more than was asked for.
	_, _ = fmt.Fprintf(to, fmt.FormatString(to, 'v'), c.shown())
}

// LogValue has nothing secret either.
func (c Config) LogValue() slog.Value { return slog.AnyValue(c.shown()) }

// MarshalJSON has nothing secret either. It is for logs: what it writes cannot be read back.
func (c Config) MarshalJSON() ([]byte, error) {
	shown := c.shown()
	shown.Logger, shown.Observer = nil, nil // They may have no form in JSON.
	return json.Marshal(shown)
}

// PoolConfig is how connections are kept. Fields that are zero have their defaults.
type PoolConfig struct {
	// ConnectionsPerNode is 1 to 16: 2. On each there is room for 3,840 streams (watches, monitors, trees that are coming), of which
	// the client's view is one.
	ConnectionsPerNode int
	BusyAt             int           // open requests from which on another connection is opened: 64
	IdleClose          time.Duration // an unused connection is closed after this long: 60 s
	FailureMemory      time.Duration // how long a failed attempt counts for all callers; doubles up to the next: 0.1 s
	FailureMemoryMax   time.Duration // 2 s
	ProbeAfter         time.Duration // a node that is silent for this long is asked whether it is alive: 10 s
	ProbeTimeout       time.Duration // how long it may take to answer that: 4 s
	ConnectTimeout     time.Duration // how long connecting may take, the greeting and the login included: 3 s
	Window             int           // messages of one stream that may be under way, 2 to 4,096: 64
}

// TopologyConfig is how the cluster is watched. Fields that are zero have their defaults.
type TopologyConfig struct {
	FirstViewTimeout time.Duration // how long a node may take to begin to send its view: 3 s
	RetryDelay       time.Duration // the wait after no candidate could be reached; doubles up to the next: 50 ms
	RetryDelayMax    time.Duration // 1 s
	OldNodesDelay    time.Duration // how often nodes without a view are asked again: 10 s
	// OnlySeeds: use only the seeds, whatever nodes report. Without a view there is no read mode Freshest.
	OnlySeeds bool
}

// shardTableAgeMin keeps a client from asking for the table without a pause.
const shardTableAgeMin = 100 * time.Millisecond

// ConnectionsPerNodeMax is the most connections to one node.
const ConnectionsPerNodeMax = 16

// checkNumbers refuses negative ones: nothing takes less than no time, and there is no word for "never" but a long time. It also
// refuses those that are out of their range; zero stands for what is usual.
func (c *Config) checkNumbers() error {
	for _, one := range []struct {
		name string
		in   any
	}{{"", *c}, {"Retry.", c.Retry}, {"Pool.", c.Pool}, {"Topology.", c.Topology}} {
		section := reflect.ValueOf(one.in)
		for i := range section.NumField() {
			if field := section.Field(i); field.CanInt() && field.Int() < 0 {
				return usage(fmt.Sprintf("%s%s is negative; leave it out for what is usual", one.name, section.Type().Field(i).Name))
			}
		}
	}
	if age := c.ShardTableAge; age != 0 && age < shardTableAgeMin {
		return usage(fmt.Sprintf("ShardTableAge must be at least %v, not %v; leave it out for what is usual", shardTableAgeMin, age))
	}
	for _, one := range []struct {
		name                   string
		value, least, greatest int
	}{
		{"Pool.ConnectionsPerNode", c.Pool.ConnectionsPerNode, 1, ConnectionsPerNodeMax},
		{"Pool.Window", c.Pool.Window, windowMin, windowMax},
	} {
		if one.value != 0 && (one.value < one.least || one.value > one.greatest) {
			return usage(fmt.Sprintf("%s must be from %d to %d, not %d; leave it out for what is usual", one.name, one.least, one.greatest,
				one.value))
		}
	}
	return nil
}

func (c *Config) fill() {
	setDefault(&c.ReadMode, Preferred)
	setDefault(&c.ConnectDeadline, 10*time.Second)
	setDefault(&c.CloseGrace, time.Second)
	setDefault(&c.OwnWritePatience, time.Second)
	setDefault(&c.OwnWritesMax, 16_384)
	setDefault(&c.WatchPathsMax, 65_536)
	setDefault(&c.WatchBytesMax, 16<<20)
	setDefault(&c.WatchPatience, 2*time.Second)
	setDefault(&c.ShardTableAge, 30*time.Second)
	c.Retry.fill()
	p := &c.Pool
	setDefault(&p.ConnectionsPerNode, 2)
	setDefault(&p.BusyAt, 64)
	setDefault(&p.IdleClose, time.Minute)
	setDefault(&p.FailureMemory, 100*time.Millisecond)
	setDefault(&p.FailureMemoryMax, 2*time.Second)
	setDefault(&p.ProbeAfter, 10*time.Second)
	setDefault(&p.ProbeTimeout, 4*time.Second)
	setDefault(&p.ConnectTimeout, 3*time.Second)
	setDefault(&p.Window, 64)
	t := &c.Topology
	setDefault(&t.FirstViewTimeout, 3*time.Second)
	setDefault(&t.RetryDelay, 50*time.Millisecond)
	setDefault(&t.RetryDelayMax, time.Second)
	setDefault(&t.OldNodesDelay, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// address is where a node listens for clients; comparable.
type address struct {
	host string
	port int
}

func (a address) String() string {
	if strings.Contains(a.host, ":") {
		return "[" + a.host + "]:" + strconv.Itoa(a.port)
	}
	return a.host + ":" + strconv.Itoa(a.port)
}

// parseAddress reads "host:port", "host" or "[::1]:port"; the port without one is the given.
func parseAddress(text string, defaultPort int) (address, error) {
	text = strings.TrimSpace(text)
	no := func(why string) (address, error) {
		return address{}, usage(fmt.Sprintf("%q is no address: %s", text, why))
	}
	if strings.Contains(text, ",") {
		return no("give a list, each address as a text of its own")
	}
	if scheme, _, isURL := strings.Cut(text, "://"); isURL {
		return no(fmt.Sprintf("write host:port, without \"%s://\"", scheme))
	}
	host, port, hasPort := strings.Cut(text, ":")
	if isIPv6(text) {
		host, port, hasPort = text, "", false
	} else if strings.HasPrefix(text, "[") {
		var rest string
		var isClosed bool
		host, rest, isClosed = strings.Cut(text[1:], "]")
		port, hasPort = strings.CutPrefix(rest, ":")
		switch {
		case !isClosed:
			return no("it does not close its bracket; write [address]:port")
		case host != "" && !isIPv6(host):
			return no(fmt.Sprintf("brackets are for IPv6 addresses, and %q is none; write host:port", host))
		case rest != "" && !hasPort:
			return no("it has no colon after its brackets; write [address]:port")
		}
	} else if at := strings.LastIndex(text, ":"); strings.Contains(text, "%") && at > 0 && isIPv6(text[:at]) {
		return no(fmt.Sprintf("it needs brackets before its port; write [%s]:%s", text[:at], text[at+1:]))
	}
	number := uint64(defaultPort)
	if hasPort {
		var err error
		if number, err = strconv.ParseUint(port, 10, 16); err != nil {
			return no(fmt.Sprintf("%q is no port; write host:port", port))
		}
	}
	if host == "" || strings.ContainsFunc(host, isNoHosts) {
		return no("write host:port")
	}
	return address{host, int(number)}, nil
}

// isIPv6 tells whether the text is an IPv6 address, with a zone ("fe80::1%eth0") or without; which zones there are, the
// system knows.
func isIPv6(text string) bool {
	text, zone, _ := strings.Cut(text, "%")
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is6() && !strings.Contains(zone, ":")
}

// isNoHosts tells whether no name of a host, and no IP address, has this character.
func isNoHosts(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_.:%", c)
}

// parseSeed is the same for an address that is to be connected to. A link-local one is no good without the zone, which
// only this host knows.
func parseSeed(text string) (address, error) {
	where, err := parseAddress(text, DefaultPort)
	if err != nil {
		return where, err
	}
	ip, zone, _ := strings.Cut(where.host, "%")
	if parsed, err := netip.ParseAddr(ip); err == nil && parsed.Is6() && parsed.IsLinkLocalUnicast() && zone == "" {
		return where, usage(fmt.Sprintf("%q is no address: it is link-local and has no zone (the name of this machine's "+
			"network interface); give its zone, like %s", text, address{ip + "%eth0", where.port}))
	}
	if where.port == 0 {
		return where, usage(fmt.Sprintf("%q is no address: nothing listens at port 0", text))
	}
	return where, nil
}

// reachable: nobody can connect to "all addresses"; then the node is where its peers find it.
func reachable(client address, gossip string) address {
	ip, err := netip.ParseAddr(client.host)
	if err != nil || !ip.IsUnspecified() || gossip == "" {
		return client
	}
	if where, err := parseAddress(gossip, 0); err == nil {
		return address{where.host, client.port}
	}
	return client
}
