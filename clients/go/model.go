package distkv

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"distkv.example/client/internal/msgpack"
)

// Version is which version of an entry it is: comparable with ==, and opaque. The greater one wins, everywhere. The zero
// Version is none.
type Version struct {
	tock int64
	node string // the life of the node that made it, as nodes spell it
	tick int64  // -1: nodes do not tell it
}

// untold is the version of what came without one, or of nothing: IsZero is true, but it is not the zero Version. It is no precondition, and
// not the lack of one either.
var untold = Version{tock: -1}

// IsZero tells whether there is no version, or whether it was not told: an untold one is not the zero Version.
func (v Version) IsZero() bool { return v.node == "" }

// Compare is -1, 0 or +1: the greater one wins.
func (v Version) Compare(other Version) int {
	name, life := v.split()
	otherName, otherLife := other.split()
	return cmp.Or(cmp.Compare(v.tock, other.tock), cmp.Compare(name, otherName), cmp.Compare(life, otherLife),
		cmp.Compare(max(v.tick, 0), max(other.tick, 0)))
}

func (v Version) split() (string, int64) {
	if at := strings.LastIndexByte(v.node, '~'); at >= 0 {
		if life, err := strconv.ParseInt(v.node[at+1:], 16, 64); err == nil {
			return v.node[:at], life
		}
	}
	return v.node, -1
}

// Term and Index are its place in the total order: the network's tock, and the node's own counter.
func (v Version) Term() int64 { return v.tock }

// Index is the node's own counter of its changes.
func (v Version) Index() int64 { return max(v.tick, 0) }

func (v Version) event() string {
	if v.tick < 0 {
		return v.node + ":-"
	}
	return v.node + ":" + strconv.FormatInt(v.tick, 10)
}

// String is what [ParseVersion] reads.
func (v Version) String() string {
	if v.IsZero() {
		return ""
	}
	return strconv.FormatInt(v.tock, 10) + "@" + v.event()
}

// ParseVersion reads what String gives. What no node writes is refused: the error is an [ErrUsage].
func ParseVersion(text string) (Version, error) {
	tock, event, _ := strings.Cut(text, "@")
	at := strings.LastIndexByte(event, ':')
	number, isTock := readCounter(tock)
	if at <= 0 || !isTock || !isLife(event[:at]) {
		return Version{}, usage(fmt.Sprintf("%q is no version", text))
	}
	tick := int64(-1)
	if told := event[at+1:]; told != "-" {
		var isTick bool
		// Ticks begin with 1.
		if tick, isTick = readCounter(told); !isTick || tick == 0 {
			return Version{}, usage(fmt.Sprintf("%q is no version", text))
		}
	}
	return Version{number, event[:at], tick}, nil
}

// readCounter reads a tock or a tick in its only spelling.
func readCounter(text string) (int64, bool) {
	number, err := strconv.ParseInt(text, 10, 64)
	return number, err == nil && number >= 0 && number < tockEnd && strconv.FormatInt(number, 10) == text
}

// nodeNameBytes is the longest name of a node.
const nodeNameBytes = 64

// isLife tells whether a node could be spelled like this: its name, and the number of its life in hexadecimal digits. Servers of
// the original have no lives, and names of all kinds.
func isLife(text string) bool {
	name, digits, hasLife := strings.Cut(text, "~")
	if !utf8.ValidString(text) || name == "" || strings.ContainsFunc(text, unicode.IsControl) {
		return false
	}
	if !hasLife {
		return true
	}
	life, err := strconv.ParseUint(digits, 16, 64)
	return err == nil && strconv.FormatUint(life, 16) == digits && len(name) <= nodeNameBytes && !strings.ContainsFunc(name, unicode.IsSpace)
}

// appendChain adds a chain of only this event, as a precondition.
func (v Version) appendChain(b []byte) []byte {
	b = msgpack.AppendMapHead(b, 2)
	b = msgpack.AppendString(msgpack.AppendString(b, "node"), v.node)
	b = msgpack.AppendString(b, "tick")
	if v.tick < 0 {
		return msgpack.AppendNil(b)
	}
	return msgpack.AppendInt(b, v.tick)
}

