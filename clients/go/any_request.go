package distkv

import (
	"context"
	"fmt"
	"time"

	"distkv.example/client/internal/msgpack"
)

// onlyReads are the actions with one reply that change nothing, whatever becomes of that, as nodes have them.
var onlyReads = setOf("get_value", "enum", "enumerate", "get_state", "enum_node", "get_internal", "enum_internal", "check_deleted",
	"status", "members", "clients", "history", "list_shards", "cluster", "key_list", "auth_info", "auth_get", "test_acl")

// streaming are the actions that are answered with a stream.
var streaming = setOf("get_tree", "get_tree_internal", "watch", "msg_monitor", "conflicts", "watch_cluster", "get_snapshot", "auth",
	"auth_list")

func setOf(names ...string) map[string]bool {
	found := map[string]bool{}
	for _, name := range names {
		found[name] = true
	}
	return found
}

// RequestOptions are those of [Client.Request]; nil is none.
type RequestOptions struct {
	// Path is the field "path", and by which the node is chosen; nil: there is none.
	Path *Path
	// Idempotent: it may be retried. Where it is no action that only reads, it may have been done, once or more, when it fails.
	Idempotent bool
	// Timeout is for all tries; without one (zero) the context's deadline counts, or the configuration. With a negative one, as
	// with a context that has ended, nothing is sent.
	Timeout time.Duration
}

// Request is any other request of the protocol with one reply, which is returned as it comes. An action that is answered with a
// stream is refused: an [ErrUsage].
func (c *Client) Request(ctx context.Context, action string, fields map[string]any, options *RequestOptions) (map[string]any, error) {
	if options == nil {
		options = &RequestOptions{}
	}
	if err := hasOneReply(action, fields); err != nil {
		return nil, err
	}
	b := newBody(action)
	p := plan{action: action, idempotency: unguarded, timeout: options.Timeout}
	if options.Path != nil {
		b.path("path", *options.Path)
		p.shard = options.Path.Shard()
	}
	switch {
	case options.Idempotent && onlyReads[action]:
		p.idempotency = reading
	case options.Idempotent:
		p.idempotency = guarded
	}
	if p.idempotency != reading {
		c.caller.own.orderInto(b, Path{}, false) // What the caller says comes later, and counts.
	}
	_, isTheirs := fields["by"]
	p.isUntimed = isTheirs || onlyReads[action]
	for _, field := range sortedPairs(fields) {
		value, err := Encode(field.Value)
		if err != nil {
			return nil, err
		}
		b.raw(field.Key.(string), value)
	}
	found, err := c.caller.call(ctx, &p, b.head(), nil)
	if err != nil {
		return nil, err
	}
	reply, wrong := As[map[string]any](Value(found.message))
	if wrong != nil {
		return nil, wrong
	}
	return reply, nil
}

// hasOneReply refuses what is answered with a stream.
func hasOneReply(action string, fields map[string]any) error {
	isStream := streaming[action]
	if nchain, isSet := fields["nchain"]; isSet && action == "delete_tree" {
		// With versions, it tells each entry.
		value, err := Encode(nchain)
		if err != nil {
			return err
		}
		count, isNumber := msgpack.Integer(value)
		isStream = !isNumber || count != 0
	}
	if isStream {
		return usage(fmt.Sprintf("%s is answered with a stream, which Request does not read", action))
	}
	return nil
}
