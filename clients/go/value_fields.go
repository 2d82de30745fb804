package distkv

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"distkv.example/client/internal/msgpack"
)

// What is stored of a struct: its fields, or the text as which its type writes itself. Nothing is left out in silence but what
// Go hides itself: fields that are not exported, and those below another one of the same name.

// structField is one that is stored.
type structField struct {
	name      string
	index     []int
	omitEmpty bool
	isTagged  bool
}

// wins tells whether it hides the other one of the same name: the outer one does, or the one whose tag says the name.
func (f structField) wins(other structField) bool {
	if len(f.index) != len(other.index) {
		return len(f.index) < len(other.index)
	}
	return f.isTagged && !other.isTagged
}

type structFields struct {
	list   []structField
	byName map[string]int
	texts  [][]int // embedded fields with a text of their own, which may be taken for the whole struct's
	hides  bool    // some are not exported
	wrong  error   // it cannot be told which ones are meant
}

// fieldsKnown remembers the fields of each struct type; a program has a bounded number of them.
var fieldsKnown sync.Map

func fieldsOf(t reflect.Type) *structFields {
	if known, ok := fieldsKnown.Load(t); ok {
		return known.(*structFields)
	}
	found := &structFields{byName: map[string]int{}}
	found.collect(t, nil)
	found.choose(t)
	known, _ := fieldsKnown.LoadOrStore(t, found)
	return known.(*structFields)
}

// collect finds all fields, those of embedded structs included, which may have one name several times.
func (f *structFields) collect(t reflect.Type, above []int) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("msgpack"), ",")
		if name == "-" || field.Name == "_" {
			continue
		}
		index := append(slices.Clone(above), i)
		hasText := hasTextForm(field.Type)
		if field.Anonymous && hasText && field.IsExported() {
			f.texts = append(f.texts, index)
		}
		isEmbedded := field.Anonymous && field.Type.Kind() == reflect.Struct && !hasText && !hasOwnForm(field.Type)
		switch {
		case isEmbedded && name == "":
			f.collect(field.Type, index)
			continue
		case !isEmbedded && !field.IsExported():
			// The fields of an embedded struct are the outer one's, but behind a pointer of such a type none can be set.
			if field.Anonymous && field.Type.Kind() == reflect.Pointer && hasExported(field.Type.Elem()) {
				f.wrong = cmp.Or(f.wrong, error(badValue(fmt.Sprintf("%s embeds a pointer to %s, which is not exported", t, field.Type.Elem()))))
			}
			f.hides = true
			continue
		}
		isTagged := name != ""
		if !isTagged {
			name = field.Name
		}
		f.list = append(f.list, structField{name, index, slices.Contains(strings.Split(options, ","), "omitempty"), isTagged})
	}
}

// choose keeps of each name the one field that hides the others, as in Go and in encoding/json. Where none does, others would
// be lost: that is an error.
func (f *structFields) choose(t reflect.Type) {
	best := map[string]structField{}
	for _, one := range f.list {
		if other, isThere := best[one.name]; !isThere || one.wins(other) {
			best[one.name] = one
		}
	}
	all := f.list
	f.list = nil
	for _, one := range all {
		chosen := best[one.name]
		switch {
		case slices.Equal(chosen.index, one.index):
			f.byName[one.name] = len(f.list)
			f.list = append(f.list, one)
		case !chosen.wins(one):
			f.wrong = badValue(fmt.Sprintf("%s has several fields %q, of which none hides the others", t, one.name))
		}
	}
}

// hasExported tells whether it is a struct some of whose fields can be seen from outside.
func hasExported(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && slices.ContainsFunc(reflect.VisibleFields(t), func(field reflect.StructField) bool {
		return field.IsExported() && !field.Anonymous
	})
}

func (e encoder) structure(b []byte, v reflect.Value, depth int) ([]byte, error) {
	depth, err := within(depth)
	if err != nil {
		return nil, err
	}
	fields := fieldsOf(v.Type())
	if fields.wrong != nil {
		return nil, fields.wrong
	}
	if len(fields.list) == 0 && fields.hides {
		return nil, badValue(fmt.Sprintf("nothing of %s can be stored: none of its fields is exported", v.Type()))
	}
	count := 0
	for _, field := range fields.list {
		if !field.omitEmpty || !isEmpty(v.FieldByIndex(field.index)) {
			count++
		}
	}
	b = msgpack.AppendMapHead(b, count)
	for _, field := range fields.list {
		found := v.FieldByIndex(field.index)
		if field.omitEmpty && isEmpty(found) {
			continue
		}
		if b, err = e.append(msgpack.AppendString(b, field.name), found, depth); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// hasOwnForm tells whether it is one of the types that this client knows.
func hasOwnForm(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{timeType, bigType, pathType, valueType, extType, mapType}, t)
}

// hasTextForm tells whether a value of this type, or a pointer to it, writes itself as text.
func hasTextForm(t reflect.Type) bool {
	return t.Implements(marshalers) || (t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(marshalers))
}

// textOf is the text of a value that has one of its own, such as netip.Addr. A pointer's text is also its value's, wherever that
// is: the same value is the same bytes each time.
func textOf(v reflect.Value) (text string, hasText bool, err error) {
	t := v.Type()
	if !v.CanInterface() || !hasTextForm(t) {
		return "", false, nil
	}
	if !t.Implements(marshalers) {
		if !v.CanAddr() {
			copied := reflect.New(t).Elem()
			copied.Set(v)
			v = copied
		}
		v = v.Addr()
	}
	written, err := v.Interface().(encoding.TextMarshaler).MarshalText()
	if err != nil {
		return "", true, &Error{Code: "bad_value", text: fmt.Sprintf("%s cannot be stored: %v", t, err), kind: ErrBadValue, cause: err}
	}
	return string(written), true, nil
}

// structText is the text of a struct that has one of its own. If it is that of an embedded field, which Go takes for the whole
// struct's, there must be nothing else to store.
func structText(v reflect.Value) (text string, hasText bool, err error) {
	if !v.CanInterface() || !hasTextForm(v.Type()) {
		return "", false, nil
	}
	fields := fieldsOf(v.Type())
	if hasNilText(v) {
		// The text of what is not there is nobody's, and asking for it may panic.
		defer func() {
			if reason := recover(); reason != nil {
				hasText, err = true, badValue(fmt.Sprintf("%s cannot be stored: %v", v.Type(), reason))
			}
		}()
	}
	if text, _, err = textOf(v); err != nil {
		return "", true, err
	}
	for _, index := range fields.texts {
		field := v.FieldByIndex(index)
		if part, ok := partText(field); !ok || part != text {
			continue
		}
		if len(fields.list) > 1 {
			return "", true, badValue(fmt.Sprintf("of %s only the text of its %s would be stored", v.Type(), field.Type()))
		}
		if field.Kind() == reflect.Struct {
			return structText(field)
		}
	}
	return text, true, nil
}

// hasNilText tells whether a struct embeds a pointer to what has a text, and that is nil.
func hasNilText(v reflect.Value) bool {
	return slices.ContainsFunc(fieldsOf(v.Type()).texts, func(index []int) bool { return isNil(v.FieldByIndex(index)) })
}

func isNil(v reflect.Value) bool {
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
}

// partText is the text of an embedded field, where it has one now.
func partText(field reflect.Value) (text string, ok bool) {
	if isNil(field) {
		defer func() { _ = recover() }()
	}
	text, ok, err := textOf(field)
	return text, ok && err == nil
}
