package distkv

import (
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Which fields of a struct are stored, and what is stored of types that write themselves as text: nothing is lost in silence.

type keyed struct {
	ID   int
	Kind string
}

type inner struct{ Level int }

type shout struct{ Word string }

func (s *shout) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(s.Word)), nil }

func (s *shout) UnmarshalText(text []byte) error {
	s.Word = strings.ToLower(string(text))
	return nil
}

type mute struct{ Word string }

var errMute = errors.New("no text for you")

func (mute) MarshalText() ([]byte, error) { return nil, errMute }

type stamped struct {
	time.Time
	Name string
}

// named has a text of its own, although its time brings one.
type named struct {
	time.Time
	Name string
}

func (n named) MarshalText() ([]byte, error) { return []byte(n.Name), nil }

// maybe has a text of its own, which its time has not, where there is none.
type maybe struct{ *time.Time }

func (m maybe) MarshalText() ([]byte, error) {
	if m.Time == nil {
		return []byte("never"), nil
	}
	return m.Time.MarshalText()
}

func (m *maybe) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		m.Time = nil
		return nil
	}
	m.Time = new(time.Time)
	return m.Time.UnmarshalText(text)
}

// comesBack tells that a value is read as it was written, at the top and within others, by value and by pointer.
func comesBack[T any](t *testing.T, value T, isSame func(a, b T) bool) {
	t.Helper()
	type box struct{ In T }
	direct := must[T](t)(As[T](must[Value](t)(Encode(value))))
	pointed := must[T](t)(As[T](must[Value](t)(Encode(&value))))
	boxed := must[box](t)(As[box](must[Value](t)(Encode(box{value}))))
	listed := must[[]T](t)(As[[]T](must[Value](t)(Encode([]T{value}))))
	mapped := must[map[string]T](t)(As[map[string]T](must[Value](t)(Encode(map[string]T{"a": value}))))
	for _, found := range []T{direct, pointed, boxed.In, listed[0], mapped["a"]} {
		if !isSame(found, value) {
			t.Errorf("%+v came back as %+v", value, found)
		}
	}
}

func TestTheOuterFieldOfSeveralWithOneNameIsStored(t *testing.T) {
	type user struct {
		keyed
		ID   string
		Name string
	}
	type reversed struct {
		ID string
		keyed
	}
	type tagged struct {
		keyed
		Number int `msgpack:"ID"`
	}
	type other struct {
		Word string `msgpack:"Kind"`
	}
	type oneTagged struct {
		keyed
		other
	}
	type deepest struct {
		user
		inner `msgpack:"in"`
	}
	same := func(a, b any) bool { return reflect.DeepEqual(a, b) }
	comesBack[any](t, map[string]any{}, same)
	for _, row := range []struct {
		value any
		want  map[string]any
	}{
		{user{keyed{7, "k"}, "u-1", "Ann"}, map[string]any{"ID": "u-1", "Kind": "k", "Name": "Ann"}},
		{reversed{"u-1", keyed{7, "k"}}, map[string]any{"ID": "u-1", "Kind": "k"}},
		{tagged{keyed{7, "k"}, 9}, map[string]any{"ID": int64(9), "Kind": "k"}},
		{oneTagged{keyed{7, "k"}, other{"w"}}, map[string]any{"ID": int64(7), "Kind": "w"}},
		{deepest{user{keyed{7, "k"}, "u-1", "Ann"}, inner{3}},
			map[string]any{"ID": "u-1", "Kind": "k", "Name": "Ann", "in": map[string]any{"Level": int64(3)}}},
	} {
		encoded := must[Value](t)(Encode(row.value))
		if found := must[any](t)(encoded.Any()); !reflect.DeepEqual(found, any(row.want)) {
			t.Errorf("%+v is stored as %v", row.value, found)
		}
		read := reflect.New(reflect.TypeOf(row.value))
		if err := encoded.Decode(read.Interface()); err != nil {
			t.Error(err)
		}
		again := must[Value](t)(Encode(read.Interface()))
		if string(again) != string(encoded) {
			t.Errorf("%+v is read as %+v", row.value, read.Elem())
		}
	}
	found := must[user](t)(As[user](must[Value](t)(Encode(user{keyed{7, "k"}, "u-1", "Ann"}))))
	if found != (user{keyed{0, "k"}, "u-1", "Ann"}) {
		t.Errorf("%+v", found)
	}
}

func TestFieldsThatCannotBeToldApartAreRefused(t *testing.T) {
	type second struct{ ID string }
	type twice struct {
		keyed
		second
	}
	type oneTag struct {
		A int `msgpack:"x"`
		B int `msgpack:"x"`
	}
	type below struct{ oneTag }
	type left struct{ keyed }
	type right struct{ keyed }
	type diamond struct {
		left
		right
	}
	type hidden struct {
		twice
		ID bool
	}
	type byPointer struct {
		*keyed
		Name string
	}
	for _, bad := range []any{twice{}, oneTag{}, below{}, diamond{}, []any{&twice{}}, map[string]twice{"a": {}}, byPointer{}} {
		_, err := Encode(bad)
		if wantError(t, err, ErrBadValue); !strings.Contains(err.Error(), "distkv.") {
			t.Errorf("%T: %v", bad, err)
		}
	}
	_, err := As[twice](must[Value](t)(Encode(keyed{})))
	wantError(t, err, ErrBadValue)
	if found := must[any](t)(must[Value](t)(Encode(hidden{ID: true})).Any()); !reflect.DeepEqual(found, map[string]any{"ID": true, "Kind": ""}) {
		t.Error(found)
	}
}

