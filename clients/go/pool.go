package distkv

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Bounds of the pool.
const (
	poolNodesMax  = 4096 // nodes that are remembered; those without a connection are dropped first
	doublingsMax  = 16   // after so many failures in a row their memory grows no more
	poolLookMin   = 10 * time.Millisecond
	poolLookMax   = time.Second
	closedReason  = "the client was closed"
	unusedReason  = "it was unused"
	silentReason  = "the node does not answer"
	refusedReason = "does not answer requests"
)

// pool is few connections to each node, shared by all calls, opened on first use.
//
// A call that needs a connection while one is being opened waits for that attempt, which goes on even if the call is
// cancelled. A failed attempt is remembered for a short while. A second connection is opened only when the first is busy,
// and is waited for only where the first has no room left;
// unused ones are closed; a silent node is asked whether it is alive. Nodes of another network are not used. Who means a node by
// its name gets no connection to another one, though it may be at that address: for those who mean that one, or whichever is
// there, the connection stays.
type pool struct {
	config     *Config
	ctx        context.Context // ends when the pool is closed
	cancel     context.CancelFunc
	goroutines *group
	clock      clock // what all nodes say
	network    *network
	// onOtherNode is told the name of a node at whose address another one answers; without the lock.
	onOtherNode func(name string)

	mu       sync.Mutex
	slots    map[address]*slot
	isClosed bool
	stats    PoolStats
}

func newPool(config *Config, goroutines *group) *pool {
	p := &pool{config: config, goroutines: goroutines, slots: map[address]*slot{}, network: networkOf(config),
		onOtherNode: func(string) {}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	goroutines.Add(1)
	go p.look()
	return p
}

// ready is an open connection that is not busy, if there is one: no waiting, no allocation. what: for what it has room.
func (p *pool) ready(at place, what use) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.slots[at.address]
	if found == nil {
		return nil
	}
	for _, c := range found.conns {
		isBusy := int(c.load.Load()) >= p.config.Pool.BusyAt || !c.hasRoom(what)
		if c.ended.Load() == nil && !isBusy && (at.name == "" || c.name == at.name) {
			c.usedAt.Store(int64(now()))
			return c
		}
	}
	return nil
}

// get is a connection to whichever node is there. Giving up gives up waiting, not the attempt. After an error nothing was sent.
func (p *pool) get(ctx context.Context, where address, end instant) (*conn, *tryError) {
	return p.getAt(ctx, place{address: where}, end, forCall)
}

// getAt is the same to the node that is meant. what: what it is for, since calls have room where streams have none.
func (p *pool) getAt(ctx context.Context, at place, end instant, what use) (*conn, *tryError) {
	if c := p.ready(at, what); c != nil {
		return c, nil
	}
	for {
		c, going, err := p.plan(at, what)
		if err != nil && err.misplaced {
			p.onOtherNode(at.name)
		}
		if c != nil || err != nil {
			return c, err
		}
		// Others may have waited for it, too, and have filled it: then there may be a further one.
		if c, err = p.outcome(ctx, at, going, end); err != nil || c.hasRoom(what) {
			return c, err
		}
	}
}

// outcome is the connection of an attempt, to the node that is meant.
func (p *pool) outcome(ctx context.Context, at place, going *attempt, end instant) (*conn, *tryError) {
	where := at.address
	timer := time.NewTimer(end - now())
	defer timer.Stop()
	select {
	case <-going.done:
	case <-timer.C:
		return nil, p.outOfTime(where, nil)
	case <-ctx.Done():
		err := gaveUp(ctx, where.String())
		if err.kind == tryTimedOut {
			err = p.outOfTime(where, err.cause)
		}
		return nil, err
	}
	if going.err != nil {
		return nil, going.err
	}
	if ended := going.conn.ended.Load(); ended != nil {
		err := tryErrorf(tryConnect, "no connection to %s that lasts: %s", where, ended.text)
		err.code = ended.code
		return nil, err
	}
	if at.name != "" && going.conn.name != at.name {
		p.onOtherNode(at.name)
		return nil, otherNode(where, going.conn.name)
	}
	return going.conn, nil
}

// otherNode: where the view has a node, another one answers. Its name may be any text, and is shown in one line.
func otherNode(where address, name string) *tryError {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	err := tryErrorf(tryConnect, "at %s another node answers, %s", where, name)
	err.misplaced = true
	return err
}

