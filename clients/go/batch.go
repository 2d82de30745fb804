package distkv

import (
	"context"
	"fmt"
	"time"

	"distkv.example/client/internal/msgpack"
)

// BatchOpsMax is the most operations of a batch.
const BatchOpsMax = 1024

// Batch is many reads and writes in one request with one reply, in this order, at one node. It is no transaction: what
// fails does not keep the rest from being done, and others' changes may come in between.
type Batch struct {
	client *Client
	ops    []batchOp
	err    error // of the first operation that cannot be sent
}

type batchOp struct {
	path    Path
	action  string
	value   Value
	options *PutOptions // nil: it reads
}

// BatchReply is what one operation came to: Entry of a Get (where there never was one, it is Deleted, and its Version untold),
// Written of a Put or Delete, or Err. The other operations were
// done whatever Err says.
type BatchReply struct {
	Entry   Entry
	Written Written
	Err     error
}

// Batch begins one; add operations, then Run it. It is not for several goroutines at once.
func (c *Client) Batch() *Batch { return &Batch{client: c} }

// Len is the number of operations.
func (b *Batch) Len() int { return len(b.ops) }

// Get reads an entry.
func (b *Batch) Get(path Path) *Batch { return b.add(batchOp{path, "get_value", nil, nil}) }

// Put writes a value; options.Copies and Timeout do not count.
func (b *Batch) Put(path Path, value any, options *PutOptions) *Batch {
	encoded, err := Encode(value)
	if err != nil && b.err == nil {
		b.err = err
	}
	if options == nil {
		options = &PutOptions{}
	}
	return b.add(batchOp{path, "set_value", encoded, options})
}

// Delete deletes an entry; options.Copies and Timeout do not count.
func (b *Batch) Delete(path Path, options *DeleteOptions) *Batch {
	put := options.put()
	if put == nil {
		put = &PutOptions{}
	}
	return b.add(batchOp{path, "delete_value", nil, put})
}

func (b *Batch) add(op batchOp) *Batch {
	if len(b.ops) >= BatchOpsMax {
		if b.err == nil {
			b.err = usage(fmt.Sprintf("a batch has at most %d operations", BatchOpsMax))
		}
		return b
	}
	b.ops = append(b.ops, op)
	return b
}

// BatchOptions are those of a batch; nil is none.
type BatchOptions struct {
	// Timeout is for all tries; without one the context's deadline counts, or the configuration. With a negative one, as
	// with a context that has ended, nothing is sent.
	Timeout time.Duration
}

// Run carries it out at the node that is preferred for its first path. The replies are in the order of the operations.
func (b *Batch) Run(ctx context.Context, options *BatchOptions) ([]BatchReply, error) {
	if b.err != nil || len(b.ops) == 0 {
		return nil, b.err
	}
	c := &b.client.caller
	p := plan{action: "batch", shard: b.ops[0].path.Shard()}
	if options != nil {
		p.timeout = options.Timeout
	}
	turn := c.places.begin(len(b.ops))
	defer turn.end()
	ops, err := b.encode(&p, &turn)
	if err != nil {
		return nil, err
	}
	if p.idempotency == reading {
		p.first = c.home(c.topology.routing(), p.shard)
	} else {
		p.first = b.apart()
	}
	request := newBody("batch").raw("ops", ops).head()
	var results []message
	found, failed := c.call(ctx, &p, nil, func(ctx context.Context, connection *conn, t tryTime) *tryError {
		reply, err := connection.request(ctx, request, t)
		if err != nil {
			return err
		}
		results, err = b.check(reply, p.idempotency != unguarded)
		return err
	})
	if failed != nil {
		return nil, failed
	}
	replies := make([]BatchReply, len(b.ops))
	for i, op := range b.ops {
		replies[i] = b.reply(op, results[i], &found)
	}
	return replies, nil
}

// apart is where the first of its operations that has a condition goes, if that is no live node.
func (b *Batch) apart() *target {
	for _, op := range b.ops {
		if op.options == nil || !op.options.hasCondition() {
			continue
		}
		if at := b.client.caller.apart(op.path); at != nil {
			return at
		}
	}
	return nil
}

// encode writes its operations as a field's value, and says what a second try would do.
func (b *Batch) encode(p *plan, of *turn) ([]byte, error) {
	encoded := msgpack.AppendArrayHead(nil, len(b.ops))
	for _, op := range b.ops {
		fields := pathBody(op.action, op.path)
		if op.options == nil {
			fields.integer("nchain", 1)
		} else {
			if op.value != nil {
				fields.raw("value", op.value)
			}
			id := op.options.id(of, !b.client.config.NoWriteIDs)
			if err := op.options.writeInto(fields, id); err != nil {
				return nil, err
			}
			b.client.caller.own.orderInto(fields, op.path, op.value == nil || op.options.Idempotent)
			p.idempotency = max(p.idempotency, op.options.idempotency(id))
			p.needsID = p.needsID || op.options.needsID()
		}
		encoded = append(encoded, fields.operation()...)
	}
	return encoded, nil
}

// check returns the results. An error that another node might not have becomes the error of the whole batch if the batch can
// be retried; it says whether any of it is made.
func (b *Batch) check(reply message, isRepeatable bool) ([]message, *tryError) {
	results := make([]message, 0, len(b.ops))
	var passing *tryError
	isMade := false
	isGood := msgpack.Items(reply.get("results"), func(item []byte) bool {
		head, _ := msgpack.ReadHead(item)
		if head.Kind != msgpack.Map {
			return false
		}
		result := message(item)
		if err := result.check(); err == nil {
			isMade = isMade || (len(results) < len(b.ops) && b.ops[len(results)].options != nil)
		} else {
			isMade = isMade || err.made
			if passing == nil && classOf(err, true) != classFinal {
				passing = err
			}
		}
		results = append(results, result)
		return true
	})
	if !isGood || len(results) != len(b.ops) {
		return nil, &tryError{kind: tryProtocol, text: "the results of a batch are none"}
	}
	if passing == nil || !isRepeatable || planted == plantBatch {
		return results, nil
	}
	passing.made = isMade
	return results, passing
}

func (b *Batch) reply(op batchOp, result message, found *served) BatchReply {
	name := found.conn.name
	if err := result.check(); err != nil {
		fate := NotDone
		if op.options != nil {
			// The batch may have been tried before.
			fate = found.earlier.worse(fateOf(classOf(err, true), err.made, unguarded))
		}
		return BatchReply{Err: refusal(err, fate, name, found.attempts)}
	}
	var reply BatchReply
	var malformed *tryError
	if op.options == nil {
		reply.Entry, malformed = result.entry(name)
		b.client.caller.noteAnswer(op.path, name)
	} else {
		reply.Written, malformed = result.written(name, found.attempts, found.maybeTwice)
		if malformed == nil && !reply.Written.Version.IsZero() {
			b.client.caller.noteWrite(op.path, reply.Written.tock, found.life())
		}
	}
	if malformed != nil {
		reply.Err = finalError(malformed, NotDone, name, found.attempts)
	}
	return reply
}