func TestWhatWritesItselfAsTextComesBack(t *testing.T) {
	sameFloat := func(a, b big.Float) bool { return a.Cmp(&b) == 0 }
	comesBack(t, *big.NewFloat(1.5), sameFloat)
	comesBack(t, *big.NewRat(1, 3), func(a, b big.Rat) bool { return a.Cmp(&b) == 0 })
	comesBack(t, *big.NewInt(-5), func(a, b big.Int) bool { return a.Cmp(&b) == 0 })
	comesBack(t, netip.MustParseAddr("fe80::1%eth0"), func(a, b netip.Addr) bool { return a == b })
	comesBack(t, netip.Prefix{}, func(a, b netip.Prefix) bool { return a == b })
	comesBack(t, time.Unix(5, 6), func(a, b time.Time) bool { return a.Equal(b) })
	comesBack(t, time.Time{}, func(a, b time.Time) bool { return a.Equal(b) })
	comesBack(t, shout{"a"}, func(a, b shout) bool { return a == b })
	comesBack(t, *regexp.MustCompile("a+"), func(a, b regexp.Regexp) bool { return a.String() == b.String() })
	comesBack(t, url.URL{Scheme: "http", Host: "x", Path: "/y"}, func(a, b url.URL) bool { return a == b })
	comesBack(t, struct{ time.Time }{time.Unix(5, 6).UTC()}, func(a, b struct{ time.Time }) bool { return a.Equal(b.Time) })
	if text := must[string](t)(As[string](must[Value](t)(Encode(named{Name: "a"})))); text != "a" {
		t.Error(text)
	}
	comesBack(t, maybe{}, func(a, b maybe) bool { return a == b })
	// Two that each bring a text bring none.
	type both struct {
		time.Time
		netip.Addr
		Name string
	}
	comesBack(t, both{time.Unix(5, 6).UTC(), netip.MustParseAddr("::1"), "a"}, func(a, b both) bool { return a == b })
	_, err := As[struct{ *big.Float }](must[Value](t)(Encode(struct{ *big.Float }{big.NewFloat(1.5)})))
	wantError(t, err, ErrBadValue)
	_, err = As[big.Float](must[Value](t)(Encode(map[string]any{})))
	wantError(t, err, ErrBadValue)
}

func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	_, err := Encode([]mute{{"x"}})
	if wantError(t, err, ErrBadValue); !errors.Is(err, errMute) {
		t.Error(err)
	}
	type counter struct{ count int }
	type counters struct{ Of []counter }
	address := must[*url.URL](t)(url.Parse("http://me:secret@x/y"))
	type ratio struct {
		*big.Float
		Name string
	}
	type moment struct{ *time.Time }
	for _, bad := range []any{ratio{}, ratio{big.NewFloat(1.5), "a"}, moment{}, errors.New("x"), &counter{1}, counters{[]counter{{1}}}, struct{ sync.Mutex }{}, address, mute{},
		stamped{time.Unix(5, 6), "a"}, []stamped{{}}, struct{ Mu sync.Mutex }{}} {
		_, err := Encode(bad)
		wantError(t, err, ErrBadValue)
	}
	type mixed struct {
		sync.Mutex
		counter
		Name string
		left counter
		_    int
	}
	for _, good := range []any{&mixed{Name: "a"}, struct{}{}, struct{ _ int }{}, struct {
		Secret string `msgpack:"-"`
	}{}} {
		if _, err := Encode(good); err != nil {
			t.Errorf("%T: %v", good, err)
		}
	}
}

func TestAnErrorNamesTheFieldThatDoesNotFit(t *testing.T) {
	type lamp struct {
		Level int8 `msgpack:"level"`
	}
	type site struct {
		Lamps []lamp               `msgpack:"lamps"`
		Named map[string]*lamp     `msgpack:"named"`
		Pairs map[int][2]time.Time `msgpack:"pairs"`
	}
	for name, value := range map[string]any{
		"does not fit int8: it is a text (at lamps[1].level)": map[string]any{
			"lamps": []any{map[string]any{}, map[string]any{"level": "x"}}},
		"does not fit int8: it is an integer (at named[\"a b\"].level)": map[string]any{
			"named": map[string]any{"a b": map[string]any{"level": 500}}},
		"(at named[\"" + strings.Repeat("a", 40) + "\"…])": map[string]any{
			"named": map[string]any{strings.Repeat("a", 99): 5}},
		"does not fit time.Time: it is an integer (at pairs[-7][0])": map[string]any{
			"pairs": map[int]any{-7: []any{5, 5}}},
		"the value does not fit distkv.site: it is an integer": 5,
	} {
		encoded, err := Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		var found site
		err = encoded.Decode(&found)
		wantError(t, err, ErrBadValue)
		if err == nil || !strings.HasSuffix(err.Error(), name) {
			t.Errorf("%v is told, and not %s", err, name)
		}
	}
}