// outOfTime is the error of a caller that can wait no longer for a connection: nothing was sent. How the attempt before failed
// says more than that.
func (p *pool) outOfTime(where address, cause error) *tryError {
	err := tryErrorf(tryConnect, "no connection to %s in time", where)
	err.cause = cause
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.slots[where]; found != nil && found.failure != nil {
		err.before = found.failure
		err.text += "; before that: " + found.failure.text
	}
	return err
}

func (p *pool) plan(at place, what use) (*conn, *attempt, *tryError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	where := at.address
	if p.isClosed {
		return nil, nil, tryErrorf(tryConnect, "cannot connect to %s: %s", where, closedReason)
	}
	moment := now()
	found := p.slots[where]
	if found == nil {
		if len(p.slots) >= poolNodesMax {
			p.retainLocked(func(address) bool { return false })
		}
		found = &slot{}
		p.slots[where] = found
	}
	p.stats.Lost += uint64(found.dropEnded())
	if other := found.otherThan(at.name); other != "" {
		return nil, nil, otherNode(where, other)
	}
	best, hasRoom := found.best(at.name, what)
	isFailing := moment < found.failedUntil
	if best != nil {
		best.usedAt.Store(int64(moment))
		isBusy := int(best.load.Load()) >= p.config.Pool.BusyAt || !hasRoom
		if isBusy && len(found.conns) < p.config.Pool.ConnectionsPerNode && !isFailing && found.attempt == nil {
			// It is busy, but there; the next caller gets the new one.
			p.open(where, found)
		}
		if !hasRoom && found.attempt != nil {
			return nil, found.attempt, nil
		}
		if err := found.full(where, p.config.Pool.ConnectionsPerNode); !hasRoom && what == forStream && err != nil {
			return nil, nil, err
		}
		return best, nil, nil
	}
	if isFailing && found.failure != nil {
		p.stats.FailuresRemembered++
		return nil, nil, found.failure
	}
	if found.attempt == nil {
		p.open(where, found)
	}
	return nil, found.attempt, nil
}

// open is called with the lock.
func (p *pool) open(where address, in *slot) {
	going := &attempt{done: make(chan struct{})}
	in.attempt = going
	p.goroutines.Add(1)
	go func() {
		defer p.goroutines.Done()
		defer close(going.done)
		c, err := openConn(p.ctx, where, p.config, p.network, p.goroutines)
		p.mu.Lock()
		defer p.mu.Unlock()
		going.conn, going.err = c, err
		in.attempt = nil
		if err != nil {
			p.stats.Failed++
			p.stats.Lost += uint64(in.dropEnded()) // Their last words tell what this failure means.
			in.noteFailure(err, p.config)
			going.err = in.failure
			return
		}
		if p.isClosed {
			c.close(closedReason)
			going.conn, going.err = nil, tryErrorf(tryConnect, "cannot connect to %s: %s", where, closedReason)
			return
		}
		c.clock.Store(&p.clock)
		p.stats.Opened++
		p.stats.Lost += uint64(in.letIn(c))
		// It may have been forgotten meanwhile.
		p.slots[where] = in
	}()
}

// isFailingAt is isFailing of the node that is meant; so is one where another node answers.
func (p *pool) isFailingAt(at place) bool {
	p.mu.Lock()
	found := p.slots[at.address]
	isOther := found != nil && found.otherThan(at.name) != ""
	isFailing := found != nil && found.failedUntil > 0 && now() < found.failedUntil
	p.mu.Unlock()
	if isOther {
		p.onOtherNode(at.name)
	}
	return isFailing || isOther
}

// isFailing tells whether the last attempt failed so recently that get would not try again, or the node let a call wait
// in vain.
func (p *pool) isFailing(where address) bool { return p.isFailingAt(place{address: where}) }

// onTimeout: a call has waited in vain since then. If the node sent nothing at all meanwhile, and no message is arriving, others
// avoid it for a moment, and it is asked whether it is alive.
func (p *pool) onTimeout(where address, c *conn, since instant) {
	if instant(c.heardAt.Load()) >= since || c.arrival.goesOn(now()) || c.ended.Load() != nil {
		return
	}
	p.mu.Lock()
	if found := p.slots[where]; found != nil {
		found.noteFailure(tryErrorf(tryConnect, "%s %s", where, refusedReason), p.config)
	}
	p.mu.Unlock()
	p.startProbe(where, c)
}

