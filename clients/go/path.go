package distkv

import (
	"fmt"
	"math"
	"strings"

	"distkv.example/client/internal/msgpack"
)

// Limits of paths, the same on all nodes.
const (
	PathElementsMax = 64   // elements of a path
	PathBytesMax    = 4096 // bytes of a path in canonical form
	PathNestingMax  = 16   // levels of arrays in an element
)

const (
	extBigInt = 2
	extPath   = 3
)

// Path is where an entry is. It never changes, is comparable, and can be the key of a map; the zero Path is the root.
//
// Elements are string, bool, int64, uint64 (beyond int64), float64, []byte and []any of all these; nil may be the
// first one. true, 1 and 1.0 are three elements.
type Path struct {
	canonical string // the elements' shortest MessagePack, one after the other
	shard     uint16 // exclusive-or with the root's, so that the zero value is right
	count     uint8
}

// NewPath makes a path of elements. The error is an [ErrUsage].
func NewPath(elements ...any) (Path, error) { return Path{}.Join(elements...) }

// ParsePath reads a path's text: "site.lamp", "a:1.b", ":" for the root. The error is an [ErrUsage].
func ParsePath(text string) (Path, error) {
	elements, err := parseElements(text)
	if err != nil {
		return Path{}, err
	}
	return NewPath(elements...)
}

// MustPath is [ParsePath] for constants: it panics where the text is no path.
func MustPath(text string) Path {
	path, err := ParsePath(text)
	if err != nil {
		panic(err)
	}
	return path
}

// Join is the path with these elements behind it. The error is an [ErrUsage].
func (p Path) Join(elements ...any) (Path, error) {
	if len(elements)+int(p.count) > PathElementsMax {
		return Path{}, usage(fmt.Sprintf("a path has at most %d elements", PathElementsMax))
	}
	b := make([]byte, 0, len(p.canonical)+16*len(elements))
	b = append(b, p.canonical...)
	var err error
	for i, element := range elements {
		if element == nil && (i > 0 || p.count > 0) {
			return Path{}, usage("nil can only be the first element of a path")
		}
		if b, err = appendElement(b, element, 0); err != nil {
			return Path{}, err
		}
	}
	return finishPath(string(b), int(p.count)+len(elements))
}

// MustJoin is [Path.Join] for elements that are known to be good: it panics otherwise.
func (p Path) MustJoin(elements ...any) Path {
	joined, err := p.Join(elements...)
	if err != nil {
		panic(err)
	}
	return joined
}

func finishPath(canonical string, count int) (Path, error) {
	if len(canonical) > PathBytesMax {
		return Path{}, usage(fmt.Sprintf("a path has at most %d bytes", PathBytesMax))
	}
	shard := rootShard
	if count > 0 {
		head, err := msgpack.ReadHead([]byte(canonical[:min(len(canonical), 9)]))
		if err != nil {
			return Path{}, usage("these bytes are no path")
		}
		if head.Kind == msgpack.String {
			shard = shardOfKey(canonical[head.Size : head.Size+head.Len])
		} else {
			end, err := msgpack.Skip([]byte(canonical), 0)
			if err != nil {
				return Path{}, usage("these bytes are no path")
			}
			shard = shardOfKey(canonical[:end])
		}
	}
	return Path{canonical, uint16(shard ^ rootShard), uint8(count)}, nil
}

func appendElement(b []byte, element any, depth int) ([]byte, error) {
	switch e := element.(type) {
	case nil:
		return msgpack.AppendNil(b), nil
	case string:
		if !validText(e) {
			return nil, usage("an element of a path is no valid text")
		}
		return msgpack.AppendString(b, e), nil
	case bool:
		return msgpack.AppendBool(b, e), nil
	case int:
		return msgpack.AppendInt(b, int64(e)), nil
	case int64:
		return msgpack.AppendInt(b, e), nil
	case uint64:
		return msgpack.AppendUint(b, e), nil
	case int8:
		return msgpack.AppendInt(b, int64(e)), nil
	case int16:
		return msgpack.AppendInt(b, int64(e)), nil
	case int32:
		return msgpack.AppendInt(b, int64(e)), nil
	case uint:
		return msgpack.AppendUint(b, uint64(e)), nil
	case uint8:
		return msgpack.AppendUint(b, uint64(e)), nil
	case uint16:
		return msgpack.AppendUint(b, uint64(e)), nil
	case uint32:
		return msgpack.AppendUint(b, uint64(e)), nil
	case float32:
		return appendElement(b, float64(e), depth)
	case float64:
		if math.IsNaN(e) {
			return nil, usage("NaN cannot be in a path")
		}
		if e == 0 {
			e = 0 // not -0.0
			return msgpack.AppendFloat(b, 0), nil
		}
		return msgpack.AppendFloat(b, e), nil
	case []byte:
		if len(e) == 0 {
			return msgpack.AppendString(b, ""), nil
		}
		return msgpack.AppendBinary(b, e), nil
	case Path:
		return appendArray(b, e.Elements(), depth)
	case []any:
		return appendArray(b, e, depth)
	}
	return nil, usage(fmt.Sprintf("%T cannot be an element of a path", element))
}

