package distkv

import (
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// Values as Go's types write them: how deep they may be, circles, and nil.

func TestAValueHas64LevelsOfWhateverTypes(t *testing.T) {
	client := sharedClient(t)
	path := base()
	type box struct {
		In any `msgpack:"in"`
	}
	type list []list
	for name, around := range map[string]func(inner any) any{
		"[]any":           func(inner any) any { return []any{inner} },
		"map[string]any":  func(inner any) any { return map[string]any{"a": inner} },
		"Map":             func(inner any) any { return Map{{1, inner}} },
		"a struct":        func(inner any) any { return box{inner} },
		"pointers":        func(inner any) any { one := &inner; two := &one; return &box{&two} },
		"an array":        func(inner any) any { return [1]any{inner} },
		"a typed slice":   func(inner any) any { return []*any{&inner} },
		"an empty inside": func(inner any) any { return [2]any{[]any{}, inner} },
	} {
		var value any = 1
		for range valueDepthMax {
			value = around(value)
		}
		if name == "an empty inside" {
			// The empty one is the last level.
			value = around([]any{})
			for range valueDepthMax - 2 {
				value = around(value)
			}
		}
		put(t, client, path, value, nil)
		read := get[any](t, client, path)
		put(t, client, path, read, nil)
		if again := get[any](t, client, path); !reflect.DeepEqual(read, again) {
			t.Errorf("%s: what was read cannot be written", name)
		}
		_, err := Encode(around(value))
		wantError(t, err, ErrBadValue)
		_, err = Encode([]any{read})
		wantError(t, err, ErrBadValue)
	}
	nested := list{}
	for range valueDepthMax - 1 {
		nested = list{nested}
	}
	put(t, client, path, nested, nil)
	_, err := Encode(list{nested})
	wantError(t, err, ErrBadValue)
}

func TestRawValuesHaveAsManyLevelsAsOthers(t *testing.T) {
	client := sharedClient(t)
	path := base()
	raw := func(levels int, inmost string) Value { return Value(strings.Repeat("\x91", levels) + inmost) }
	for name, most := range map[string]any{
		"arrays": raw(valueDepthMax, "\x01"), "an empty one inmost": raw(valueDepthMax-1, "\x80"),
		"within others": []any{raw(valueDepthMax-1, "\x01")},
	} {
		put(t, client, path, most, nil)
		_, err := client.Put(t.Context(), path, []any{most}, nil)
		if wantError(t, err, ErrBadValue); !strings.HasSuffix(err.Error(), "nested too deeply") {
			t.Errorf("%s: %v", name, err)
		}
		encoded := must[Value](t)(Encode(most))
		_, err = client.Put(t.Context(), path, append(Value("\x91"), encoded...), nil)
		if wantError(t, err, ErrBadValue); !strings.HasSuffix(err.Error(), "nested too deeply") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValuesThatGoRoundInCirclesEnd(t *testing.T) {
	type pointer *pointer
	var bare pointer
	bare = &bare
	var boxed any
	boxed = &boxed
	items := []any{nil}
	items[0] = items
	texts := map[string]any{}
	texts["a"] = &texts
	for _, round := range []any{bare, boxed, items, texts, Map{{"a", bare}}, map[string]any{"a": &boxed}} {
		_, err := Encode(round)
		wantError(t, err, ErrBadValue)
	}
}

func TestNilIsNilWhereverItIs(t *testing.T) {
	type box struct {
		Bytes   []byte
		Items   []any
		Texts   map[string]int
		Pointer *int
	}
	want := "\x84\xa5Bytes\xc0\xa5Items\xc0\xa5Texts\xc0\xa7Pointer\xc0"
	if encoded := must[Value](t)(Encode(box{})); string(encoded) != want {
		t.Errorf("%x", []byte(encoded))
	}
	for _, none := range []any{nil, []byte(nil), []any(nil), []int(nil), map[string]any(nil), Map(nil), (*int)(nil), (*big.Int)(nil)} {
		for _, encoded := range []Value{must[Value](t)(Encode(none)), must[Value](t)(Encode([]any{none}))[1:]} {
			if string(encoded) != string(Nil) {
				t.Errorf("%T is %x", none, []byte(encoded))
			}
		}
	}
	if found, err := As[[]byte](Nil); found != nil || err != nil {
		t.Error(found, err)
	}
	if encoded := must[Value](t)(Encode([]byte{})); string(encoded) != "\xc4\x00" {
		t.Errorf("an empty one is none: %x", []byte(encoded))
	}
}
