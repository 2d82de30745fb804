package distkv

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"

	"distkv.example/client/internal/msgpack"
)

func floatOf(head msgpack.Head) float64 { return math.Float64frombits(head.Bits) }

// decodeInto reads one whole value into what a pointer points to.
func decodeInto(b []byte, into any) error {
	if b == nil {
		return badValue("there is no value")
	}
	// The most frequent ones, without reflection.
	switch target := into.(type) {
	case *string:
		if text, ok := msgpack.Text(b); ok {
			*target = text
			return nil
		}
	case *Value:
		*target = Value(b)
		return nil
	case *any:
		found, err := decodeAny(b)
		*target = found
		return err
	}
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return badValue("a value is read into a pointer")
	}
	d := decoder{b: b}
	err := d.into(v.Elem(), 0)
	if err == nil && d.at != len(b) {
		err = msgpack.ErrTrailer
	}
	var part *misplaced
	if errors.As(err, &part) {
		err = part.told()
	}
	var known *Error
	if err != nil && !errors.As(err, &known) {
		err = decodeError(err)
	}
	return err
}

// misplaced is the error of a part of a value.
type misplaced struct {
	err error
	// place is where the part is, as Go writes it: ".Lamps[2].level", with the names that the value has.
	place string
}

func (m *misplaced) Error() string { return m.err.Error() }

// told is the error for people.
func (m *misplaced) told() error {
	var known *Error
	if !errors.As(m.err, &known) {
		return m.err
	}
	return badValue(fmt.Sprintf("%s (at %s)", known.text, strings.TrimPrefix(m.place, ".")))
}

// inPart says that the error of a part is that of this part of what is around it.
func inPart(err error, place string) error {
	var part *misplaced
	if errors.As(err, &part) {
		return &misplaced{part.err, place + part.place}
	}
	return &misplaced{err, place}
}

// keyPlace is how a key of a map is written in a place.
func keyPlace(key reflect.Value) string {
	switch {
	case key.Kind() == reflect.String:
		text, isCut := strings.CutSuffix(shown(key.String()), "…")
		if isCut {
			return fmt.Sprintf("[%q…]", text)
		}
		return fmt.Sprintf("[%q]", text)
	case key.CanInt():
		return fmt.Sprintf("[%d]", key.Int())
	case key.CanUint():
		return fmt.Sprintf("[%d]", key.Uint())
	}
	return "[…]"
}

func misfit(head msgpack.Head, v reflect.Value) error {
	kinds := [...]string{"nil", "a boolean", "an integer", "an integer", "a float", "a text", "a byte string",
		"an array", "a map", "an extension"}
	return badValue(fmt.Sprintf("the value does not fit %s: it is %s", v.Type(), kinds[head.Kind]))
}

func (d *decoder) into(v reflect.Value, depth int) error {
	if depth > msgpack.DepthMax {
		return msgpack.ErrDeep
	}
	if v.Type() == valueType {
		end, err := msgpack.Skip(d.b, d.at)
		if err != nil {
			return err
		}
		v.SetBytes(d.b[d.at:end:end])
		d.at = end
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if d.at < len(d.b) && d.b[d.at] == 0xc0 {
			d.at++
			v.SetZero()
			return nil
		}
		// As where it is written, what points is no level, and there is no circle.
		for behind := 0; v.Kind() == reflect.Pointer; behind++ {
			if behind > valueDepthMax {
				return badValue(fmt.Sprintf("a value cannot be read as %s: it is pointers only", v.Type()))
			}
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		return d.into(v, depth)
	case reflect.Interface:
		if v.NumMethod() > 0 {
			if d.at < len(d.b) && d.b[d.at] == 0xc0 {
				d.at++
				v.SetZero()
				return nil
			}
			return badValue(fmt.Sprintf("a value cannot be read as %s", v.Type()))
		}
		found, err := d.any(depth)
		if err != nil {
			return err
		}
		if found == nil {
			v.SetZero()
		} else {
			v.Set(reflect.ValueOf(found))
		}
		return nil
	}
	head, data, err := d.head()
	if err != nil {
		return err
	}
	if done, err := d.known(v, head, data, depth); done || err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Struct:
		if head.Kind == msgpack.Map {
			return d.structure(v, head.Len, depth)
		}
	case reflect.Map:
		if head.Kind == msgpack.Map {
			return d.mapping(v, head.Len, depth)
		}
	case reflect.Slice, reflect.Array:
		return d.items(v, head, data, depth)
	default:
		return number(v, head, data)
	}
	if head.Kind == msgpack.Nil && v.Kind() == reflect.Map {
		v.SetZero()
		return nil
	}
	return misfit(head, v)
}

