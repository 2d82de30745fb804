package distkv

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"time"

	"distkv.example/client/internal/msgpack"
)

func sortedPairs(texts map[string]any) Map {
	found := make(Map, 0, len(texts))
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		found = append(found, Pair{key, texts[key]})
	}
	return found
}

// appendValue adds what a program wants to store.
func appendValue(b []byte, v any) ([]byte, error) {
	// The most frequent ones, without reflection.
	switch e := v.(type) {
	case nil:
		return msgpack.AppendNil(b), nil
	case Value:
		return appendRaw(b, e, 0)
	case string:
		return msgpack.AppendString(b, e), nil
	case []byte:
		if e == nil {
			return msgpack.AppendNil(b), nil
		}
		return msgpack.AppendBinary(b, e), nil
	case bool:
		return msgpack.AppendBool(b, e), nil
	case int:
		return msgpack.AppendInt(b, int64(e)), nil
	case int64:
		return msgpack.AppendInt(b, e), nil
	case float64:
		return msgpack.AppendFloat(b, e), nil
	}
	return encoder{}.append(b, reflect.ValueOf(v), 0)
}

// appendRaw adds a value that is MessagePack already, and that so many arrays and maps are around.
func appendRaw(b []byte, raw Value, depth int) ([]byte, error) {
	switch err := msgpack.Within(raw, valueDepthMax-depth); err {
	case nil:
		return append(b, raw...), nil
	case msgpack.ErrDeep:
		return nil, tooDeep()
	default:
		return nil, decodeError(err)
	}
}

type encoder struct{}

var (
	timeType   = reflect.TypeFor[time.Time]()
	bigType    = reflect.TypeFor[big.Int]()
	pathType   = reflect.TypeFor[Path]()
	valueType  = reflect.TypeFor[Value]()
	extType    = reflect.TypeFor[Ext]()
	mapType    = reflect.TypeFor[Map]()
	marshalers = reflect.TypeFor[encoding.TextMarshaler]()
)

// append adds a value that so many arrays and maps are around.
func (e encoder) append(b []byte, v reflect.Value, depth int) ([]byte, error) {
	// What points is no level. No program has so many pointers to pointers, but in a circle.
	for behind := 0; v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface; behind++ {
		if behind > valueDepthMax {
			return nil, badValue("the value is pointers that go round in a circle")
		}
		v = v.Elem()
	}
	if !v.IsValid() {
		return msgpack.AppendNil(b), nil
	}
	switch v.Type() {
	case timeType:
		return appendTime(b, v.Interface().(time.Time)), nil
	case bigType:
		number := v.Interface().(big.Int)
		return appendBig(b, &number)
	case pathType:
		return v.Interface().(Path).appendExt(b), nil
	case valueType:
		return appendRaw(b, v.Interface().(Value), depth)
	case extType:
		ext := v.Interface().(Ext)
		return msgpack.AppendExt(b, ext.Type, ext.Data), nil
	case mapType:
		return e.pairs(b, v.Interface().(Map), depth)
	}
	switch v.Kind() {
	case reflect.Bool:
		return msgpack.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return msgpack.AppendInt(b, v.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return msgpack.AppendUint(b, v.Uint()), nil
	case reflect.Float32:
		return msgpack.AppendFloat32(b, float32(v.Float())), nil
	case reflect.Float64:
		return msgpack.AppendFloat(b, v.Float()), nil
	case reflect.String:
		return msgpack.AppendString(b, v.String()), nil
	case reflect.Slice:
		if v.IsNil() {
			return msgpack.AppendNil(b), nil
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return msgpack.AppendBinary(b, v.Bytes()), nil
		}
		return e.items(b, v, depth)
	case reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if text, hasText, err := textOf(v); hasText {
				return msgpack.AppendString(b, text), err
			}
			data := make([]byte, v.Len())
			for i := range data { // They may be of a type of their own.
				data[i] = byte(v.Index(i).Uint())
			}
			return msgpack.AppendBinary(b, data), nil
		}
		return e.items(b, v, depth)
	case reflect.Map:
		return e.mapping(b, v, depth)
	case reflect.Struct:
		if text, hasText, err := structText(v); hasText {
			return msgpack.AppendString(b, text), err
		}
		return e.structure(b, v, depth)
	}
	return nil, badValue(fmt.Sprintf("%s has no form in MessagePack", v.Type()))
}

func appendBig(b []byte, number *big.Int) ([]byte, error) {
	switch {
	case number.IsInt64():
		return msgpack.AppendInt(b, number.Int64()), nil
	case number.IsUint64():
		return msgpack.AppendUint(b, number.Uint64()), nil
	case number.Sign() < 0:
		return nil, badValue("integers below -2^63 cannot be stored")
	}
	return msgpack.AppendExt(b, extBigInt, number.Bytes()), nil
}

// within is the depth of what an array or a map holds; an error: it is one level too many.
func within(depth int) (int, error) {
	if depth >= valueDepthMax {
		return 0, tooDeep()
	}
	return depth + 1, nil
}

func (e encoder) items(b []byte, v reflect.Value, depth int) ([]byte, error) {
	depth, err := within(depth)
	if err != nil {
		return nil, err
	}
	b = msgpack.AppendArrayHead(b, v.Len())
	for i := range v.Len() {
		if b, err = e.append(b, v.Index(i), depth); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (e encoder) pairs(b []byte, pairs Map, depth int) ([]byte, error) {
	if pairs == nil {
		return msgpack.AppendNil(b), nil
	}
	depth, err := within(depth)
	if err != nil {
		return nil, err
	}
	b = msgpack.AppendMapHead(b, len(pairs))
	for _, pair := range pairs {
		for _, one := range []any{pair.Key, pair.Value} {
			if b, err = e.append(b, reflect.ValueOf(one), depth); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// mapping writes a map in the order of its keys' bytes: the same value is the same bytes each time.
func (e encoder) mapping(b []byte, v reflect.Value, depth int) ([]byte, error) {
	if v.IsNil() {
		return msgpack.AppendNil(b), nil
	}
	depth, err := within(depth)
	if err != nil {
		return nil, err
	}
	type entry struct {
		key        string
		was, value reflect.Value
	}
	entries := make([]entry, 0, v.Len())
	for each := v.MapRange(); each.Next(); {
		key, err := e.append(nil, each.Key(), depth)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{string(key), each.Key(), each.Value()})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	b = msgpack.AppendMapHead(b, len(entries))
	for i, one := range entries {
		// No NaN is another one, nor itself.
		if i > 0 && entries[i-1].key == one.key && one.was.Equal(one.was) {
			return nil, badValue(fmt.Sprintf("of %s only one of several entries would be read: the keys %v and %v are stored as one",
				v.Type(), entries[i-1].was, one.was))
		}
		if b, err = e.append(append(b, one.key...), one.value, depth); err != nil {
			return nil, err
		}
	}
	return b, nil
}
