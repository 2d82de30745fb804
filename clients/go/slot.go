package distkv

import (
	"slices"
	"strconv"
	"time"
)

// What the pool knows of one node: its connections, how the last attempt failed, and whether it lets this client in.

// shutRecent: for so long what a node said of this client tells what it means by making it wait.
const shutRecent = time.Minute

// tooManyStreams is the code of what ends because the client has no room for another stream.
const tooManyStreams = "too_many_streams"

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

// best is the connection to the node of this name ("": to any) that has the least to do of those with room, if one has.
func (s *slot) best(name string, what use) (best *conn, hasRoom bool) {
	for _, c := range s.conns {
		if name != "" && c.name != name {
			continue
		}
		isRoomy := c.hasRoom(what)
		if best == nil || (isRoomy && !hasRoom) || (isRoomy == hasRoom && c.load.Load() < best.load.Load()) {
			best, hasRoom = c, isRoomy
		}
	}
	return best, hasRoom
}

// full is why there is no room for another stream, where there may be this many connections; nil: for calls, there is none either.
func (s *slot) full(where address, most int) *tryError {
	streams := 0
	for _, c := range s.conns {
		open := int(c.openStreams.Load())
		if open < streamsMax {
			return nil
		}
		streams += open
	}
	if len(s.conns) < most && s.failure != nil {
		return s.failure
	}
	through := "the connection"
	if len(s.conns) > 1 {
		through = "the " + strconv.Itoa(len(s.conns)) + " connections"
	}
	err := tryErrorf(tryFull, "this client has no room for another stream: %d watches, monitors and trees are open on %s to %s, at most %d "+
		"on each; Pool.ConnectionsPerNode is %d, and may be up to %d", streams, through, where, streamsMax, most, ConnectionsPerNodeMax)
	err.code = tooManyStreams
	return err
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
