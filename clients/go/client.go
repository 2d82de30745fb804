// Package distkv is the smart client of distkv-node: a program talks to the cluster, and need not know which node is up.
//
// It routes each path to the node where its other writers are, pools connections, retries what is safe to retry, follows the
// cluster, and resumes watches without a gap or a repetition. It needs nothing but the standard library.
//
//	client, err := distkv.Connect(ctx, distkv.Config{Seeds: []string{"n1:27586"}})
//	defer client.Close(ctx)
//	_, err = client.Put(ctx, distkv.MustPath("site.lamp"), Lamp{On: true}, nil)
//	lamp, err := distkv.Get[Lamp](ctx, client, distkv.MustPath("site.lamp"), nil)
package distkv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
)

// Client is a client of a cluster; any number of goroutines share it. Made with [Connect].
type Client struct {
	*parts
}

// parts is what a client is made of. A wrong verb of fmt shows what a pointer to a Client has, also without its methods, but not what
// is behind the pointers in that: neither secrets nor what only a lock makes readable.
type parts struct {
	config     Config
	caller     caller
	pool       *pool
	topology   *topology
	shards     *shardTable
	goroutines group

	stop context.CancelFunc // of what it does by itself
}

// Connect connects: it returns as soon as one of the seeds has told which nodes exist.
//
// An [ErrUnavailable]: none could be reached in time, which is that of the context (then the error is a
// [context.DeadlineExceeded], too) or Config.ConnectDeadline, whichever is shorter, or, at once (then it is a [syscall.EMFILE] or
// [syscall.ENFILE], too), there is no free file descriptor; an [ErrDenied], at once: all refuse this user, or are of another
// network; an [ErrUsage]: the configuration cannot be used. Nothing is left running then.
func Connect(ctx context.Context, config Config) (*Client, error) {
	if err := config.checkNumbers(); err != nil {
		return nil, err
	}
	config.fill()
	var err error
	if config.ReadMode, err = config.ReadMode.check(Preferred); err != nil {
		return nil, err
	}
	if config.ReadMode == Freshest && config.Topology.OnlySeeds {
		return nil, usage("ReadMode cannot be Freshest with Topology.OnlySeeds: the client then does not know which nodes there are, " +
			"so not what a majority of them is")
	}
	if err := config.withTicket(); err != nil {
		return nil, err
	}
	if err := config.Login.check(); err != nil {
		return nil, err
	}
	config.Login = config.Login.concealed()
	if len(config.Seeds) > SeedsMax {
		return nil, usage(fmt.Sprintf("a client has at most %d seeds", SeedsMax))
	}
	seeds := make([]address, len(config.Seeds))
	for i, seed := range config.Seeds {
		if seeds[i], err = parseSeed(seed); err != nil {
			return nil, err
		}
	}
	if cause := ctx.Err(); cause != nil {
		return nil, notBegun(cause)
	}
	c := &Client{&parts{config: config}}
	c.pool = newPool(&c.config, &c.goroutines)
	c.topology = newTopology(seeds, c.pool, &c.config)
	c.topology.connectBy = now() + config.ConnectDeadline
	if deadline, isSet := ctx.Deadline(); isSet {
		c.topology.connectBy = min(c.topology.connectBy, now()+time.Until(deadline))
	}
	c.caller.config, c.caller.pool, c.caller.topology = &c.config, c.pool, c.topology
	c.caller.own = newOwnWrites(config.OwnWritesMax, &c.pool.clock)
	c.caller.places = newWritePlaces()
	c.caller.endless = map[endless]struct{}{}
	c.shards = newShardTable(&c.caller)
	own, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.goAlong(own, c.topology.follow)
	c.goAlong(own, c.topology.tellAll)
	if err := c.awaitView(ctx, seeds[0]); err != nil {
		c.finish()
		return nil, err
	}
	c.goAlong(own, c.shards.keep)
	return c, nil
}

func (c *Client) goAlong(ctx context.Context, do func(ctx context.Context)) {
	c.goroutines.Add(1)
	go func() {
		defer c.goroutines.Done()
		do(ctx)
	}()
}