func appendArray(b []byte, elements []any, depth int) ([]byte, error) {
	if depth >= PathNestingMax {
		return nil, usage(fmt.Sprintf("arrays in a path nest at most %d levels deep", PathNestingMax))
	}
	b = msgpack.AppendArrayHead(b, len(elements))
	var err error
	for _, element := range elements {
		if b, err = appendElement(b, element, depth+1); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// pathFromBytes reads elements' MessagePack, one after the other, in whatever width.
func pathFromBytes(b []byte) (Path, error) {
	var elements []any
	for at := 0; at < len(b); {
		end, err := msgpack.Skip(b, at)
		if err != nil {
			return Path{}, usage("these bytes are no path: " + err.Error())
		}
		element, err := elementOf(b[at:end])
		if err != nil {
			return Path{}, err
		}
		if len(elements) == PathElementsMax {
			return Path{}, usage(fmt.Sprintf("a path has at most %d elements", PathElementsMax))
		}
		elements = append(elements, element)
		at = end
	}
	return NewPath(elements...)
}

// pathOfValue reads a path as messages carry it: an extension, or an array.
func pathOfValue(b []byte) (Path, error) {
	head, err := msgpack.ReadHead(b)
	if err != nil {
		return Path{}, usage("this is no path")
	}
	if head.Kind == msgpack.Ext && head.Type == extPath {
		return pathFromBytes(b[head.Size:])
	}
	if head.Kind == msgpack.Array {
		return pathFromBytes(b[head.Size:])
	}
	return Path{}, usage("this is no path")
}

func elementOf(b []byte) (any, error) {
	value, err := decodeAny(b)
	if err != nil {
		return nil, usage("these bytes are no path: " + err.Error())
	}
	return value, nil
}

// Shard is the virtual shard that the path is in, 0 to 1,023.
func (p Path) Shard() int { return int(p.shard) ^ rootShard }

// Place is where the path is in the 128-bit space that [Client.ListShards] shows: the shard's first place, big-endian.
func (p Path) Place() [16]byte {
	var place [16]byte
	shard := p.Shard() << 6
	place[0], place[1] = byte(shard>>8), byte(shard)
	return place
}

// Len is the number of elements.
func (p Path) Len() int { return int(p.count) }

// Elements are the path's elements.
func (p Path) Elements() []any {
	found := make([]any, 0, p.count)
	b := []byte(p.canonical)
	for at := 0; at < len(b); {
		end, err := msgpack.Skip(b, at)
		if err != nil {
			break // It was checked when the path was made.
		}
		element, _ := decodeAny(b[at:end])
		found = append(found, element)
		at = end
	}
	return found
}

// Last is the last element; nil for the root.
func (p Path) Last() any {
	if p.count == 0 {
		return nil
	}
	elements := p.Elements()
	return elements[len(elements)-1]
}

// Parent is the path without its last element; the root is its own.
func (p Path) Parent() Path { return p.first(int(p.count) - 1) }

// first is the path of the first elements.
func (p Path) first(count int) Path {
	if count <= 0 {
		return Path{}
	}
	b := []byte(p.canonical)
	at := 0
	for range count {
		end, err := msgpack.Skip(b, at)
		if err != nil {
			break
		}
		at = end
	}
	return Path{p.canonical[:at], p.shard, uint8(count)}
}

// behind is the path with another one's elements behind it.
func (p Path) behind(other Path) (Path, error) {
	if p.count == 0 {
		return other, nil
	}
	if int(p.count)+int(other.count) > PathElementsMax || len(p.canonical)+len(other.canonical) > PathBytesMax {
		return Path{}, usage("the path is too long")
	}
	return Path{p.canonical + other.canonical, p.shard, p.count + other.count}, nil
}

// HasPrefix tells whether the path is at or below another one.
func (p Path) HasPrefix(above Path) bool { return strings.HasPrefix(p.canonical, above.canonical) }

// String is the path's text, which [ParsePath] reads.
func (p Path) String() string { return formatElements(p.Elements()) }

// MarshalText and UnmarshalText make paths texts in JSON and logs.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (p *Path) UnmarshalText(text []byte) error {
	read, err := ParsePath(string(text))
	if err == nil {
		*p = read
	}
	return err
}

// appendExt adds the path as requests carry it.
func (p Path) appendExt(b []byte) []byte { return msgpack.AppendExt(b, extPath, p.canonical) }

// PathOf is [NewPath] for elements that are known to be good: it panics otherwise.
func PathOf(elements ...any) Path { return Path{}.MustJoin(elements...) }
