package msgpack

import (
	"encoding/binary"
	"errors"
	"math"
)

// DepthMax is how many levels a value may have; values of nodes have 64 at most.
const DepthMax = 128

// What may be wrong with bytes.
var (
	ErrShort   = errors.New("the value is cut off")
	ErrInvalid = errors.New("a byte that MessagePack does not know")
	ErrDeep    = errors.New("it is nested too deeply")
	ErrTrailer = errors.New("there is something behind the value")
	ErrType    = errors.New("it is of another type")
)

// lenMax is the greatest length that a head tells: more than any message has, and no trouble for integers of 32 bits.
const lenMax = 1 << 30

func length(v uint64) int { return int(min(v, lenMax)) }

// Kind is what a value is.
type Kind uint8

// The kinds of values.
const (
	Nil Kind = iota
	Bool
	Int  // fits int64
	Uint // does not fit int64
	Float
	String
	Binary
	Array
	Map
	Ext
)

// Head is what the first bytes of a value say.
type Head struct {
	Kind Kind
	// Size is how many bytes the head itself has.
	Size int
	// Len is how many bytes (texts, byte strings, extensions), items (arrays) or pairs (maps) follow.
	Len int
	// Bits has a number, 0 or 1 of a boolean, or the bits of a float64.
	Bits uint64
	// Type is that of an extension.
	Type int8
}

// ReadHead reads the head of the value that begins here. ErrShort: more bytes are needed.
func ReadHead(b []byte) (Head, error) {
	if len(b) == 0 {
		return Head{}, ErrShort
	}
	c := b[0]
	switch {
	case c < 0x80:
		return Head{Kind: Int, Size: 1, Bits: uint64(c)}, nil
	case c < 0x90:
		return Head{Kind: Map, Size: 1, Len: int(c & 0x0f)}, nil
	case c < 0xa0:
		return Head{Kind: Array, Size: 1, Len: int(c & 0x0f)}, nil
	case c < 0xc0:
		return Head{Kind: String, Size: 1, Len: int(c & 0x1f)}, nil
	case c >= 0xe0:
		return Head{Kind: Int, Size: 1, Bits: uint64(int64(int8(c)))}, nil
	}
	n := int(extra[c-0xc0])
	if len(b) < 1+n {
		if c == 0xc1 {
			return Head{}, ErrInvalid
		}
		return Head{}, ErrShort
	}
	var v uint64
	switch c {
	case 0xc7, 0xc8, 0xc9:
		v = number(b[1:n])
		return Head{Kind: Ext, Size: 1 + n, Len: length(v), Type: int8(b[n])}, nil
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return Head{Kind: Ext, Size: 2, Len: 1 << (c - 0xd4), Type: int8(b[1])}, nil
	}
	v = number(b[1 : 1+n])
	head := Head{Size: 1 + n, Bits: v}
	switch c {
	case 0xc0:
		head.Kind = Nil
	case 0xc2, 0xc3:
		head.Kind, head.Bits = Bool, uint64(c&1)
	case 0xc4, 0xc5, 0xc6:
		head.Kind, head.Len = Binary, length(v)
	case 0xca:
		head.Kind, head.Bits = Float, math.Float64bits(float64(math.Float32frombits(uint32(v))))
	case 0xcb:
		head.Kind = Float
	case 0xcc, 0xcd, 0xce:
		head.Kind = Int
	case 0xcf:
		head.Kind = Int
		if v > math.MaxInt64 {
			head.Kind = Uint
		}
	case 0xd0:
		head.Kind, head.Bits = Int, uint64(int64(int8(v)))
	case 0xd1:
		head.Kind, head.Bits = Int, uint64(int64(int16(v)))
	case 0xd2:
		head.Kind, head.Bits = Int, uint64(int64(int32(v)))
	case 0xd3:
		head.Kind = Int
	case 0xd9, 0xda, 0xdb:
		head.Kind, head.Len = String, length(v)
	case 0xdc, 0xdd:
		head.Kind, head.Len = Array, length(v)
	case 0xde, 0xdf:
		head.Kind, head.Len = Map, length(v)
	default:
		return Head{}, ErrInvalid
	}
	return head, nil
}

// extra is how many bytes of the head follow the first one, from 0xc0 to 0xdf.
var extra = [32]uint8{
	0, 0, 0, 0, 1, 2, 4, 2, 3, 5, 4, 8, 1, 2, 4, 8,
	1, 2, 4, 8, 1, 1, 1, 1, 1, 1, 2, 4, 2, 4, 2, 4,
}

func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Scanner finds where values end in bytes that come in pieces; each byte is looked at once.
type Scanner struct {
	// open has, for each array or map that is open, how many items are still to come.
	open  [DepthMax]uint64
	depth int
	// deepest is how many levels there were at most, empty ones included.
	deepest int
}

