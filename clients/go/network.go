package distkv

import (
	"fmt"
	"sync"
)

// network is the one whose nodes a client uses. Without a name, the first node that lets the client in and tells its network
// decides. Once the name is known, it stays the same.
type network struct {
	mu     sync.Mutex
	name   string
	source string // who says so; "": that node does
}

func networkOf(config *Config) *network {
	n := &network{name: config.Network}
	switch {
	case n.name == "":
	case config.isTicketsNetwork:
		n.source = "ticket"
	default:
		n.source = "configuration"
	}
	return n
}

// check is whether a node may be used whose greeting names this network; that of an older node names none, which is "".
func (n *network) check(where address, theirs string) *tryError {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.checkLocked(where, theirs)
}

// settle is the same once a node has let the client in. Another one may have decided since its greeting.
func (n *network) settle(where address, theirs string) *tryError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.name == "" {
		n.name = theirs
	}
	return n.checkLocked(where, theirs)
}

func (n *network) checkLocked(where address, theirs string) *tryError {
	if theirs == "" || n.name == "" || theirs == n.name {
		return nil
	}
	text := fmt.Sprintf("cannot use %s: it is a node of the network %q, and this client is of %q", where, theirs, n.name)
	if n.source != "" {
		text += ", as its " + n.source + " says"
	}
	return &tryError{kind: tryConnect, other: true, text: text}
}
