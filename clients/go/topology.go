package distkv

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"distkv.example/client/internal/msgpack"
)

// askAnewAfter: for so long a view that has proved wrong is not asked for anew once more; it may be wrong at all nodes.
const askAnewAfter = 10 * time.Second

// topology is the nodes of the network, kept up to date: from the seeds to a watch of the cluster view at one node, and to
// the next node when that one is lost. Seeds always stay candidates.
//
// Epochs of two nodes cannot be compared, so the client counts its own. Nodes that have no such view to watch (older ones)
// leave the client with its seeds.
type topology struct {
	seeds  []address
	pool   *pool
	config *TopologyConfig
	log    *slog.Logger
	now    atomic.Pointer[routing]

	connectBy instant // by when there must be a first view

	mu        sync.Mutex // taken before the pool's
	stats     TopologyStats
	failure   connectFailure // the last time that all were tried
	watched   *stream        // the views of the node that is watched; nil while none is
	since     instant        // when the first of them came
	isDoubted bool           // another node is asked instead, because they have proved wrong
	askAgain  instant        // from then on a wrong view may be asked for anew
	changed   chan struct{}
	listeners map[int]func(TopologyChange)
	last      int
	toTell    []untoldChange
	isToTell  chan struct{}
}

func newTopology(seeds []address, p *pool, config *Config) *topology {
	t := &topology{seeds: seeds, pool: p, config: &config.Topology, log: config.Logger, changed: make(chan struct{}),
		listeners: map[int]func(TopologyChange){}, isToTell: make(chan struct{}, 1), connectBy: never}
	t.now.Store(newRouting(ClusterView{}, seeds, nil))
	p.onOtherNode = t.askAnew
	return t
}

// routing is what there is now.
func (t *topology) routing() *routing { return t.now.Load() }

// connectFailure is why no node could be reached.
type connectFailure struct {
	why     *tryError // nil: nobody has failed yet
	at      address   // of the node that it is about
	isFinal bool      // all nodes refused this client, or are of another network; or no socket can be made
}

// note takes the error of one more node, if it says more: that no socket can be made the most, since then nobody was asked; then a
// refusal, or that a login has to wait.
func (f *connectFailure) note(err *tryError, at address) {
	switch {
	case f.why == nil:
		f.isFinal = err.isRefusal()
	case f.why.outOfFiles():
		return
	case !err.isRefusal():
		f.isFinal = false
	}
	if f.why == nil || err.outOfFiles() || (!f.why.isRefusal() && err.weight() >= f.why.weight()) {
		f.why, f.at = err, at
	}
	f.isFinal = f.isFinal || err.outOfFiles()
}

// firstView waits until there is a view, or what stands in its way is final; it returns what has failed last.
func (t *topology) firstView(ctx context.Context) connectFailure {
	for {
		t.mu.Lock()
		failure, changed := t.failure, t.changed
		t.mu.Unlock()
		if t.routing().view.Epoch > 0 || failure.isFinal {
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			failure.isFinal = false
			return failure
		}
	}
}

// askAnew: this node is not where the view has it, so another one may know better than the one that is watched. Of a node that
// is not live, nobody says that it is there.
func (t *topology) askAnew(name string) {
	if to := t.routing().byName[name]; to == nil || !to.isLive {
		return
	}
	t.mu.Lock()
	watched, moment := t.watched, now()
	isDue := watched != nil && moment >= t.askAgain
	if isDue {
		t.askAgain, t.isDoubted = moment+askAnewAfter, true
	}
	t.mu.Unlock()
	if isDue {
		watched.close()
	}
}

// prefer takes new overrides of preferred nodes: listeners are told which shards moved.
func (t *topology) prefer(overrides map[int]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.routing()
	if maps.Equal(overrides, old.overrides) {
		return
	}
	newer := newRouting(old.view, t.seeds, overrides)
	t.now.Store(newer)
	t.willTell(old, newer)
}

