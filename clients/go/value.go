package distkv

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"distkv.example/client/internal/msgpack"
)

// Limits of values and requests.
const (
	// ValueBytesMax is the longest value that nodes take.
	ValueBytesMax = 4 << 20
	// RequestBytesMax is the longest request that is sent: two of the longest values, a path, and the rest.
	RequestBytesMax = 2*ValueBytesMax + 4096 + 4096
	// valueDepthMax is how many levels of arrays and maps a value of a program may have; nodes take as many.
	valueDepthMax = 64
)

// Value is a value as MessagePack, byte for byte as the node has it; none at all is nil, of which nothing can be read.
// Put takes one as it is.
type Value []byte

// Nil is the value nil, for IfValue.
var Nil = Value{0xc0}

// As reads a value as a type of yours: structs (with the tags `msgpack:"name,omitempty"`), maps, slices, numbers, texts,
// byte strings, pointers (nil where the value is nil), time.Time, [Path], and any; a text also as a type with an UnmarshalText that is
// no text itself. Fields that a struct does not know are left out. A number that is read as a float is the nearest one. The error is an [ErrBadValue]: for a number beyond the
// type's range, say, or for a map two of whose keys are one in the type, as 1 and 1.0 are as float64.
func As[T any](v Value) (T, error) {
	var found T
	err := v.Decode(&found)
	return found, err
}

// Encode makes a value of what As reads. Of a struct's fields with one name the outer one is stored, as in encoding/json. What would
// be lost is refused instead: also a map two of whose keys are stored as one. A nil is nil, whatever its type is: a pointer, a map, a
// slice, also of bytes. The error is an [ErrBadValue]: for a Value without bytes, say, or for more than 64 levels of arrays and maps,
// of which pointers and interfaces are none.
//
// A struct, or an array of bytes, that has a MarshalText, or whose pointer has one, is stored as that text, also as a map's key:
// [net/netip.Addr], say. If it has no UnmarshalText, it cannot be read back as that type, whatever fields it has. All other types are
// stored as what they are, whatever methods they have: a type Level int as a number, [net.IP] as bytes. [time.Time], [math/big.Int] and
// [Path] have forms of their own.
func Encode(v any) (Value, error) {
	b, err := appendValue(nil, v)
	return Value(b), err
}

// Decode reads it into what the pointer points to. The error is an [ErrBadValue].
func (v Value) Decode(into any) error { return decodeInto(v, into) }

// Any is the value as Go's own types: nil, bool, int64, uint64 (beyond int64), float64, string, []byte, []any,
// map[string]any, [Map] where a key is no text, or comes twice, *big.Int, [Path], time.Time, [Ext]: also for a time that is
// more than 292 billion years away, for whose year time.Time has no room.
func (v Value) Any() (any, error) { return decodeAny(v) }

// String is for people.
func (v Value) String() string {
	if v == nil {
		return "(none)"
	}
	found, err := v.Any()
	if err != nil {
		return fmt.Sprintf("(bad: %x)", []byte(v))
	}
	return fmt.Sprint(found)
}

// Map is a map as pairs. Read as one, they come as they are stored. [Value.Any] makes one where a key is no text, or comes twice;
// texts that are stored before the first such key come sorted there.
type Map []Pair

// Pair is a key and its value.
type Pair struct{ Key, Value any }

// Ext is an extension that this client does not know.
type Ext struct {
	Type int8
	Data []byte
}

const extTime = -1

func decodeError(err error) error { return badValue("the value is no MessagePack: " + err.Error()) }

func tooDeep() error { return badValue("the value is nested too deeply") }

// decodeAny reads one whole value.
func decodeAny(b []byte) (any, error) {
	if b == nil {
		return nil, badValue("there is no value")
	}
	d := decoder{b: b}
	found, err := d.any(0)
	if err == nil && d.at != len(b) {
		err = msgpack.ErrTrailer
	}
	if err != nil {
		return nil, decodeError(err)
	}
	return found, nil
}

// decoder reads values one after the other.
type decoder struct {
	b  []byte
	at int
}

// head reads the next value's head, and for texts, byte strings and extensions its bytes.
func (d *decoder) head() (msgpack.Head, []byte, error) {
	head, err := msgpack.ReadHead(d.b[d.at:])
	if err != nil {
		return head, nil, err
	}
	d.at += head.Size
	if head.Kind == msgpack.String || head.Kind == msgpack.Binary || head.Kind == msgpack.Ext {
		if head.Len > len(d.b)-d.at {
			return head, nil, msgpack.ErrShort
		}
		data := d.b[d.at : d.at+head.Len]
		d.at += head.Len
		return head, data, nil
	}
	if head.Kind == msgpack.Array || head.Kind == msgpack.Map {
		// Each item has a byte at least: what is only announced allocates nothing.
		if head.Len > len(d.b)-d.at {
			return head, nil, msgpack.ErrShort
		}
	}
	return head, nil, nil
}

