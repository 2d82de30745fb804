package distkv

import (
	"cmp"
	"slices"

	"distkv.example/client/internal/msgpack"
)

// viewNodesMax is the most nodes of a view that count; further ones are left out.
const viewNodesMax = 1024

// Node is one node of a view.
type Node struct {
	// Name is its name; of a seed that was never reached, its address.
	Name string
	// Client and Gossip are its addresses for clients and for peers; "" where they are not known.
	Client, Gossip string
	// State is "self", "joining", "up", "suspect", "down", "left", "away", "seed", or a word of a later version.
	State string
	// Ready: it has all data.
	Ready bool

	incarnation int64 // -1: not known
	housekeeper int64 // -1: none
	address     address
	hasAddress  bool
}

// IsLive tells whether requests should go to it.
func (n Node) IsLive() bool { return n.Ready && !n.isGone() && n.hasAddress }

func (n Node) isGone() bool { return n.State == "down" || n.State == "left" || n.State == "away" }

// counts tells whether it is one of those of which a majority is a majority.
func (n Node) counts() bool {
	if planted == plantMajority {
		return n.State == "self"
	}
	return n.State != "left"
}

// Incarnation is the node's life; false where it is not known.
func (n Node) Incarnation() (int64, bool) { return n.incarnation, n.incarnation >= 0 }

// ClusterView is which nodes there are.
type ClusterView struct {
	// Epoch is counted by this client: 0 before the first view, then it rises by 1 with each that differs.
	Epoch uint64
	// Nodes are in the order of names, each name once.
	Nodes []Node
	// Source is the node that reported it first; "" if only the seeds are known.
	Source string
}

// Move is a shard whose preferred node is another one than before; "" is none.
type Move struct {
	Shard         int
	Before, After string
}

// NodeChange is a node as it was and as it is.
type NodeChange struct{ Before, After Node }

// TopologyChange is how a view, or a table of overrides, differs from the one before.
type TopologyChange struct {
	PreviousEpoch, Epoch uint64
	Added, Removed       []Node
	Changed              []NodeChange
	Moved                []Move
}

func decodeNode(m message) (Node, bool) {
	name, ok := msgpack.Text(m.get("name"))
	if !ok {
		return Node{}, false
	}
	node := Node{Name: name, Gossip: m.text("gossip"), State: m.text("state"), Ready: msgpack.IsTrue(m.get("ready")),
		incarnation: m.integer("incarnation", -1), housekeeper: m.integer("housekeeper", -1)}
	if client := m.text("client"); client != "" {
		if where, err := parseAddress(client, DefaultPort); err == nil {
			node.address, node.hasAddress = reachable(where, node.Gossip), true
			node.Client = node.address.String()
		}
	}
	return node, true
}

// decodeView reads nodes and source from {epoch, nodes, id}. The node's own epoch means nothing to a client of several.
func decodeView(told []byte) ([]Node, string, bool) {
	m := message(told)
	var nodes []Node
	isArray := msgpack.Items(m.get("nodes"), func(item []byte) bool {
		if node, ok := decodeNode(item); ok {
			nodes = append(nodes, node)
		}
		return len(nodes) < viewNodesMax
	})
	if !isArray {
		return nil, "", false
	}
	source, _ := msgpack.Text(msgpack.Field(m.get("id"), "name"))
	return byName(nodes), source, true
}

// byName puts them in the order of names, each once: of two lives of one name the present one.
func byName(nodes []Node) []Node {
	best := map[string]Node{}
	for _, node := range nodes {
		other, isThere := best[node.Name]
		if !isThere || worth(node) > worth(other) {
			best[node.Name] = node
		}
	}
	found := make([]Node, 0, len(best))
	for _, node := range best {
		found = append(found, node)
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

func worth(n Node) int { return 4*boolean(!n.isGone()) + 2*boolean(n.Ready) + boolean(n.hasAddress) }

// compareViews returns what was added, removed and changed, in the order of names.
func compareViews(old, new []Node) (added, removed []Node, changed []NodeChange) {
	before, after := map[string]Node{}, map[string]Node{}
	for _, node := range old {
		before[node.Name] = node
	}
	for _, node := range new {
		after[node.Name] = node
		was, isThere := before[node.Name]
		switch {
		case !isThere:
			added = append(added, node)
		case seen(was) != seen(node):
			changed = append(changed, NodeChange{was, node})
		}
	}
	for _, node := range old {
		if _, isThere := after[node.Name]; !isThere {
			removed = append(removed, node)
		}
	}
	return added, removed, changed
}

// seen: it does not matter which of them was asked; that one is up.
func seen(n Node) Node {
	if n.State == "self" {
		n.State = "up"
	}
	return n
}