func (t *topology) fillStats() TopologyStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := t.stats
	view := t.routing().view
	told.Epoch, told.Nodes = view.Epoch, len(view.Nodes)
	for _, node := range view.Nodes {
		told.Live += boolean(node.IsLive())
	}
	return told
}

// -- views ---------------------------------------------------------------------------------------

func (t *topology) apply(nodes []Node, source string) {
	t.mu.Lock()
	t.stats.Views++
	t.stats.SeedsOnly = source == ""
	t.failure = connectFailure{}
	old := t.routing()
	added, removed, changed := compareViews(old.view.Nodes, nodes)
	if len(added)+len(removed)+len(changed) == 0 && old.view.Epoch > 0 {
		t.mu.Unlock()
		return
	}
	newer := newRouting(ClusterView{old.view.Epoch + 1, nodes, source}, t.seeds, old.overrides)
	t.now.Store(newer)
	t.willTell(old, newer)
	t.notify()
	t.mu.Unlock()
	t.pool.retain(func(where address) bool { return newer.addresses[where] != nil })
	gone := slices.Clone(removed)
	for _, one := range changed {
		gone = append(gone, one.After)
	}
	for _, node := range gone {
		if !node.IsLive() && node.hasAddress {
			// Calls that wait there need not wait until the silence is noticed.
			t.pool.probe(node.address)
		}
	}
}

// notify is called with the lock.
func (t *topology) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *topology) applySeeds() {
	var nodes []Node
	for _, seed := range t.seeds {
		name, incarnation, isKnown := t.pool.lifeOf(seed)
		if !isKnown {
			name = seed.String()
		}
		nodes = append(nodes, Node{Name: name, Client: seed.String(), State: "seed", Ready: true, incarnation: incarnation,
			housekeeper: -1, address: seed, hasAddress: true})
	}
	t.apply(byName(nodes), "")
}

// -- following -----------------------------------------------------------------------------------

type outcome uint8

const (
	followed    outcome = iota // it sent at least one view
	unsupported                // it has no view to watch
	notReady                   // it cannot know the others yet
)

// follow is the goroutine that keeps the view.
func (t *topology) follow(ctx context.Context) {
	delay := t.config.RetryDelay
	var last address
	// In the second round a view of a node that is not ready is better than none.
	takesAny := false
	var unready []address
	for ctx.Err() == nil {
		var isFollowed, hasLasted, isDoubted, isOld, isNotReady bool
		var failure connectFailure
		candidates := t.candidates(last)
		if takesAny {
			slices.SortStableFunc(candidates, func(a, b address) int {
				return boolean(slices.Contains(unready, b)) - boolean(slices.Contains(unready, a))
			})
		}
		unready = nil
		for i, candidate := range candidates {
			// What one has told must still be used when all others have been asked.
			end := t.share(len(candidates) - i + boolean(isOld || isNotReady))
			found, err := t.followOne(ctx, candidate, takesAny, end)
			t.mu.Lock()
			t.stats.Watching, t.watched = "", nil
			t.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				failure.note(err, candidate)
				continue
			}
			if found == followed {
				t.mu.Lock()
				t.stats.Lost++
				hasLasted, isDoubted = now()-t.since >= t.config.RetryDelayMax, t.isDoubted
				t.mu.Unlock()
				last, isFollowed = candidate, true
				break
			}
			isOld = isOld || found == unsupported
			if found == notReady {
				isNotReady, unready = true, append(unready, candidate)
			}
		}
		if isFollowed {
			takesAny = false
			if hasLasted {
				delay = t.config.RetryDelay
			}
			// One that breaks again and again, as behind something that cuts it off, counts as a round in vain.
			if !hasLasted && !isDoubted {
				delay = t.pause(ctx, delay)
			}
			continue
		}
		takesAny = isNotReady
		if isOld && !isNotReady {
			t.applySeeds()
			wait(ctx, t.config.OldNodesDelay)
			continue
		}
		if failure.why != nil {
			failure.isFinal = failure.isFinal && !isNotReady
			t.mu.Lock()
			t.failure = failure
			t.notify()
			t.mu.Unlock()
		}
		delay = t.pause(ctx, delay)
	}
}

