package distkv

import (
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/netip"
	"reflect"
	"testing"
)

// label is a text that two values of it may have in common.
type label struct{ a, b string }

func (l label) MarshalText() ([]byte, error) { return []byte(l.a + l.b), nil }

type level int

func (level) MarshalText() ([]byte, error) { return []byte("level"), nil }

type word string

func (word) MarshalText() ([]byte, error) { return []byte("word"), nil }

// oneWay has a text that cannot be read back.
type oneWay struct{ Word string }

func (o oneWay) MarshalText() ([]byte, error) { return []byte(o.Word), nil }

func TestAMapTwoOfWhoseKeysAreStoredAsOneIsRefused(t *testing.T) {
	for _, value := range []any{
		map[any]any{1: "a", int64(1): "b", uint8(1): "c"}, map[any]int{"a": 1, word("a"): 2}, map[label]int{{"a", "b"}: 1, {"ab", ""}: 2},
		[]any{map[any]any{1: 1, level(1): 2}}, map[any]any{nil: 1, (*int)(nil): 2},
	} {
		_, err := Encode(value)
		wantError(t, err, ErrBadValue)
	}
	for _, value := range []any{
		map[any]any{1: "a", 1.0: "b", "1": "c", true: "d"}, map[float64]int{math.NaN(): 1, math.NaN(): 2}, map[label]int{{"a", "b"}: 1},
	} {
		if _, err := Encode(value); err != nil {
			t.Error(value, err)
		}
	}
}

func TestAMapOfAnyKeysIsRead(t *testing.T) {
	path := MustPath("a.1")
	want := map[any]any{int64(1): "a", 1.5: int64(2), "1": nil, true: []any{int64(1)}, nil: map[string]any{"a": int64(1)}, path: uint64(math.MaxUint64)}
	encoded := must[Value](t)(Encode(want))
	if found, err := As[map[any]any](encoded); err != nil || !reflect.DeepEqual(found, want) {
		t.Error(found, err)
	}
	if found, err := As[struct{ In map[any]int }](must[Value](t)(Encode(struct{ In map[any]int8 }{map[any]int8{uint8(7): 1}}))); err != nil || found.In[int64(7)] != 1 {
		t.Error(found, err)
	}
	for _, pairs := range []Map{
		{{1, "a"}, {1, "b"}}, {{[]int{1}, "a"}}, {{map[string]int{}, "a"}}, {{[]byte("a"), "a"}},
		// Two big integers of one value would be two keys, and an unknown extension is none.
		{{new(big.Int).Lsh(big.NewInt(1), 70), "a"}}, {{Ext{7, []byte("a")}, "a"}},
	} {
		_, err := As[map[any]any](must[Value](t)(Encode(pairs)))
		wantError(t, err, ErrBadValue)
	}
	deep := any(1)
	for range valueDepthMax {
		deep = map[any]any{1: deep}
	}
	if _, err := As[map[any]any](must[Value](t)(Encode(deep))); err != nil {
		t.Error(err)
	}
	_, err := Encode(map[any]any{1: deep})
	wantError(t, err, ErrBadValue)
}

// What programs have stored must be found as they have stored it.
func TestOnlyStructsAndArraysOfBytesAreStoredAsTheirTexts(t *testing.T) {
	for _, row := range []struct{ value, want any }{
		{level(3), int64(3)}, {slog.LevelWarn, int64(4)}, {word("x"), "x"}, {net.IPv4(10, 0, 0, 1), []byte(net.IPv4(10, 0, 0, 1))},
		{netip.MustParseAddr("10.0.0.1"), "10.0.0.1"}, {label{"a", "b"}, "ab"}, {map[level]int{3: 1}, Map{{int64(3), int64(1)}}},
		{map[word]int{"x": 1}, map[string]any{"x": int64(1)}}, {map[label]int{{"a", "b"}: 1}, map[string]any{"ab": int64(1)}},
		{oneWay{"x"}, "x"},
	} {
		if found := must[any](t)(must[Value](t)(Encode(row.value)).Any()); !reflect.DeepEqual(found, row.want) {
			t.Errorf("%T is stored as %#v", row.value, found)
		}
	}
	_, err := As[oneWay](must[Value](t)(Encode(oneWay{"x"})))
	wantError(t, err, ErrBadValue)
}
