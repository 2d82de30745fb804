package distkv

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// latencyBuckets is the number of a histogram's buckets; the last one has everything from about 67 s on.
const latencyBuckets = 28

// nodeStatsMax is the most nodes with counters; further ones have none.
const nodeStatsMax = 4096

// Stats is what a client has done so far, for people and for tests; each part is of one moment.
type Stats struct {
	Router   RouterStats   `json:"router"`
	Pool     PoolStats     `json:"pool"`
	Topology TopologyStats `json:"topology"`
	Retry    RetryStats    `json:"retry"`
	Reads    ReadStats     `json:"reads"`
	Watches  WatchStats    `json:"watches"`
	Shards   ShardMapStats `json:"shards"`
}

// NodeStats is what went to one node.
type NodeStats struct {
	// Tries are also those that were not sent, since the node had failed just now, but neither those of Freshest nor of Conflicts.
	Tries uint64 `json:"tries"`
	// Failures are tries that did not succeed, whatever the reason is: also a refusal that a program expects, as of IfNew where there
	// is an entry.
	Failures uint64 `json:"failures"`
	// Latency has the answered tries by time: bucket i those of 2^(i-1) to 2^i - 1 µs.
	Latency [latencyBuckets]uint64 `json:"latency"`
}

// Quantile is an upper bound of the time that this share of the answered tries took; 0 without any.
func (n NodeStats) Quantile(share float64) time.Duration {
	all := uint64(0)
	for _, count := range n.Latency {
		all += count
	}
	seen := uint64(0)
	for bucket, count := range n.Latency {
		if seen += count; seen > 0 && float64(seen) >= share*float64(all) {
			return time.Duration(1<<bucket) * time.Microsecond
		}
	}
	return 0
}

// RouterStats is where tries went.
type RouterStats struct {
	ToPreferred uint64 `json:"to_preferred"`
	ToOthers    uint64 `json:"to_others"`
	// Overrides of preferred nodes that are in force.
	Overrides int                  `json:"overrides"`
	Nodes     map[string]NodeStats `json:"nodes"`
	// Shards by their preferred node.
	Shards map[string]int `json:"shards"`
}

// PoolStats is about connections.
type PoolStats struct {
	Nodes              int    `json:"nodes"`
	Connections        int    `json:"connections"`
	OpenRequests       int    `json:"open_requests"`
	Opened             uint64 `json:"opened"`
	Failed             uint64 `json:"failed"`
	FailuresRemembered uint64 `json:"failures_remembered"`
	Lost               uint64 `json:"lost"`
	IdleClosed         uint64 `json:"idle_closed"`
	Probes             uint64 `json:"probes"`
	SilentClosed       uint64 `json:"silent_closed"`
}

// TopologyStats is about the cluster view.
type TopologyStats struct {
	Epoch    uint64 `json:"epoch"`
	Nodes    int    `json:"nodes"`
	Live     int    `json:"live"`
	Watching string `json:"watching"`
	Views    uint64 `json:"views"`
	Lost     uint64 `json:"lost"`
	// Moved counts shards whose preferred node moved, as listeners were told.
	Moved     uint64 `json:"moved"`
	SeedsOnly bool   `json:"seeds_only"`
}

// RetryStats is about calls and their tries.
type RetryStats struct {
	Calls   uint64 `json:"calls"`   // begun by the program
	Retries uint64 `json:"retries"` // tries after a call's first
	// Unavailable are tries that failed since the node could not do it now, and did not: also those that were not sent, since it could
	// not be reached, or had failed just now (Pool.FailureMemory).
	Unavailable uint64 `json:"unavailable"`
	Overload    uint64 `json:"overload"`     // tries that failed since the node had too much to do
	Aborted     uint64 `json:"aborted"`      // tries that a node gave up
	TimedOut    uint64 `json:"timed_out"`    // tries that took too long
	FateUnknown uint64 `json:"fate_unknown"` // tries that may have been carried out
	// Refused are tries that a node refused for good, also by a precondition.
	Refused       uint64 `json:"refused"`
	Deadlines     uint64 `json:"deadlines"`       // calls that ended since their time was up, or with the last try that there may be
	UnsafeToRetry uint64 `json:"unsafe_to_retry"` // calls that ended since another try could have done it twice
}

