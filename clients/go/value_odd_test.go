package distkv

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// Values in types that are seldom used: what fits comes back, what does not is an error, and nothing panics or is lost.

type octet byte

// returns checks that what is written can be read as the same type.
func returns[T any](t *testing.T, value T) {
	t.Helper()
	encoded := must[Value](t)(Encode(value))
	if found, err := As[T](encoded); err != nil || !reflect.DeepEqual(found, value) {
		t.Errorf("%T: %v, not %v: %v", value, found, value, err)
	}
}

func TestWhatIsWrittenComesBackInOddTypes(t *testing.T) {
	returns(t, [6]octet{1, 2})
	returns(t, &[2]octet{1, 2})
	returns(t, []octet{1, 2})
	returns(t, map[[2]octet]int{{1, 2}: 3})
	returns(t, uintptr(7))
	returns(t, Map(nil))
	returns(t, struct{ Attrs Map }{})
	returns(t, Map{{"z", int64(1)}, {"a", int64(2)}, {int64(1), "b"}, {"a", nil}})
	returns(t, struct {
		Name  string
		Wrong error
	}{Name: "x"})
	if must[Value](t)(Encode([2]octet{1, 2})).String() != must[Value](t)(Encode([2]byte{1, 2})).String() {
		t.Error("named bytes are bytes")
	}
	client := sharedClient(t)
	path := base()
	put(t, client, path, [2]octet{1, 2}, nil)
	put(t, client, path, 1, &PutOptions{IfValue: [2]octet{1, 2}})
}

// Go's years wrap around before its seconds do.
func TestATimeThatGoHasNoYearForIsKeptAsItIs(t *testing.T) {
	at := func(seconds int64) Value { return appendTime(nil, time.Unix(seconds, 7)) }
	for _, seconds := range []int64{timeMin, timeMin + 1, 0, timeMax - 1, timeMax} {
		found, err := at(seconds).Any()
		if when, isTime := found.(time.Time); err != nil || !isTime || when.Unix() != seconds || (when.Year() < 0) != (seconds < 0) {
			t.Errorf("%d: %v, %v", seconds, found, err)
		}
	}
	for _, seconds := range []int64{math.MinInt64, timeMin - 1, timeMax + 1, math.MaxInt64} {
		found, err := at(seconds).Any()
		kept, isExt := found.(Ext)
		if err != nil || !isExt || kept.Type != extTime {
			t.Errorf("%d: %v, %v", seconds, found, err)
		}
		if again, err := Encode(found); err != nil || string(again) != string(at(seconds)) {
			t.Errorf("%d: %x, %v", seconds, []byte(again), err)
		}
		wantError(t, at(seconds).Decode(new(time.Time)), ErrBadValue)
	}
}

func TestPointersAreNoLevelsWhereAValueIsRead(t *testing.T) {
	type link struct {
		Next **link `msgpack:"next,omitempty"`
	}
	last := &link{}
	for range valueDepthMax - 1 {
		inner := last
		last = &link{&inner}
	}
	returns(t, last)
	type pointer *pointer
	_, err := As[pointer](Value{1})
	wantError(t, err, ErrBadValue)
}

func TestNoEntryOfAMapIsLostInSilence(t *testing.T) {
	refuse := func(value any, into any) {
		t.Helper()
		wantError(t, must[Value](t)(Encode(value)).Decode(into), ErrBadValue)
	}
	refuse(Map{{1, "a"}, {1.0, "b"}}, &map[float64]string{})
	refuse(Map{{"a", 1}, {"a", 2}}, &map[string]int{})
	refuse(Map{{"A", 1}, {"A", 2}}, &struct{ A int }{})
	refuse(Map{{[]any{[]int{1}}, 2}}, &map[[1]any]int{})
	refuse(Map{{[]any{map[string]int{}}, 2}}, &map[[1]any]int{})
	kept := map[[1]any]int{}
	if err := must[Value](t)(Encode(Map{{[]any{1}, 2}, {[]any{1.0}, 3}})).Decode(&kept); err != nil || len(kept) != 2 {
		t.Error(kept, err)
	}
	nans := map[float64]int{}
	if err := must[Value](t)(Encode(Map{{math.NaN(), 1}, {math.NaN(), 2}})).Decode(&nans); err != nil || len(nans) != 2 {
		t.Error(nans, err)
	}
}

func TestANumberBeyondAFloatsRangeIsRefused(t *testing.T) {
	for _, number := range []float64{1e300, -1e300, math.MaxFloat64} {
		_, err := As[float32](must[Value](t)(Encode(number)))
		wantError(t, err, ErrBadValue)
	}
	for _, number := range []float64{math.Inf(1), math.Inf(-1), math.MaxFloat32, 0.1, 1e-300} {
		if found, err := As[float32](must[Value](t)(Encode(number))); err != nil || found != float32(number) {
			t.Error(number, found, err)
		}
	}
	// The nearest one, as everywhere in Go.
	if found, err := As[float64](must[Value](t)(Encode(int64(1<<53 + 1)))); err != nil || found != 1<<53 {
		t.Error(found, err)
	}
}