// known reads the types that have a form of their own.
func (d *decoder) known(v reflect.Value, head msgpack.Head, data []byte, depth int) (bool, error) {
	switch v.Type() {
	case timeType:
		if head.Kind == msgpack.Ext && head.Type == extTime {
			if t, ok := timeOf(data); ok {
				v.Set(reflect.ValueOf(t))
				return true, nil
			}
		}
	case bigType:
		switch found := scalarOrExt(head, data).(type) {
		case int64:
			v.Set(reflect.ValueOf(*big.NewInt(found)))
			return true, nil
		case uint64:
			v.Set(reflect.ValueOf(*new(big.Int).SetUint64(found)))
			return true, nil
		case *big.Int:
			v.Set(reflect.ValueOf(*found))
			return true, nil
		}
		return true, misfit(head, v)
	case pathType:
		path, isPath := scalarOrExt(head, data).(Path)
		if !isPath {
			return true, misfit(head, v)
		}
		v.Set(reflect.ValueOf(path))
		return true, nil
	case extType:
		if head.Kind != msgpack.Ext {
			return true, misfit(head, v)
		}
		v.Set(reflect.ValueOf(Ext{head.Type, append([]byte{}, data...)}))
		return true, nil
	case mapType:
		switch head.Kind {
		case msgpack.Nil:
			v.SetZero()
			return true, nil
		case msgpack.Map:
			found, err := d.pairs(head.Len, depth)
			v.Set(reflect.ValueOf(found))
			return true, err
		}
		return true, misfit(head, v)
	}
	if head.Kind == msgpack.String && v.Kind() != reflect.String && v.CanAddr() && v.CanInterface() {
		if reader, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return true, readText(v, reader, data)
		}
	}
	return false, nil
}

// readText reads a text into what reads itself.
func readText(v reflect.Value, reader encoding.TextUnmarshaler, text []byte) (err error) {
	if v.Kind() == reflect.Struct && hasNilText(v) {
		// That may be whose method this is.
		defer func() {
			if reason := recover(); reason != nil {
				err = badValue(fmt.Sprintf("the value does not fit %s: %v", v.Type(), reason))
			}
		}()
	}
	if err := reader.UnmarshalText(text); err != nil {
		return badValue(fmt.Sprintf("the value does not fit %s: %v", v.Type(), err))
	}
	return nil
}

func scalarOrExt(head msgpack.Head, data []byte) any {
	if head.Kind == msgpack.Ext {
		return extension(head.Type, data)
	}
	return scalar(head, data)
}