// Entry is an entry as a node has it.
type Entry struct {
	// Value is its value; none where it was deleted.
	Value Value
	// Deleted: there was a value.
	Deleted bool
	// Version is for IfVersion; untold where there is no entry: IsZero is true, but it is not the zero Version.
	Version Version
	// Node is the node that returned it.
	Node string

	tock int64
}

// TreeEntry is one entry of a tree.
type TreeEntry struct {
	Path  Path
	Value Value
	// Version is untold unless the options ask for it: IsZero is true, but it is not the zero Version, and IfVersion refuses
	// it.
	Version Version
}

// Repeated is whether a write was made by an earlier try than the one that was answered.
type Repeated uint8

// What Repeated may be.
const (
	// No: it was made now, and by no earlier try.
	No Repeated = iota
	// Yes: an earlier try had made it; nothing was changed now.
	Yes
	// Maybe: it was made now, by a node that had not heard of it; an earlier try elsewhere may have made it, too.
	Maybe
)

func (r Repeated) String() string { return [...]string{"no", "yes", "maybe"}[min(r, 2)] }

// Written is what a write did.
type Written struct {
	// Changed is false if the value was the same, and for a deletion of what did not exist.
	Changed bool
	// Version is the entry's from then on; untold if there was nothing to delete: IsZero is true, but it is not the zero
	// Version, and IfVersion refuses it.
	Version Version
	// Previous is the value before; none if there was none, or with a precondition.
	Previous Value
	Repeated Repeated
	// Node is the node that answered.
	Node     string
	Attempts int

	tock int64
}

// Conflict is two changes of an entry, neither of which knew of the other.
type Conflict struct {
	Path          Path
	Winner, Loser Entry
	// Node is the first node that reported it.
	Node string
}

// key is by which it is known again: the newest events of both versions.
func (c Conflict) key() string {
	return c.Path.canonical + "\x00" + c.Winner.Version.event() + "\x00" + c.Loser.Version.event()
}

// message is one message of a node: a map whose keys are texts.
type message []byte

func (m message) get(name string) []byte { return msgpack.Field(m, name) }

func (m message) text(name string) string {
	text, _ := msgpack.Text(m.get(name))
	return text
}

// integer is a number in it, or what is given where there is none.
func (m message) integer(name string, without int64) int64 {
	if number, ok := msgpack.Integer(m.get(name)); ok {
		return number
	}
	return without
}

func (m message) tock() int64 { return max(m.integer("tock", 0), 0) }

// check returns the error that a message is.
func (m message) check() *tryError {
	if told := m.get("error"); told != nil {
		return m.serverError(told)
	}
	return nil
}

func (m message) serverError(told []byte) *tryError {
	text, ok := msgpack.Text(told)
	if !ok {
		text = "an error that is not told as text"
	}
	return &tryError{kind: tryServer, text: text, code: m.text("code"), made: msgpack.IsTrue(m.get("made"))}
}

// version is the version in a message; untold without a chain.
func (m message) version() (Version, *tryError) {
	chain := m.get("chain")
	if chain == nil || msgpack.IsNil(chain) {
		return untold, nil
	}
	node, ok := msgpack.Text(msgpack.Field(chain, "node"))
	if !ok || node == "" {
		return Version{}, &tryError{kind: tryProtocol, text: "a chain is none"}
	}
	return Version{m.tock(), node, message(chain).integer("tick", -1)}, nil
}

func (m message) entry(node string) (Entry, *tryError) {
	version, err := m.version()
	value := m.get("value")
	return Entry{Value(value), value == nil, version, node, m.tock()}, err
}

func (m message) written(node string, attempts int, maybeTwice bool) (Written, *tryError) {
	changed := !isFalse(m.get("changed"))
	repeated := No
	if msgpack.IsTrue(m.get("repeated")) {
		repeated = Yes
	} else if maybeTwice && changed && planted != plantNeverMaybe {
		repeated = Maybe
	}
	version, err := m.version()
	return Written{changed, version, Value(m.get("prev")), repeated, node, attempts, m.tock()}, err
}

func isFalse(b []byte) bool { return len(b) == 1 && b[0] == 0xc2 }
