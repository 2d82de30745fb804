package distkv

import (
	"slices"
	"time"
)

// What the pool knows of one node: its connections, how the last attempt failed, and whether it lets this client in.

// shutRecent: for so long what a node said of this client tells what it means by making it wait.
const shutRecent = time.Minute

// slot is what the pool has of one node.
type slot struct {
	conns       []*conn
	attempt     *attempt
	failure     *tryError
	failedUntil instant
	failures    int
	// shut is how the node showed last that it does not let this client in: it refused it, or closed a connection of it with an
	// access error. The latter is no refusal yet: its user may have been created anew. Nil: it has let it in since.
	shut   *tryError
	shutAt instant
}

// attempt is one that goes on.
type attempt struct {
	done chan struct{}
	conn *conn
	err  *tryError
}

// noteFailure remembers it for a while that grows.
func (s *slot) noteFailure(err *tryError, config *Config) {
	switch {
	// Else nobody knows whose words these are, or they are the client's own.
	case err.kind == tryNoAccess && !err.notMet && err.code != plaintextLogin:
		s.shut, s.shutAt = err, now()
	// What it said of another secret counts no more.
	case err.waits && s.shut != nil && now()-s.shutAt < shutRecent && s.shutAt >= config.own.changedAt():
		err = s.stillRefused(err)
	}
	memory := config.Pool.FailureMemory << min(s.failures, doublingsMax)
	s.failure = err
	s.failedUntil = now() + min(memory, config.Pool.FailureMemoryMax)
	s.failures++
}

// stillRefused: a node looks at no secret of whom it was asked for too often. What it said just before that stands.
func (s *slot) stillRefused(waits *tryError) *tryError {
	said := s.shut.text
	if s.shut.kind != tryNoAccess {
		said = "not let in any more: " + said
	}
	return tryErrorf(tryNoAccess, "%s; since then: %s", said, waits.text)
}

// otherThan is the name of the node that is there instead of this one, while its connection lasts; "": none.
func (s *slot) otherThan(name string) string {
	other := ""
	if name == "" {
		return other
	}
	for _, c := range s.conns {
		switch {
		case c.ended.Load() != nil:
		case c.name == name:
			return ""
		default:
			other = c.name
		}
	}
	return other
}

func (s *slot) clearFailure() { s.failure, s.failedUntil, s.failures = nil, 0, 0 }

// letIn takes a new connection. What the node said before does not count any more.
func (s *slot) letIn(c *conn) (lost int) {
	lost = s.dropEnded() // First: their last words came before.
	s.clearFailure()
	s.shut = nil
	s.conns = append(s.conns, c)
	return lost
}

// dropEnded drops connections that have ended, and keeps in mind what the node said then; it returns how many.
func (s *slot) dropEnded() (lost int) {
	s.conns = slices.DeleteFunc(s.conns, func(c *conn) bool {
		word := c.ended.Load()
		if word == nil {
			return false
		}
		lost++
		if isAccessCode(word) {
			s.shut, s.shutAt = word, now()
		}
		return true
	})
	return lost
}
