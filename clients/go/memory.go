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
	lookNew look = iota
	lookKnown
	lookOlder
	lookDoubtful // whether it was delivered is not known any more
)

// delivered is what was delivered last for a path.
type delivered struct {
	version   Version
	hash      uint64 // of the value: an event that is used twice is recognised as different
	isDeleted bool
	feed      int // the last one in which this was seen
}

// memory is what a watch has delivered, so that it can continue at another node: the last version of each path, bounded; it
// says when it cannot tell any more. Pure.
type memory struct {
	pathsMax, bytesMax int

	delivered map[Path]*delivered // nil: it does not know any more
	bytes     int
	deletions []deletion // oldest first
	forgotten int64      // the greatest tock of a deletion that was forgotten
	feed      int
}

type deletion struct {
	path Path
	tock int64
}

func newMemory(pathsMax, bytesMax int) *memory {
	m := &memory{pathsMax: pathsMax, bytesMax: bytesMax}
	m.clear()
	return m
}

// clear forgets everything; everything is new.
func (m *memory) clear() {
	m.delivered = map[Path]*delivered{}
	m.bytes, m.deletions, m.forgotten = 0, nil, 0
}

// isWhole tells whether it knows what was delivered.
func (m *memory) isWhole() bool { return m.delivered != nil }

// beginFeed: another node begins to send its state.
func (m *memory) beginFeed() { m.feed++ }

// look compares an arriving version, and notes that the path was seen in this feed.
func (m *memory) look(path Path, entry Entry, isResuming bool) look {
	if planted == plantAgain || m.delivered == nil || entry.Version.IsZero() {
		return lookNew
	}
	known := m.delivered[path]
	if known == nil {
		if isResuming && entry.Version.tock <= m.forgotten {
			return lookDoubtful
		}
		return lookNew
	}
	known.feed = m.feed
	if known.version == entry.Version {
		if known.isDeleted == entry.Deleted && known.hash == hashOf(entry) {
			return lookKnown
		}
		return lookNew
	}
	if entry.Version.Compare(known.version) < 0 {
		return lookOlder
	}
	return lookNew
}

// onDelivered remembers a version that is delivered now.
func (m *memory) onDelivered(path Path, entry Entry) {
	if entry.Version.IsZero() || m.delivered == nil {
		return
	}
	known := m.delivered[path]
	if known == nil {
		m.bytes += len(path.canonical) + rememberedBytes
		known = &delivered{}
		m.delivered[path] = known
	}
	*known = delivered{entry.Version, hashOf(entry), entry.Deleted, m.feed}
	if entry.Deleted {
		m.deletions = append(m.deletions, deletion{path, entry.Version.tock})
		for len(m.deletions) > min(deletionsMax, m.pathsMax) {
			m.forgetDeletion()
		}
	}
	for m.isFull() && len(m.deletions) > 0 {
		m.forgetDeletion()
	}
	if m.isFull() {
		m.clear()
		m.delivered = nil
	}
}

// onGone: it is gone, and it is unknown since which version.
func (m *memory) onGone(path Path) {
	if m.delivered[path] != nil {
		delete(m.delivered, path)
		m.bytes -= len(path.canonical) + rememberedBytes
	}
}

// notSeen is the paths whose values were delivered and that were not seen in this feed.
func (m *memory) notSeen() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		for path, known := range m.delivered {
			if known.feed != m.feed && !known.isDeleted && !yield(path) {
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

func (m *memory) isFull() bool { return len(m.delivered) > m.pathsMax || m.bytes > m.bytesMax }

func (m *memory) forgetDeletion() {
	oldest := m.deletions[0]
	m.deletions = m.deletions[1:]
	if known := m.delivered[oldest.path]; known != nil && known.isDeleted && known.version.tock == oldest.tock {
		m.forgotten = max(m.forgotten, oldest.tock)
		m.onGone(oldest.path)
	}
}

// hashOf is of the value; 0 without one.
func hashOf(entry Entry) uint64 {
	if entry.Deleted {
		return 0
	}
	return hashKey(entry.Value)
}
