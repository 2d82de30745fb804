package distkv

import "iter"

const (
	// deletionsMax is how many deletions a watch remembers, so that nothing older comes back after them.
	deletionsMax = 8192
	// rememberedBytes is what an entry costs beside its path, about.
	rememberedBytes = 160
)

// look is how an arriving version compares with the delivered one.
type look uint8

const (
	lookNew      look = iota
	lookKnown         // it was delivered, or it is the past of what this feed's node was seen to hold
	lookOlder         // something newer was delivered, and this feed's node was not seen to hold it
	lookDoubtful      // whether it is older than what was delivered is not known any more
)

// toldBy is how a version was told.
type toldBy uint8

const (
	byFeed   toldBy = iota // nothing older comes behind it in this feed
	byAnswer               // to a question: what still waits in the feed may be older
)

// noFeed is of what came by an answer.
const noFeed = -1

// delivered is what was delivered last for a path.
type delivered struct {
	version   Version
	hash      uint64 // of the value: an event that is used twice is recognised as different
	isDeleted bool
	seen      int           // the last feed in which the path was seen
	held      int           // the last feed whose node was seen to hold this version, or a later one
	came      int           // the feed in which it came, or noFeed
	gone      *answeredGone // a node answered that nothing is there any more: it is deleted, and nobody told by which version
}

// answeredGone is a node's answer that it has nothing of a path any more.
type answeredGone struct {
	tock       int64 // the node's own then: what it had before has none that is greater
	feed       int   // that node's; of what comes in a later one, this says nothing
	isDeletion bool  // the version is that of a deletion, which has come since
}

// countsIn tells whether what comes in this feed can be compared with it.
func (d *delivered) countsIn(feed int) bool {
	return d.gone == nil || d.gone.feed == feed || d.gone.isDeletion
}

// isDeletion tells whether this is the version that has deleted it, as far as that is known.
func (d *delivered) isDeletion(version Version) bool {
	return d.isDeleted && (d.gone == nil || d.gone.isDeletion) && d.version == version
}

// deletesUntil: what it has deleted has no greater tock.
func (d *delivered) deletesUntil() int64 {
	if d.gone != nil {
		return max(d.gone.tock, d.version.tock)
	}
	return d.version.tock
}

// look compares a version that comes in this feed.
func (d *delivered) look(entry Entry, feed int) look {
	d.seen = feed
	if d.gone != nil && d.gone.feed == feed {
		return d.lookBehind(entry)
	}
	switch order := entry.Version.Compare(d.version); {
	case order > 0:
		return lookNew
	case order < 0 && d.held == feed:
		return lookKnown // No feed is ahead of its node.
	case order < 0:
		return lookOlder
	case d.isDeleted != entry.Deleted || d.hash != hashOf(entry):
		return lookNew
	}
	d.held = feed
	return lookKnown
}

// lookBehind compares a version that comes behind the answer that nothing is there any more.
func (d *delivered) lookBehind(entry Entry) look {
	switch {
	case entry.Version.Compare(d.version) <= 0:
		return lookKnown
	case entry.Deleted:
		// That it is deleted was told already. There may be a later deletion, so the answer counts on.
		d.version, d.gone.isDeletion = entry.Version, true
		return lookKnown
	case entry.Version.tock > d.gone.tock:
		return lookNew // It was created again: the node did not have it before its answer.
	}
	return lookDoubtful
}

// memory is what a watch has delivered, so that it can continue at another node: the last version of each path, bounded; it
// says when it cannot tell any more. Pure.
//
// A feed is the stream of one node. What that node answers to a question is ahead of what still waits in its feed: so what
// comes there may be the past of what was delivered.
type memory struct {
	pathsMax, bytesMax int

	delivered      map[Path]*delivered // nil: it does not know any more
	bytes          int
	deletions      []deletion // oldest first; those that were written again since are skipped
	forgotten      int64      // the greatest tock of a deletion that was forgotten
	forgottenAhead int64      // the same, of those only that did not come in this feed: no others are ahead of it
	feed           int
	began          int // the feed in which the first came of what is remembered, or was until a bound was exceeded
}

// deletion is a path, and until which tock something of it is deleted.
type deletion struct {
	path  Path
	until int64
}

func newMemory(pathsMax, bytesMax int) *memory {
	m := &memory{pathsMax: pathsMax, bytesMax: bytesMax}
	m.clear()
	return m
}

// clear forgets everything; everything is new.
func (m *memory) clear() {
	m.delivered = map[Path]*delivered{}
	m.bytes, m.deletions, m.forgotten, m.forgottenAhead = 0, nil, 0, 0
}