// probe asks a node whether it is alive, after a report that it is not.
func (p *pool) probe(where address) {
	p.mu.Lock()
	var conns []*conn
	if found := p.slots[where]; found != nil {
		conns = slices.Clone(found.conns)
	}
	p.mu.Unlock()
	for _, c := range conns {
		p.startProbe(where, c)
	}
}

// retain forgets the nodes that are none of these and have no connection.
func (p *pool) retain(isWanted func(address) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retainLocked(isWanted)
}

func (p *pool) retainLocked(isWanted func(address) bool) {
	for where, found := range p.slots {
		if !isWanted(where) && len(found.conns) == 0 && found.attempt == nil {
			delete(p.slots, where)
		}
	}
}

// lifeOf is the node at an address, if there is a connection to it.
func (p *pool) lifeOf(where address) (string, int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.slots[where]; found != nil && len(found.conns) > 0 {
		return found.conns[0].name, found.conns[0].incarnation, true
	}
	return "", -1, false
}

func (p *pool) fillStats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.stats
	for _, found := range p.slots {
		isUsed := false
		for _, c := range found.conns {
			if c.ended.Load() == nil {
				isUsed = true
				told.Connections++
				told.OpenRequests += int(c.load.Load())
			}
		}
		told.Nodes += boolean(isUsed)
	}
	return told
}

// close ends all connections, for all their users. The goroutines end soon.
func (p *pool) close() {
	p.mu.Lock()
	p.isClosed = true
	var open []*conn
	for _, found := range p.slots { // An attempt that goes on may still change one.
		open = append(open, found.conns...)
	}
	p.slots = map[address]*slot{}
	p.mu.Unlock()
	p.cancel()
	for _, c := range open {
		c.close(closedReason)
	}
}

func (p *pool) closed() bool { return p.ctx.Err() != nil }

// pause is wait, but not beyond the end of the pool, which whoever has waited must look for.
func (p *pool) pause(ctx context.Context, delay time.Duration) bool {
	return waitUntil(ctx, p.ctx.Done(), delay)
}

// -- looking after it ----------------------------------------------------------------------------

func (p *pool) look() {
	defer p.goroutines.Done()
	shortest := min(p.config.Pool.IdleClose, p.config.Pool.ProbeAfter)
	ticker := time.NewTicker(min(max(shortest/4, poolLookMin), poolLookMax))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.lookOnce()
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *pool) lookOnce() {
	type doubtful struct {
		where address
		conn  *conn
	}
	var silent []doubtful
	var unused []*conn
	moment := now()
	p.mu.Lock()
	for where, found := range p.slots {
		p.stats.Lost += uint64(found.dropEnded())
		found.conns = slices.DeleteFunc(found.conns, func(c *conn) bool {
			heard := instant(c.heardAt.Load())
			if c.load.Load() > 0 {
				if moment-heard >= p.config.Pool.ProbeAfter {
					silent = append(silent, doubtful{where, c})
				}
				return false
			}
			if moment-max(instant(c.usedAt.Load()), heard) < p.config.Pool.IdleClose {
				return false
			}
			p.stats.IdleClosed++
			unused = append(unused, c)
			return true
		})
	}
	p.mu.Unlock()
	for _, c := range unused {
		c.close(unusedReason)
	}
	for _, one := range silent {
		p.startProbe(one.where, one.conn)
	}
}

func (p *pool) startProbe(where address, c *conn) {
	if c.ended.Load() != nil || p.closed() || !c.isProbed.CompareAndSwap(false, true) {
		return
	}
	p.mu.Lock()
	if p.isClosed {
		p.mu.Unlock()
		return
	}
	p.stats.Probes++
	p.goroutines.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.goroutines.Done()
		defer c.isProbed.Store(false)
		isAnswered, isSilent := c.isAlive(p.ctx, now()+p.config.Pool.ProbeTimeout)
		p.mu.Lock()
		found := p.slots[where]
		if found == nil || c.ended.Load() != nil {
			p.mu.Unlock()
			return
		}
		if isAnswered {
			found.clearFailure()
		} else if isSilent {
			p.stats.SilentClosed++
			// First, so that the calls that lose it do not come back at once.
			found.noteFailure(tryErrorf(tryConnect, "%s does not answer", where), p.config)
		}
		p.mu.Unlock()
		if isSilent {
			c.close(silentReason)
		}
	}()
}