func number(v reflect.Value, head msgpack.Head, data []byte) error {
	switch v.Kind() {
	case reflect.Bool:
		if head.Kind == msgpack.Bool {
			v.SetBool(head.Bits == 1)
			return nil
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if head.Kind == msgpack.Int && !v.OverflowInt(int64(head.Bits)) {
			v.SetInt(int64(head.Bits))
			return nil
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		isNegative := head.Kind == msgpack.Int && int64(head.Bits) < 0
		if (head.Kind == msgpack.Int || head.Kind == msgpack.Uint) && !isNegative && !v.OverflowUint(head.Bits) {
			v.SetUint(head.Bits)
			return nil
		}
	case reflect.Float32, reflect.Float64:
		switch head.Kind {
		case msgpack.Float:
			if number := floatOf(head); !v.OverflowFloat(number) {
				v.SetFloat(number)
				return nil
			}
		case msgpack.Int:
			v.SetFloat(float64(int64(head.Bits)))
			return nil
		case msgpack.Uint:
			v.SetFloat(float64(head.Bits))
			return nil
		}
	case reflect.String:
		if head.Kind == msgpack.String {
			v.SetString(string(data))
			return nil
		}
	}
	return misfit(head, v)
}

func (d *decoder) items(v reflect.Value, head msgpack.Head, data []byte, depth int) error {
	isBytes := v.Type().Elem().Kind() == reflect.Uint8
	switch {
	case head.Kind == msgpack.Nil && v.Kind() == reflect.Slice:
		v.SetZero()
		return nil
	case head.Kind == msgpack.Binary && isBytes:
		if v.Kind() == reflect.Slice {
			v.SetBytes(append([]byte{}, data...))
			return nil
		}
		if len(data) == v.Len() {
			for i, one := range data { // They may be of a type of their own.
				v.Index(i).SetUint(uint64(one))
			}
			return nil
		}
	case head.Kind == msgpack.Array && v.Kind() == reflect.Array && head.Len == v.Len():
		for i := range head.Len {
			if err := d.into(v.Index(i), depth+1); err != nil {
				return inPart(err, fmt.Sprintf("[%d]", i))
			}
		}
		return nil
	case head.Kind == msgpack.Array && v.Kind() == reflect.Slice:
		found := reflect.MakeSlice(v.Type(), 0, min(head.Len, 1024))
		for range head.Len {
			item := reflect.New(v.Type().Elem()).Elem()
			if err := d.into(item, depth+1); err != nil {
				return inPart(err, fmt.Sprintf("[%d]", found.Len()))
			}
			found = reflect.Append(found, item)
		}
		v.Set(found)
		return nil
	}
	return misfit(head, v)
}

func (d *decoder) mapping(v reflect.Value, count, depth int) error {
	if key := v.Type().Key(); key.Kind() == reflect.Interface && key.NumMethod() > 0 {
		return badValue(fmt.Sprintf("a value cannot be read as %s: use map[string]… or distkv.Map", v.Type()))
	}
	found := reflect.MakeMapWithSize(v.Type(), min(count, 1024))
	for range count {
		key := reflect.New(v.Type().Key()).Elem()
		value := reflect.New(v.Type().Elem()).Elem()
		if err := d.into(key, depth+1); err != nil {
			return err
		}
		if err := d.into(value, depth+1); err != nil {
			return inPart(err, keyPlace(key))
		}
		switch {
		case !key.Comparable() || isBig(key):
			return badValue(fmt.Sprintf("the value does not fit %s: a key is an array, a map, or what else Go's maps have no key for; "+
				"use distkv.Map", v.Type()))
		case found.MapIndex(key).IsValid():
			return badValue(fmt.Sprintf("the value does not fit %s: two of its keys are %v there; use distkv.Map", v.Type(), key))
		}
		found.SetMapIndex(key, value)
	}
	v.Set(found)
	return nil
}

// isBig: it is one of Go's pointers, so that two of one number would be two keys.
func isBig(key reflect.Value) bool {
	return key.Kind() == reflect.Interface && !key.IsNil() && key.Elem().Type() == reflect.PointerTo(bigType)
}

func (d *decoder) structure(v reflect.Value, count, depth int) error {
	fields := fieldsOf(v.Type())
	if fields.wrong != nil {
		return fields.wrong
	}
	if len(fields.list) == 0 && hasTextForm(v.Type()) {
		return badValue(fmt.Sprintf("the value does not fit %s: it is a map", v.Type()))
	}
	isRead := make([]bool, len(fields.list))
	for range count {
		head, data, err := d.head()
		if err != nil {
			return err
		}
		if head.Kind != msgpack.String {
			return badValue(fmt.Sprintf("the value does not fit %s: a key is no text", v.Type()))
		}
		number, isKnown := fields.byName[string(data)]
		if !isKnown {
			if d.at, err = msgpack.Skip(d.b, d.at); err != nil {
				return err
			}
			continue
		}
		if isRead[number] {
			return badValue(fmt.Sprintf("the value does not fit %s: it has %q twice", v.Type(), data))
		}
		isRead[number] = true
		if err := d.into(v.FieldByIndex(fields.list[number].index), depth+1); err != nil {
			return inPart(err, "."+string(data))
		}
	}
	return nil
}