// pause waits from half of a delay to all of it, so that many clients do not come at the same moment; it returns the next delay.
func (t *topology) pause(ctx context.Context, delay time.Duration) time.Duration {
	wait(ctx, time.Duration(float64(delay)*(0.5+rand.Float64()/2)))
	return min(delay*2, t.config.RetryDelayMax)
}

// wait waits for a while, or until the context ends; it tells whether the time has passed.
func wait(ctx context.Context, pause time.Duration) bool { return waitUntil(ctx, nil, pause) }

// waitUntil is the same, but not beyond this end.
func waitUntil(ctx context.Context, end <-chan struct{}, pause time.Duration) bool {
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-end:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil // More than one may have come.
}

// candidates is whom to ask, best first: live nodes from a random one on, so that clients spread.
func (t *topology) candidates(last address) []address {
	routing := t.routing()
	targets := slices.Clone(routing.targets)
	if routing.view.Epoch > 0 && len(targets) > 0 {
		first := rand.IntN(len(targets))
		targets = append(targets[first:], targets[:first]...)
	}
	worth := func(one *target) int {
		return 2*boolean(one.address == last || t.pool.isFailing(one.address)) + boolean(!one.isLive)
	}
	slices.SortStableFunc(targets, func(a, b *target) int { return worth(a) - worth(b) })
	found := make([]address, len(targets))
	for i, one := range targets {
		found[i] = one.address
	}
	return found
}

// share is by when a candidate must begin to send its view. One seed is enough, so those that are silent leave time for the
// others: while there is no view, what is left until there must be one is for so many. An attempt to connect goes on.
func (t *topology) share(candidates int) instant {
	patience := t.config.FirstViewTimeout
	if t.routing().view.Epoch == 0 {
		patience = min(patience, (t.connectBy-now())/time.Duration(candidates))
	}
	return now() + patience
}

// followOne watches the view of one node, until that ends. It must have begun by then.
func (t *topology) followOne(ctx context.Context, candidate address, takesAny bool, end instant) (outcome, *tryError) {
	c, err := t.pool.get(ctx, candidate, end)
	if err != nil {
		return 0, err
	}
	if t.config.OnlySeeds {
		return unsupported, nil
	}
	s, err := c.ownStream(ctx, newBody("watch_cluster").head(), exactly(end))
	if err != nil {
		if err.kind == tryServer && (err.code == "unknown_action" || err.code == "") {
			return unsupported, nil
		}
		return 0, err
	}
	defer s.close()
	nodes, source, err := nextView(ctx, s, end)
	if err != nil {
		return 0, err
	}
	if nodes == nil {
		return 0, tryErrorf(tryTimedOut, "%s does not tell which nodes there are", candidate)
	}
	isReady := slices.ContainsFunc(nodes, func(node Node) bool { return node.State == "self" && node.Ready })
	if !takesAny && !isReady {
		return notReady, nil
	}
	t.mu.Lock()
	t.stats.Watching, t.watched, t.since, t.isDoubted = candidate.String(), s, now(), false
	t.mu.Unlock()
	for nodes != nil {
		t.apply(nodes, source)
		if nodes, source, err = nextView(ctx, s, never); err != nil {
			break
		}
	}
	return followed, nil
}

// nextView is the next view of a stream; none at its end.
func nextView(ctx context.Context, s *stream, end instant) ([]Node, string, *tryError) {
	for {
		found, err := s.next(ctx, exactly(end))
		if err != nil || found == nil {
			return nil, "", err
		}
		told := found.message.get("cluster")
		if head, _ := msgpack.ReadHead(told); told == nil || head.Kind != msgpack.Map {
			continue
		}
		if nodes, source, ok := decodeView(told); ok && nodes != nil {
			return nodes, source, nil
		}
	}
}