func (d *decoder) any(depth int) (any, error) {
	if depth > msgpack.DepthMax {
		return nil, msgpack.ErrDeep
	}
	head, data, err := d.head()
	if err != nil {
		return nil, err
	}
	switch head.Kind {
	case msgpack.Nil:
		return nil, nil
	case msgpack.Array:
		found := make([]any, 0, min(head.Len, 4096))
		for range head.Len {
			item, err := d.any(depth + 1)
			if err != nil {
				return nil, err
			}
			found = append(found, item)
		}
		return found, nil
	case msgpack.Map:
		return d.anyMap(head.Len, depth)
	case msgpack.Ext:
		return extension(head.Type, data), nil
	}
	return scalar(head, data), nil
}

func scalar(head msgpack.Head, data []byte) any {
	switch head.Kind {
	case msgpack.Bool:
		return head.Bits == 1
	case msgpack.Int:
		return int64(head.Bits)
	case msgpack.Uint:
		return head.Bits
	case msgpack.Float:
		return floatOf(head)
	case msgpack.String:
		return string(data)
	case msgpack.Binary:
		return append([]byte{}, data...)
	}
	return nil
}

func (d *decoder) anyMap(count, depth int) (any, error) {
	texts := make(map[string]any, min(count, 4096))
	var pairs Map
	for i := range count {
		pair, err := d.pair(depth)
		if err != nil {
			return nil, err
		}
		text, isText := pair.Key.(string)
		_, isTwice := texts[text]
		if pairs == nil && (!isText || isTwice) {
			pairs = make(Map, 0, min(count, 4096))
			if i > 0 {
				// What came before was put into the other form, which has lost the order.
				pairs = sortedPairs(texts)
			}
		}
		if pairs != nil {
			pairs = append(pairs, pair)
		} else {
			texts[text] = pair.Value
		}
	}
	if pairs != nil {
		return pairs, nil
	}
	return texts, nil
}

// pair is a key and its value in a map at that depth.
func (d *decoder) pair(depth int) (Pair, error) {
	key, err := d.any(depth + 1)
	if err != nil {
		return Pair{}, err
	}
	value, err := d.any(depth + 1)
	return Pair{key, value}, err
}

// pairs is a map in its own order.
func (d *decoder) pairs(count, depth int) (Map, error) {
	found := make(Map, 0, min(count, 4096))
	for range count {
		pair, err := d.pair(depth)
		if err != nil {
			return nil, err
		}
		found = append(found, pair)
	}
	return found, nil
}

func extension(kind int8, data []byte) any {
	switch kind {
	case extBigInt:
		return new(big.Int).SetBytes(data)
	case extPath:
		if path, err := pathFromBytes(data); err == nil {
			return path
		}
	case extTime:
		if t, ok := timeOf(data); ok {
			return t
		}
	}
	return Ext{kind, append([]byte{}, data...)}
}

// The first and the last second that a [time.Time] has a year for.
const (
	timeMin = -9223372028715321600
	timeMax = math.MaxInt64 - 62135596800
)

// timeOf reads MessagePack's own form of a time. False: it is none, or of a year that [time.Time] would tell wrong.
func timeOf(data []byte) (time.Time, bool) {
	number := func(b []byte) (n uint64) {
		for _, c := range b {
			n = n<<8 | uint64(c)
		}
		return n
	}
	var seconds, nanos int64
	switch len(data) {
	case 4:
		seconds = int64(number(data))
	case 8:
		all := number(data)
		seconds, nanos = int64(all&(1<<34-1)), int64(all>>34)
	case 12:
		seconds, nanos = int64(number(data[4:])), int64(number(data[:4]))
	default:
		return time.Time{}, false
	}
	if nanos >= 1e9 || seconds < timeMin || seconds > timeMax {
		return time.Time{}, false
	}
	return time.Unix(seconds, nanos).UTC(), true
}

func appendTime(b []byte, t time.Time) []byte {
	seconds, nanos := uint64(t.Unix()), uint64(t.Nanosecond())
	if seconds>>34 == 0 {
		all := nanos<<34 | seconds
		if nanos == 0 && seconds>>32 == 0 {
			return msgpack.AppendExt(b, extTime, []byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)})
		}
		return msgpack.AppendExt(b, extTime, eight(nil, all))
	}
	return msgpack.AppendExt(b, extTime, eight([]byte{byte(nanos >> 24), byte(nanos >> 16), byte(nanos >> 8), byte(nanos)}, seconds))
}

func eight(b []byte, n uint64) []byte {
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(n>>shift))
	}
	return b
}
