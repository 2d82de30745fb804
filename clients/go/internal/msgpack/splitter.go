package msgpack

import "errors"

// MessageBytesMax is the longest message that is taken from a node.
const MessageBytesMax = 64 << 20

// ErrLong is the error of a message that is longer than that.
var ErrLong = errors.New("a message is longer than 64 MiB")

const roomMin = 32 << 10

// Splitter cuts a stream of bytes into messages. Room is for no more than has come: a length that is only
// announced allocates nothing.
type Splitter struct {
	buf     []byte
	start   int // of the message that is not whole yet
	at      int // up to where it was scanned
	whole   bool
	scanner Scanner
}

// Room returns where the next bytes are to be read to; at least 1.
func (s *Splitter) Room() []byte {
	if s.start == len(s.buf) {
		// Everything was taken.
		s.at -= s.start
		s.start = 0
		s.buf = s.buf[:0]
		if cap(s.buf) > 16*roomMin {
			// A long message has gone: its room goes, too.
			s.buf = nil
		}
	}
	if cap(s.buf)-len(s.buf) < roomMin/2 {
		if s.start > cap(s.buf)/2 {
			s.at -= s.start
			s.buf = s.buf[:copy(s.buf, s.buf[s.start:])]
			s.start = 0
		}
		if cap(s.buf)-len(s.buf) < roomMin/2 {
			grown := make([]byte, len(s.buf)-s.start, max(2*roomMin, 2*(len(s.buf)-s.start)))
			copy(grown, s.buf[s.start:])
			s.at -= s.start
			s.start = 0
			s.buf = grown
		}
	}
	return s.buf[len(s.buf):cap(s.buf)]
}

// Read says how many bytes were read into the room.
func (s *Splitter) Read(n int) { s.buf = s.buf[:len(s.buf)+n] }

// HasPart tells whether a part of a message has come whose rest is still to come, once Next has returned all whole ones.
func (s *Splitter) HasPart() bool { return s.start < len(s.buf) }

// Next returns the next whole message, valid until Room is called; nil if there is none yet. After an error the
// splitter is of no more use.
func (s *Splitter) Next() ([]byte, error) {
	if !s.whole {
		at, whole, err := s.scanner.Scan(s.buf, s.at)
		s.at, s.whole = at, whole
		if err != nil {
			return nil, err
		}
		if at-s.start > MessageBytesMax {
			return nil, ErrLong
		}
	}
	if !s.whole || s.at > len(s.buf) {
		// Its last item may reach beyond what has come: then nothing is left to scan.
		return nil, nil
	}
	message := s.buf[s.start:s.at:s.at]
	s.start = s.at
	s.whole = false
	return message, nil
}
