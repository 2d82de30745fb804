package distkv

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"distkv.example/client/internal/msgpack"
)

// fixtures is where the certificates of tests are.
func fixtures(t testing.TB, name string) string {
	folder := os.Getenv("DISTKV_FIXTURES")
	if folder == "" {
		folder = "../../tests/fixtures"
	}
	return filepath.Join(folder, name)
}

// readJSON reads vectors that the Rust code is tested with, too.
func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	folder := os.Getenv("DISTKV_VECTORS")
	if folder == "" {
		folder = "../conformance/vectors"
	}
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func elementOfJSON(t *testing.T, told []any) any {
	if told[0] == "nil" {
		return nil
	}
	switch text, _ := told[1].(string); told[0] {
	case "str":
		return text
	case "bool":
		return told[1].(bool)
	case "int":
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number
		}
		number, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return number
	case "float":
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return number
	case "bin":
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	items := []any{}
	for _, item := range told[1].([]any) {
		items = append(items, elementOfJSON(t, item.([]any)))
	}
	return items
}

type pathRow struct {
	Text     string
	Elements [][]any
	Printed  *string
	Ours     *string
}

func (r pathRow) path(t *testing.T) Path {
	var elements []any
	for _, told := range r.Elements {
		elements = append(elements, elementOfJSON(t, told))
	}
	path, err := NewPath(elements...)
	if err != nil {
		t.Fatal(r, err)
	}
	return path
}

func TestPathTextsAreAsInTheVectors(t *testing.T) {
	var vectors struct {
		Both, Read, Differs, Own []pathRow
		Refused                  []string
		Otherwise                []pathRow `json:"written_otherwise"`
	}
	readJSON(t, "path_text.json", &vectors)
	if len(vectors.Both) < 800 || len(vectors.Read) < 100 || len(vectors.Refused) < 200 || len(vectors.Differs) < 50 ||
		len(vectors.Otherwise) < 50 {
		t.Fatal("the vectors have lost their rows")
	}
	for _, row := range append(append(vectors.Both, vectors.Read...), vectors.Otherwise...) {
		path, err := ParsePath(row.Text)
		if err != nil || path != row.path(t) {
			t.Errorf("%q is read as %v, %v", row.Text, path.Elements(), err)
		}
		written := row.Text
		if row.Printed != nil {
			written = *row.Printed
		}
		if path.String() != written {
			t.Errorf("%q is written as %q", written, path)
		}
	}
	for _, text := range vectors.Refused {
		if path, err := ParsePath(text); err == nil {
			t.Errorf("%q is read as %v", text, path.Elements())
		}
	}
	if len(vectors.Own) < 10 {
		t.Fatal("the vectors have lost what only this project reads")
	}
	for _, row := range append(vectors.Differs, vectors.Own...) {
		path, err := ParsePath(row.Text)
		if (err == nil) != (row.Ours != nil) || (err == nil && path.String() != *row.Ours) {
			t.Errorf("%q is read as %v, %v", row.Text, path, err)
		}
	}
}

func TestKeysHashAndShardAsElsewhere(t *testing.T) {
	var vectors struct {
		Keys []struct {
			Key    string
			XXH64  string
			Shard  int `json:"shard_1024"`
			Shard2 int `json:"shard_256"`
		}
		Jump []struct {
			Hash   string
			Of100  int `json:"buckets_100"`
			Of1024 int `json:"buckets_1024"`
		}
	}
	readJSON(t, "hashes.json", &vectors)
	if len(vectors.Keys) != 25 || len(vectors.Jump) < 8 {
		t.Fatal("the vectors have lost their rows")
	}
	for _, row := range vectors.Keys {
		number := hashKey(row.Key)
		if strconv.FormatUint(number, 10) != row.XXH64 || jumpHash(number, 1024) != row.Shard ||
			jumpHash(number, 256) != row.Shard2 || PathOf(row.Key, "below").Shard() != row.Shard {
			t.Errorf("%q: %d", row.Key, number)
		}
		if hashKey([]byte(row.Key)) != number {
			t.Errorf("%q hashes otherwise as bytes", row.Key)
		}
	}
	for _, row := range vectors.Jump {
		number, err := strconv.ParseUint(row.Hash, 10, 64)
		if err != nil || jumpHash(number, 100) != row.Of100 || jumpHash(number, 1024) != row.Of1024 {
			t.Error(row)
		}
	}
}

func TestOtherElementsShardByTheirBytes(t *testing.T) {
	for _, row := range []struct {
		path Path
		key  string
	}{
		{PathOf(5), "\x05"}, {PathOf(300, true), "\xcd\x01\x2c"}, {PathOf(nil, "a"), "\xc0"},
		{PathOf([]byte("a"), "b"), "\xc4\x01a"}, {PathOf(1.5), "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"},
		{Path{}, ""}, {PathOf(""), ""},
	} {
		if row.path.Shard() != shardOfKey(row.key) {
			t.Errorf("%v: shard %d, not %d", row.path, row.path.Shard(), shardOfKey(row.key))
		}
	}
	if place := PathOf("hello").Place(); place != [16]byte{309 >> 2, 309 << 6 & 0xff} {
		t.Error(place)
	}
}