// isWhole tells whether it knows what was delivered.
func (m *memory) isWhole() bool { return m.delivered != nil }

// hasLostEarlier tells whether a bound was exceeded when it knew something of an earlier feed: if the state of this one is still
// coming, what of that is gone cannot be found out any more.
func (m *memory) hasLostEarlier() bool { return !m.isWhole() && m.began != m.feed }

// beginFeed: another node begins to send its state.
func (m *memory) beginFeed() {
	m.feed++
	m.forgottenAhead = m.forgotten
}

// look compares an arriving version, and notes that the path was seen in this feed. isResuming: it is of the state with which a
// watch continues, which comes in no order.
func (m *memory) look(path Path, entry Entry, isResuming bool) look {
	if planted == plantAgain || m.delivered == nil || entry.Version.IsZero() {
		return lookNew
	}
	known := m.delivered[path]
	if known == nil || !known.countsIn(m.feed) {
		mayBeOlder := !entry.Deleted && entry.Version.tock <= m.forgottenAhead
		if isResuming {
			mayBeOlder = entry.Version.tock <= m.forgotten
		}
		if mayBeOlder {
			return lookDoubtful
		}
		return lookNew
	}
	before := known.deletesUntil()
	found := known.look(entry, m.feed)
	if after := known.deletesUntil(); after != before {
		m.queueDeletion(path, after)
	}
	return found
}

// onDelivered remembers a version that is delivered now.
func (m *memory) onDelivered(path Path, entry Entry, by toldBy) {
	if entry.Version.IsZero() {
		return
	}
	came := m.feed
	if by == byAnswer {
		came = noFeed
	}
	m.remember(path, &delivered{version: entry.Version, hash: hashOf(entry), isDeleted: entry.Deleted, seen: m.feed, held: m.feed,
		came: came})
}

// onHeld: this feed's node has answered that it holds the version that was delivered.
func (m *memory) onHeld(path Path) {
	if known := m.delivered[path]; known != nil {
		known.held = m.feed
	}
}

// onGone: this feed's node, asked about this version, has answered that nothing is there any more; the tock is its own. False:
// nobody need be told, because a deletion was delivered already.
func (m *memory) onGone(path Path, version Version, tock int64) bool {
	known := m.delivered[path]
	isDeletion := known != nil && known.isDeletion(version)
	isNews := known == nil || !known.isDeleted
	m.remember(path, &delivered{version: version, isDeleted: true, seen: m.feed, held: m.feed, came: noFeed,
		gone: &answeredGone{tock, m.feed, isDeletion}})
	return isNews
}

// notSeen is the paths whose values were delivered and that were not seen in this feed.
func (m *memory) notSeen() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for path, known := range m.delivered {
			if known.seen != m.feed && !known.isDeleted && !yield(path) {
				return
			}
		}
	}
}

// version is the one that was delivered last; zero: none.
func (m *memory) version(path Path) Version {
	if known := m.delivered[path]; known != nil {
		return known.version
	}
	return Version{}
}

func (m *memory) remember(path Path, now *delivered) {
	if m.delivered == nil {
		return
	}
	if len(m.delivered) == 0 {
		m.began = m.feed
	}
	if m.delivered[path] == nil {
		m.bytes += len(path.canonical) + rememberedBytes
	}
	m.delivered[path] = now
	if now.isDeleted {
		m.queueDeletion(path, now.deletesUntil())
	}
	for m.isFull() && len(m.deletions) > 0 {
		m.forgetDeletion()
	}
	if m.isFull() {
		m.clear()
		m.delivered = nil
	}
}

func (m *memory) isFull() bool { return len(m.delivered) > m.pathsMax || m.bytes > m.bytesMax }

func (m *memory) queueDeletion(path Path, until int64) {
	m.deletions = append(m.deletions, deletion{path, until})
	for len(m.deletions) > min(deletionsMax, m.pathsMax) {
		m.forgetDeletion()
	}
}

func (m *memory) forgetDeletion() {
	oldest := m.deletions[0]
	m.deletions = m.deletions[1:]
	known := m.delivered[oldest.path]
	if known == nil || !known.isDeleted || known.deletesUntil() != oldest.until {
		return
	}
	m.forgotten = max(m.forgotten, oldest.until)
	if known.came != m.feed {
		m.forgottenAhead = max(m.forgottenAhead, oldest.until)
	}
	delete(m.delivered, oldest.path)
	m.bytes -= len(oldest.path.canonical) + rememberedBytes
}

// hashOf is of the value; 0 without one.
func hashOf(entry Entry) uint64 {
	if entry.Deleted {
		return 0
	}
	return hashKey(entry.Value)
}
