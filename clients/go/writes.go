package distkv

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"time"

	"distkv.example/client/internal/msgpack"
)

// copiesShare is the part of a try's time for which a node waits for copies, so that its own answer comes.
const copiesShare = 0.75

// WriteID is the id by which nodes recognise a write: two writes never have the same. The zero WriteID is one that the
// client makes for this write, as the configuration says.
type WriteID struct {
	kind uint8
	data [16]byte
}

const (
	idAutomatic uint8 = iota
	idGiven
	idNone
)

// NoWriteID is none: nodes do not know the write again.
var NoWriteID = WriteID{kind: idNone}

// NewWriteID makes a new one.
func NewWriteID() WriteID {
	id := WriteID{kind: idGiven}
	_, _ = rand.Read(id.data[:]) // It never fails.
	return id
}

// WriteIDFrom is the one with these bytes, which must be random, or unique in another way.
func WriteIDFrom(data [16]byte) WriteID { return WriteID{idGiven, data} }

// WriteIDOf is that of a text, the same in all languages: the first 16 bytes of its SHA-256.
func WriteIDOf(text string) WriteID {
	sum := sha256.Sum256([]byte(text))
	id := WriteID{kind: idGiven}
	copy(id.data[:], sum[:])
	return id
}

// Bytes are the id's own.
func (w WriteID) Bytes() [16]byte { return w.data }

// PutOptions are those of a write; nil is none.
type PutOptions struct {
	// IfVersion: only if this is the entry's version; the one of a deleted entry: only if it is still deleted. The zero
	// Version is no condition; an untold one, of what came without a version, is refused: an [ErrUsage].
	IfVersion Version
	// IfNew: only if there is no value.
	IfNew bool
	// IfValue: only if this is the value; [Nil] for nil.
	IfValue any
	// WriteID is by which nodes know the write again: the last 65,536 of them, and after a node's restart those of entries
	// that were neither overwritten nor deleted since.
	WriteID WriteID
	// Copies: so many other nodes have it when this returns.
	Copies int
	// Idempotent: the same value again is no change, and a success whatever the other conditions say.
	Idempotent bool
	// Timeout is for all tries; without one (zero) the context's deadline counts, or the configuration. With a negative one, as
	// with a context that has ended, nothing is sent.
	Timeout time.Duration
}

// DeleteOptions are those of a deletion; nil is none. The fields mean what they mean in [PutOptions].
type DeleteOptions struct {
	IfVersion Version
	IfValue   any
	WriteID   WriteID
	Copies    int
	Timeout   time.Duration
}

func (o *DeleteOptions) put() *PutOptions {
	if o == nil {
		return nil
	}
	return &PutOptions{IfVersion: o.IfVersion, IfValue: o.IfValue, WriteID: o.WriteID, Copies: o.Copies, Timeout: o.Timeout}
}

// id is what all tries carry; nil: none. The turn makes one where the caller has given none, if that is so by default.
func (o *PutOptions) id(of *turn, byDefault bool) []byte {
	if planted == plantNoIDs {
		return nil
	}
	id := o.WriteID
	if id.kind == idAutomatic && byDefault {
		id = WriteIDFrom(of.id())
	}
	if id.kind != idGiven {
		return nil
	}
	return id.data[:]
}

func (o *PutOptions) hasChain() bool { return o.IfNew || !o.IfVersion.IsZero() }

// hasCondition: it is made only where the node has what the caller has read.
func (o *PutOptions) hasCondition() bool { return o.hasChain() || o.IfValue != nil }

// needsID: only the id makes a second try count once.
func (o *PutOptions) needsID() bool { return !o.hasChain() && !o.Idempotent }

// idempotency is whether a second try counts once.
func (o *PutOptions) idempotency(id []byte) idempotency {
	if id != nil || !o.needsID() {
		return guarded
	}
	return unguarded
}

// writeInto adds the fields, but for those about copies.
func (o *PutOptions) writeInto(b *body, id []byte) error {
	if o.IfNew && !o.IfVersion.IsZero() {
		return usage("IfNew and IfVersion exclude each other")
	}
	if o.IfVersion == untold {
		return usage("IfVersion is the version of what came without one, or of no entry: ask for versions (TreeOptions.Versions), or use IfNew")
	}
	if o.Copies < 0 {
		return usage("copies cannot be negative")
	}
	switch {
	case o.IfNew:
		b.raw("chain", Nil)
	case !o.IfVersion.IsZero():
		// Old nodes do not know the second one: to them a deleted entry has no version.
		b.raw("chain", o.IfVersion.appendChain(nil)).flag("deleted")
	}
	if o.IfValue != nil {
		value, err := Encode(o.IfValue)
		if err != nil {
			return err
		}
		b.raw("prev", value)
	}
	if id != nil {
		b.binary("wid", id)
	}
	if o.Idempotent {
		b.flag("idem")
	}
	b.integer("nchain", 1)
	return nil
}