// Scan goes on at `at`, and returns where it has come to and whether the value is whole. Where it is not, and
// there is no error, it goes on at that place when there are more bytes; it may lie behind the present end.
func (s *Scanner) Scan(b []byte, at int) (int, bool, error) {
	for at < len(b) {
		head, err := ReadHead(b[at:])
		if err == ErrShort {
			return at, false, nil
		}
		if err != nil {
			return at, false, err
		}
		at += head.Size
		items := uint64(0)
		if head.Kind == Array || head.Kind == Map {
			s.deepest = max(s.deepest, s.depth+1)
		}
		switch head.Kind {
		case String, Binary, Ext:
			at += head.Len
		case Array:
			items = uint64(head.Len)
		case Map:
			items = 2 * uint64(head.Len)
		}
		if items > 0 {
			if s.depth == DepthMax {
				return at, false, ErrDeep
			}
			s.open[s.depth] = items
			s.depth++
			continue
		}
		for s.depth > 0 {
			s.open[s.depth-1]--
			if s.open[s.depth-1] > 0 {
				break
			}
			s.depth--
		}
		if s.depth == 0 {
			return at, true, nil
		}
	}
	return at, false, nil
}

// Skip returns where the value that begins at `at` ends.
func Skip(b []byte, at int) (int, error) {
	if at < len(b) {
		// The most frequent ones need no stack.
		if head, err := ReadHead(b[at:]); err == nil && (head.Kind < Array || head.Kind == Ext || head.Len == 0) {
			at += head.Size
			if head.Kind == String || head.Kind == Binary || head.Kind == Ext {
				at += head.Len
			}
			if at > len(b) {
				return at, ErrShort
			}
			return at, nil
		}
	}
	var scanner Scanner
	end, whole, err := scanner.Scan(b, at)
	if err != nil {
		return end, err
	}
	if !whole || end > len(b) {
		return end, ErrShort
	}
	return end, nil
}

// Whole tells whether this is one whole value and nothing else.
func Whole(b []byte) error { return Within(b, DepthMax) }

// Within tells whether this is one whole value and nothing else, with at most so many levels of arrays and maps.
func Within(b []byte, levels int) error {
	var scanner Scanner
	end, whole, err := scanner.Scan(b, 0)
	switch {
	case err != nil:
		return err
	case !whole || end > len(b):
		return ErrShort
	case end != len(b):
		return ErrTrailer
	case scanner.deepest > levels:
		return ErrDeep
	}
	return nil
}

// Field returns the value of a map's field with a text as its key; nil without it, or where this is no map.
func Field(b []byte, key string) []byte {
	head, err := ReadHead(b)
	if err != nil || head.Kind != Map {
		return nil
	}
	at := head.Size
	for range head.Len {
		name, err := ReadHead(b[min(at, len(b)):])
		if err != nil {
			return nil
		}
		end, err := Skip(b, at)
		if err != nil {
			return nil
		}
		found := name.Kind == String && string(b[at+name.Size:end]) == key
		at = end
		if end, err = Skip(b, at); err != nil {
			return nil
		}
		if found {
			return b[at:end:end]
		}
		at = end
	}
	return nil
}

// Items calls `yield` with the bytes of each item of an array, until that returns false; false where it is none.
func Items(b []byte, yield func(item []byte) bool) bool {
	head, err := ReadHead(b)
	if err != nil || head.Kind != Array {
		return false
	}
	return items(b, head.Size, head.Len, yield)
}

// Pairs calls `yield` with the bytes of each pair of a map, until that returns false; false where it is none.
func Pairs(b []byte, yield func(key, value []byte) bool) bool {
	head, err := ReadHead(b)
	if err != nil || head.Kind != Map {
		return false
	}
	var key []byte
	isKey := true
	return items(b, head.Size, 2*head.Len, func(item []byte) bool {
		if isKey {
			key, isKey = item, false
			return true
		}
		isKey = true
		return yield(key, item)
	})
}

func items(b []byte, at, count int, yield func(item []byte) bool) bool {
	for range count {
		end, err := Skip(b, at)
		if err != nil {
			return false
		}
		if !yield(b[at:end:end]) {
			return true
		}
		at = end
	}
	return true
}

// Text reads a text; false where it is none.
func Text(b []byte) (string, bool) {
	head, err := ReadHead(b)
	if err != nil || head.Kind != String || len(b) < head.Size+head.Len {
		return "", false
	}
	return string(b[head.Size : head.Size+head.Len]), true
}

// IsText tells whether this is that text.
func IsText(b []byte, text string) bool {
	head, err := ReadHead(b)
	return err == nil && head.Kind == String && len(b) >= head.Size+head.Len && string(b[head.Size:head.Size+head.Len]) == text
}

// Bytes reads a byte string, without copying; false where it is none.
func Bytes(b []byte) ([]byte, bool) {
	head, err := ReadHead(b)
	if err != nil || head.Kind != Binary || len(b) < head.Size+head.Len {
		return nil, false
	}
	return b[head.Size : head.Size+head.Len], true
}

// Integer reads a number that fits int64; false where it is none.
func Integer(b []byte) (int64, bool) {
	head, err := ReadHead(b)
	if err != nil || head.Kind != Int {
		return 0, false
	}
	return int64(head.Bits), true
}

// IsTrue tells whether this is the boolean true; IsNil whether it is nil.
func IsTrue(b []byte) bool { return len(b) == 1 && b[0] == 0xc3 }

// IsNil tells whether this is nil, which no value at all is not.
func IsNil(b []byte) bool { return len(b) == 1 && b[0] == 0xc0 }