func (c *Client) awaitView(ctx context.Context, seed address) error {
	started := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.config.ConnectDeadline)
	defer cancel()
	failure := c.topology.firstView(limited)
	switch {
	case c.topology.routing().view.Epoch > 0:
		return nil
	case failure.isFinal && failure.why.outOfFiles():
		return &Error{Code: "unavailable", kind: ErrUnavailable, Attempts: 1, cause: failure.why,
			text: "this process, or its machine, has no free file descriptor: " + failure.why.text}
	case failure.isFinal:
		return noAccess(failure.why, failure.at.String(), 1)
	case errors.Is(ctx.Err(), context.Canceled):
		return canceledError(ctx, NotDone, seed.String(), 1)
	}
	why, at := failure.why, failure.at
	if why == nil {
		why, at = &tryError{kind: tryTimedOut, text: "no answer"}, seed
	}
	// The context's error, too, where its time was shorter than what the configuration says.
	return &Error{Code: "unavailable", kind: ErrUnavailable, Node: at.String(), Attempts: 1, cause: errors.Join(why, ctx.Err()),
		text: fmt.Sprintf("no node could be reached within %v: %s", time.Since(started).Round(time.Millisecond), why.text)}
}

// Close closes the client: nothing new begins, and open calls may end until the context does (or for Config.CloseGrace, if
// the context has no deadline); then they fail with [ErrClosed], as watches do at once. Who calls it within a call, in the loop
// over a Tree or in an [Observer], waits for that call in vain, until the context ends: it should give one that ends soon, or has
// ended. When it returns, no goroutine and no socket is left, but for the goroutine of a listener, or an Observer, that still
// runs, and what looks up a name: that ends at once, too, if Go's own resolver does it; the C library's (cgo) waits as long as
// it likes for a name service. It may be called again: of several contexts, the one that ends first counts.
func (c *Client) Close(ctx context.Context) error {
	grace := c.config.CloseGrace
	if deadline, isSet := ctx.Deadline(); isSet {
		grace = time.Until(deadline)
	}
	c.caller.isClosing.Store(true)
	c.caller.closeEndless()
	timer := time.NewTimer(max(grace, 0))
	defer timer.Stop()
	select {
	case <-c.caller.calls.none():
	case <-timer.C:
	case <-ctx.Done():
	}
	c.finish()
	return nil
}

// finish ends all that goes on by itself, and waits for that.
func (c *Client) finish() {
	c.caller.isClosing.Store(true)
	c.stop()
	c.pool.close()
	<-c.goroutines.none()
}

// String has nothing secret: how many nodes there are, or that the client was closed.
func (c *Client) String() string {
	switch {
	case c == nil || c.parts == nil:
		return "Client(none)"
	case c.Closed():
		return "Client(closed)"
	}
	return fmt.Sprintf("Client(%d nodes)", len(c.topology.routing().view.Nodes))
}

// Format has nothing secret either, whatever the verb is.
func (c *Client) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, c.String()) }

// LogValue has nothing secret either.
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Closed tells whether it was closed.
func (c *Client) Closed() bool { return c.caller.isClosing.Load() }

// ClusterView is which nodes there are.
func (c *Client) ClusterView() ClusterView {
	view := c.topology.routing().view
	view.Nodes = slices.Clone(view.Nodes)
	return view
}

// OnTopologyChange calls it for each change of the view or of preferred nodes, one after the other, on a goroutine of the
// client, on which nothing else waits: it may use the client, and close it. While it is still busy with one change, further ones
// wait; when 64 wait, the last takes in those that follow. What it returns takes it off again. What it panics with is logged and
// stops nothing. More than 1,024 are not taken, nor nil: the error is an [ErrUsage].
func (c *Client) OnTopologyChange(call func(TopologyChange)) (stop func(), err error) {
	return c.topology.listen(call)
}

// Preferred is the name of the node that calls about this path go to first; "" if none is live. It allocates nothing.
func (c *Client) Preferred(path Path) string { return c.topology.routing().preferredName(path.Shard()) }

// Stats are counters.
func (c *Client) Stats() Stats {
	var s Stats
	c.caller.counters.fill(&s)
	s.Pool, s.Topology = c.pool.fillStats(), c.topology.fillStats()
	s.Router.Shards = map[string]int{}
	routing := c.topology.routing()
	for shard := range ShardCount {
		if name := routing.preferredName(shard); name != "" {
			s.Router.Shards[name]++
		}
	}
	return s
}