// headUntil is the head of a write that a node answers before this moment, also where the copies do not come.
func (o *PutOptions) headUntil(b body, end instant) []byte {
	patience := time.Duration(float64(end-now()) * copiesShare)
	b.fields = slices.Clip(b.fields) // Each try adds its own.
	b.integer("copies", int64(o.Copies)).raw("timeout", msgpack.AppendFloat(nil, max(patience, 0).Seconds()))
	return b.head()
}

// Put writes a value: whatever [As] reads, or a [Value] as it is.
//
// An [ErrFateUnknown]: it may have been made; an [ErrPrecondition] that is none: somebody was there first, or the node that
// was asked has not heard of that version yet.
func (c *Client) Put(ctx context.Context, path Path, value any, options *PutOptions) (Written, error) {
	encoded, err := Encode(value)
	if err != nil {
		return Written{}, err
	}
	return c.write(ctx, "set_value", path, encoded, options)
}

// Delete deletes the entry at a path; entries below it stay.
func (c *Client) Delete(ctx context.Context, path Path, options *DeleteOptions) (Written, error) {
	return c.write(ctx, "delete_value", path, nil, options.put())
}

func (c *Client) write(ctx context.Context, action string, path Path, value Value, options *PutOptions) (Written, error) {
	if options == nil {
		options = &PutOptions{}
	}
	b := pathBody(action, path)
	if value != nil {
		b.raw("value", value)
	}
	turn := c.caller.places.begin(1)
	defer turn.end()
	id := options.id(&turn, !c.config.NoWriteIDs)
	if err := options.writeInto(b, id); err != nil {
		return Written{}, err
	}
	c.caller.own.orderInto(b, path, value == nil || options.Idempotent)
	p := plan{action: action, shard: path.Shard(), idempotency: options.idempotency(id), needsID: options.needsID(),
		timeout: options.Timeout}
	if options.hasCondition() {
		p.first = c.caller.apart(path)
	}
	var reply message
	var do once
	if options.Copies > 0 {
		do = func(ctx context.Context, connection *conn, t tryTime) (err *tryError) {
			reply, err = connection.request(ctx, options.headUntil(*b, t.end), t)
			return err
		}
	}
	found, err := c.caller.call(ctx, &p, b.head(), do)
	if err != nil {
		return Written{}, err
	}
	if do == nil {
		reply = found.message
	}
	written, malformed := reply.written(found.conn.name, found.attempts, found.maybeTwice)
	if malformed != nil {
		return Written{}, finalError(malformed, Unknown, found.conn.name, found.attempts)
	}
	if !written.Version.IsZero() {
		c.caller.noteWrite(path, written.tock, found.life())
	}
	return written, nil
}

// DeleteTreeOptions are those of deleting a tree; nil is none.
type DeleteTreeOptions struct {
	// AgainIfUnknown: retry also if it is unknown whether all of it was done; entries that others wrote between two tries
	// are deleted as well.
	AgainIfUnknown bool
}

// DeleteTree deletes all values at and below a path, as the node that is asked has them; it returns how many. It may take
// all the time that the call has; but a node that is silent for as long as one try may take is given up, and it is unknown
// then whether it was done. Where a node has deleted a part and refuses the rest (an [ErrDenied], say), the Fate is Unknown, too.
func (c *Client) DeleteTree(ctx context.Context, path Path, options *DeleteTreeOptions) (int, error) {
	p := plan{action: "delete_tree", shard: path.Shard(), idempotency: unguarded, isLong: true}
	if options != nil && options.AgainIfUnknown {
		p.idempotency = guarded
	}
	head := c.caller.own.orderInto(pathBody("delete_tree", path), path, false).head()
	var reply message
	found, err := c.caller.call(ctx, &p, nil, func(ctx context.Context, connection *conn, t tryTime) (err *tryError) {
		reply, err = connection.longRequest(ctx, head, t, c.config.Retry.TryDeadline)
		return err
	})
	if err != nil {
		return 0, err
	}
	c.caller.own.onTree(path.Shard(), found.life())
	return int(reply.integer("changed", 0)), nil
}