func TestTrueOneAndOnePointZeroAreThreePaths(t *testing.T) {
	paths := map[Path]bool{PathOf("a", true): true, PathOf("a", 1): true, PathOf("a", 1.0): true}
	if len(paths) != 3 || PathOf("a", 1.0).String() != "a:1:.0" || PathOf("a", 1) != PathOf("a", uint8(1)) {
		t.Error(paths)
	}
}

func TestWhatNoNodeTakesIsRefused(t *testing.T) {
	nested := func(levels int) any {
		found := []any{}
		for range levels - 1 {
			found = []any{found}
		}
		return found
	}
	many := make([]any, PathElementsMax+1)
	for i := range many {
		many[i] = "x"
	}
	for _, elements := range [][]any{{"a", nil}, {math.NaN()}, {map[string]any{}}, {strings.Repeat("x", 4096)}, many,
		{"\xff"}, {nested(17)}} {
		if _, err := NewPath(elements...); err == nil {
			t.Errorf("%v is a path", elements)
		}
	}
	path := PathOf(nested(16))
	if read, err := ParsePath(path.String()); err != nil || read != path {
		t.Error(read, err)
	}
}

func TestPathsHaveParts(t *testing.T) {
	path := MustPath("site.hall.lamp")
	if path.Parent() != MustPath("site.hall") || path.Last() != "lamp" || path.Len() != 3 || !path.HasPrefix(MustPath("site")) {
		t.Error(path.Parent(), path.Last(), path.Len())
	}
	if (Path{}).Parent() != (Path{}) || (Path{}).String() != ":" || MustPath("a").Parent() != (Path{}) {
		t.Error("the root is its own parent")
	}
	if joined := MustPath("site").MustJoin("hall", "lamp"); joined != path {
		t.Error(joined)
	}
	var read Path
	if err := json.Unmarshal([]byte(`"site.hall.lamp"`), &read); err != nil || read != path {
		t.Error(read, err)
	}
}

func FuzzPathText(f *testing.F) {
	for _, text := range []string{":", "a.b:1.c", ":'t',1", ":(b'x',)", ":y00ff", ":1:.5", "a:", ":-inf", `:'\u00e9',`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ParsePath(text)
		if err != nil {
			return
		}
		if read, err := ParsePath(path.String()); err != nil || read != path {
			t.Errorf("%q is written as %q, which is read as %v, %v", text, path, read, err)
		}
	})
}

func FuzzPathBytes(f *testing.F) {
	f.Add([]byte("\xa1a\x01\xc3"))
	f.Add([]byte("\xc7\x05\x03\xa2mq\xa1a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path, err := pathFromBytes(data)
		if err != nil {
			return
		}
		if again, err := pathFromBytes([]byte(path.canonical)); err != nil || again != path {
			t.Errorf("%x: %v, %v", data, again, err)
		}
		if read, err := ParsePath(path.String()); err != nil || read != path {
			t.Errorf("%x is written as %q, which is read as %v, %v", data, path, read, err)
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte("\x81\xa5value\x01"), uint8(3))
	f.Add([]byte("\x82\xa3seq\x01\xa5value\x93\x01\xc0\xa3abc\x81\x92\x01\x02\x03"), uint8(1))
	f.Add([]byte("\x81\xa1x\xc6\xff\xff\xff\xff"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		// Cut in one way and in another, there are the same messages.
		whole, wholeErr := splitAll(data, len(data))
		pieces, piecesErr := splitAll(data, int(size)+1)
		if strings.Join(whole, "|") != strings.Join(pieces, "|") || (wholeErr == nil) != (piecesErr == nil) {
			t.Errorf("%x: %q, %v in one, %q, %v in pieces", data, whole, wholeErr, pieces, piecesErr)
		}
		for _, one := range whole {
			m := message(one)
			_ = m.check()
			_, _ = m.entry("n")
			_, _ = m.written("n", 1, true)
			_, _, _ = decodeView(m)
			_, _ = readGreeting(m)
			if value, err := decodeAny(m); err == nil {
				encoded, err := Encode(value)
				if err != nil {
					continue // Too deep for a program's value, or another's idea of a number.
				}
				if _, err := decodeAny(encoded); err != nil {
					t.Errorf("%x is %v, written %x: %v", one, value, encoded, err)
				}
			}
		}
	})
}

func splitAll(data []byte, size int) ([]string, error) {
	var s msgpack.Splitter
	var found []string
	for len(data) > 0 {
		count := copy(s.Room(), data[:min(size, len(data))])
		s.Read(count)
		data = data[count:]
		for {
			m, err := s.Next()
			if err != nil {
				return found, err
			}
			if m == nil {
				break
			}
			found = append(found, string(m))
		}
	}
	return found, nil
}
