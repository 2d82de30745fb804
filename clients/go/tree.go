package distkv

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"distkv.example/client/internal/msgpack"
)

// TreeEntriesMax is the most entries that TreeList gives back; a greater tree is an error: iterate over it.
const TreeEntriesMax = 1 << 20

// TreeOptions are those of a tree; nil is none.
type TreeOptions struct {
	// MinDepth and MaxDepth: entries so many elements below the path; MaxDepth 0 is no bound, -1 the path alone. Others are an
	// [ErrUsage].
	MinDepth, MaxDepth int
	// Versions: each entry has its version, which IfVersion needs.
	Versions bool
}

func (o *TreeOptions) head(path Path) ([]byte, error) {
	b := pathBody("get_tree", path)
	if o != nil {
		if err := depths(b, o.MinDepth, o.MaxDepth); err != nil {
			return nil, err
		}
		if o.Versions {
			b.integer("nchain", 1)
		}
	}
	return b.head(), nil
}

func depths(b *body, minDepth, maxDepth int) error {
	if minDepth < 0 {
		return usage(fmt.Sprintf("MinDepth must be at least 0, not %d", minDepth))
	}
	if maxDepth < -1 {
		return usage(fmt.Sprintf("MaxDepth must be at least 1, or 0 for no bound, or -1 for the path alone, not %d", maxDepth))
	}
	if minDepth > 0 {
		b.integer("min_depth", int64(minDepth))
	}
	if maxDepth != 0 {
		b.integer("max_depth", int64(max(maxDepth, 0)))
	}
	return nil
}

func (c *Client) treePlan(path Path) plan {
	shard := path.Shard()
	return plan{action: "get_tree", shard: shard, first: c.caller.home(c.caller.topology.routing(), shard), isLong: true, place: forStream}
}

// untilSilent is when a node that sends nothing of a tree is given up. What arrives may take as long as it takes.
func (c *Client) untilSilent(end instant) tryTime {
	return whileArriving(min(end, now()+c.config.Retry.TryDeadline))
}

// Tree is all values at and below a path, entry after entry, parents first, in the order of paths, as one node has them at
// one moment. It is retried only before the first entry; an error comes last. A node that sends nothing for as long as one try
// may take is given up; the time in which the loop's body runs does not count. It is one call until the loop has ended, or an error
// has come: Close waits for it, also where it is called in the loop's body.
func (c *Client) Tree(ctx context.Context, path Path, options *TreeOptions) iter.Seq2[TreeEntry, error] {
	return func(yield func(TreeEntry, error) bool) {
		c.caller.calls.Add(1)
		done := sync.OnceFunc(c.caller.calls.Done)
		defer done()
		head, wrong := options.head(path)
		if wrong != nil {
			done() // Nothing comes, whatever the loop's body does with that.
			yield(TreeEntry{}, wrong)
			return
		}
		p := c.treePlan(path)
		var s *stream
		var entry *TreeEntry
		found, failed := c.caller.call(ctx, &p, nil, func(ctx context.Context, connection *conn, t tryTime) *tryError {
			var err *tryError
			s, entry, err = c.beginTree(ctx, connection, head, path, t.end)
			return err
		})
		if failed != nil {
			done() // Nothing more comes, whatever the loop's body does with that.
			yield(TreeEntry{}, failed)
			return
		}
		defer s.close()
		for entry != nil {
			if !yield(*entry, nil) {
				return
			}
			asked := now()
			var err *tryError
			if entry, err = c.nextEntry(ctx, s, path, never); err != nil {
				if err.kind == tryTimedOut {
					c.pool.onTimeout(found.address, found.conn, asked)
				}
				failed := c.streamError(ctx, err, found.conn.name, found.attempts)
				s.close()
				done()
				yield(TreeEntry{}, failed)
				return
			}
		}
	}
}

// beginTree begins a tree at a node, and waits for its first entry; nil: there is none.
func (c *Client) beginTree(ctx context.Context, connection *conn, head []byte, path Path, end instant) (*stream, *TreeEntry, *tryError) {
	s, err := connection.stream(ctx, head, c.untilSilent(end))
	if err != nil {
		return nil, nil, err
	}
	if now() >= end {
		end = never // A message has arrived for so long, so this one may take as long as it takes, too.
	}
	entry, err := c.nextEntry(ctx, s, path, end)
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, entry, nil
}

func (c *Client) streamError(ctx context.Context, err *tryError, node string, attempts int) *Error {
	if c.pool.closed() && err.kind != tryServer && ctx.Err() == nil {
		return closedError(attempts)
	}
	if ctx.Err() != nil && (err.kind == tryCanceled || err.kind == tryTimedOut) {
		return canceledError(ctx, NotDone, node, attempts)
	}
	return finalError(err, NotDone, node, attempts)
}

// TreeList is all values at and below a path at once. As a whole, it is retried as any read; a node that sends nothing for as
// long as one try may take is given up. While entries come, it takes as long as it takes, but for the context's deadline.
func (c *Client) TreeList(ctx context.Context, path Path, options *TreeOptions) ([]TreeEntry, error) {
	head, wrong := options.head(path)
	if wrong != nil {
		return nil, wrong
	}
	p := c.treePlan(path)
	var entries []TreeEntry
	isTooMuch := false
	_, failed := c.caller.call(ctx, &p, nil, func(ctx context.Context, connection *conn, t tryTime) *tryError {
		entries = nil
		s, entry, err := c.beginTree(ctx, connection, head, path, t.end)
		if err != nil {
			return err
		}
		defer s.close()
		for entry != nil {
			if ctx.Err() != nil {
				return gaveUp(ctx, connection.name)
			}
			if len(entries) >= TreeEntriesMax {
				// Another try would find as many.
				isTooMuch = true
				return nil
			}
			entries = append(entries, *entry)
			// What keeps coming would take as long the next time.
			if entry, err = c.nextEntry(ctx, s, path, never); err != nil {
				return err
			}
		}
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	if isTooMuch {
		return nil, usage(fmt.Sprintf("there are more than %d entries; iterate over the tree", TreeEntriesMax))
	}
	return entries, nil
}

// nextEntry is the next entry of a tree; nil after the last.
func (c *Client) nextEntry(ctx context.Context, s *stream, above Path, end instant) (*TreeEntry, *tryError) {
	for {
		found, err := s.next(ctx, c.untilSilent(end))
		if err != nil || found == nil {
			return nil, err
		}
		value := found.message.get("value")
		if !found.hasPath || value == nil {
			continue
		}
		path, wrong := above.behind(found.path)
		if wrong != nil {
			return nil, &tryError{kind: tryProtocol, text: "a path is none: " + wrong.Error()}
		}
		version, err := found.message.version()
		if err != nil {
			return nil, err
		}
		return &TreeEntry{path, Value(value), version}, nil
	}
}

// Children is the names of the direct children that have a value themselves, as path elements, in the nodes' order.
func (c *Client) Children(ctx context.Context, path Path) ([]any, error) {
	shard := path.Shard()
	p := plan{action: "enum", shard: shard, first: c.caller.home(c.caller.topology.routing(), shard)}
	found, failed := c.caller.call(ctx, &p, pathBody("enum", path).head(), nil)
	if failed != nil {
		return nil, failed
	}
	names := []any{}
	isGood := msgpack.Items(found.message.get("result"), func(item []byte) bool {
		name, err := elementOf(item)
		if err == nil {
			names = append(names, name)
		}
		return true
	})
	if !isGood {
		return nil, finalError(&tryError{kind: tryProtocol, text: "a list of children is none"}, NotDone, found.conn.name, found.attempts)
	}
	return names, nil
}