// ReadStats is about reads, and what this client wrote.
type ReadStats struct {
	StaleAnswers uint64 `json:"stale_answers"`
	StaleTaken   uint64 `json:"stale_taken"`
}

// WatchStats is about watches.
type WatchStats struct {
	Lost      uint64 `json:"lost"`
	Resumed   uint64 `json:"resumed"`
	Restarted uint64 `json:"restarted"`
	Repeats   uint64 `json:"repeats"`
}

// ShardMapStats is about the table of overrides of preferred nodes.
type ShardMapStats struct {
	Fetches  uint64 `json:"fetches"`
	Failures uint64 `json:"failures"`
	Rows     uint64 `json:"rows"`
}

// counters are those that many goroutines count.
type counters struct {
	toPreferred, toOthers, overrides                      atomic.Uint64
	calls, retries, deadlines, unsafeToRetry              atomic.Uint64
	failed                                                [classFinal + 1]atomic.Uint64
	staleAnswers, staleTaken                              atomic.Uint64
	watchLost, watchResumed, watchRestarted, watchRepeats atomic.Uint64
	shardFetches, shardFailures, shardRows                atomic.Uint64

	nodes sync.Map // name to *nodeCounters; as many as nodeStatsMax
	known atomic.Int32
}

type nodeCounters struct {
	tries, failures atomic.Uint64
	latency         [latencyBuckets]atomic.Uint64
}

// node is the counters of a node; those of further nodes than may be are not kept.
func (c *counters) node(name string) *nodeCounters {
	if found, isThere := c.nodes.Load(name); isThere {
		return found.(*nodeCounters)
	}
	made := &nodeCounters{}
	if c.known.Load() < nodeStatsMax {
		found, isThere := c.nodes.LoadOrStore(name, made)
		if !isThere {
			c.known.Add(1)
		}
		return found.(*nodeCounters)
	}
	return made
}

// note: a try was answered.
func (n *nodeCounters) note(took time.Duration) {
	bucket := bits.Len64(uint64(max(took, 0) / time.Microsecond))
	n.latency[min(bucket, latencyBuckets-1)].Add(1)
}

func (c *counters) fill(s *Stats) {
	s.Router.ToPreferred, s.Router.ToOthers = c.toPreferred.Load(), c.toOthers.Load()
	s.Router.Overrides = int(c.overrides.Load())
	s.Router.Nodes = map[string]NodeStats{}
	c.nodes.Range(func(name, found any) bool {
		counted := found.(*nodeCounters)
		told := NodeStats{Tries: counted.tries.Load(), Failures: counted.failures.Load()}
		for i := range counted.latency {
			told.Latency[i] = counted.latency[i].Load()
		}
		s.Router.Nodes[name.(string)] = told
		return true
	})
	s.Retry = RetryStats{
		Calls: c.calls.Load(), Retries: c.retries.Load(), Unavailable: c.failed[classUnavailable].Load(),
		Overload: c.failed[classOverload].Load() + c.failed[classBusy].Load(), Aborted: c.failed[classAborted].Load(),
		TimedOut:    c.failed[classTryDeadline].Load(),
		FateUnknown: c.failed[classFateUnknown].Load() + c.failed[classUnknownThere].Load(),
		Refused:     c.failed[classFinal].Load(), Deadlines: c.deadlines.Load(), UnsafeToRetry: c.unsafeToRetry.Load(),
	}
	s.Reads = ReadStats{c.staleAnswers.Load(), c.staleTaken.Load()}
	s.Watches = WatchStats{c.watchLost.Load(), c.watchResumed.Load(), c.watchRestarted.Load(), c.watchRepeats.Load()}
	s.Shards = ShardMapStats{c.shardFetches.Load(), c.shardFailures.Load(), c.shardRows.Load()}
}
