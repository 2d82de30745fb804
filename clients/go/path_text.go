package distkv

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The text form of paths, as DistKV's users type it: `a.b:1.c` is "a", "b", 1, "c".
//
// Strings are written as they are, with a dot before each but the first; everything else starts with a colon:
// `:e` the empty string, `:t` `:f` `:n`, `:12`, `:1:.5`, `:vabc` and `:y00ff` byte strings, `:'t',1` an array as
// Python writes a tuple. Within strings `:.` is a dot, `::` a colon, `:_` a space, and `:u0009` or `:u{e0041}` the
// character of that number, which is only read: commands print control characters so. `:` alone is the root.

const (
	shownChars       = 40 // as much of a text as an error repeats
	mostBracedDigits = 6  // as many hexadecimal digits as a character's number has
)

func validText(text string) bool { return utf8.ValidString(text) }

type textParser struct {
	text     string
	at       int
	elements []any
}

func (p *textParser) bad(at int, format string, args ...any) error {
	return usage(fmt.Sprintf("bad path: %s (at character %d)", fmt.Sprintf(format, args...),
		utf8.RuneCountInString(p.text[:at])+1))
}

// parseElements reads a path's text.
func parseElements(text string) ([]any, error) {
	if text == ":" {
		return nil, nil
	}
	p := &textParser{text: text}
	if text == "" {
		return nil, p.bad(0, "a path cannot be empty; the root is ':'")
	}
	if text[0] != ':' {
		if err := p.str(); err != nil {
			return nil, err
		}
	}
	for p.at < len(text) {
		if len(p.elements) > PathElementsMax {
			return nil, usage(fmt.Sprintf("a path has at most %d elements", PathElementsMax))
		}
		var err error
		switch {
		case text[p.at] == '.':
			p.at++
			err = p.str()
		case text[p.at] != ':':
			err = p.bad(p.at, "expected '.' or ':' or the end")
		case p.atEscape():
			err = p.str()
		default:
			err = p.typed()
		}
		if err != nil {
			return nil, err
		}
	}
	return p.elements, nil
}

func (p *textParser) rest() string { return p.text[p.at:] }

func (p *textParser) atEscape() bool {
	_, length := p.escape()
	return length > 0
}

// escape is the character that a colon escapes here within a string, and the length of the escape; 0 if there is none.
func (p *textParser) escape() (rune, int) {
	rest := p.rest()
	if len(rest) < 2 || rest[0] != ':' {
		return 0, 0
	}
	switch rest[1] {
	case '_':
		return ' ', 2
	case '.', ':':
		return rune(rest[1]), 2
	case 'u':
		return numbered(rest)
	}
	return 0, 0
}

// numbered is the character of a number behind `:u`: four hexadecimal digits, or up to six in braces.
func numbered(rest string) (rune, int) {
	digits, length := "", 6
	if len(rest) > 2 && rest[2] == '{' {
		end := strings.IndexByte(rest[:min(len(rest), 3+mostBracedDigits+1)], '}')
		if end <= 3 {
			return 0, 0
		}
		digits, length = rest[3:end], end+1
	} else if len(rest) >= length {
		digits = rest[2:length]
	}
	var number rune
	for _, digit := range []byte(digits) {
		value := hexDigit(digit)
		if value < 0 {
			return 0, 0
		}
		number = number<<4 | rune(value)
	}
	if digits == "" || !utf8.ValidRune(number) {
		return 0, 0
	}
	return number, length
}

func (p *textParser) str() error {
	start := p.at
	if content := p.content(); content != "" {
		p.elements = append(p.elements, content)
		return nil
	}
	for _, kind := range []string{":x", ":b", ":v", ":y", ":u"} {
		if strings.HasPrefix(p.rest(), kind) {
			return nil
		}
	}
	if strings.HasPrefix(p.rest(), ":") {
		return p.bad(start, "what starts with ':' needs no dot before it")
	}
	return p.bad(start, "an element is missing here; an empty string is written ':e', without the dot")
}

// content is what comes up to the next separator or the end, with the escapes taken out.
func (p *textParser) content() string {
	var b strings.Builder
	for p.at < len(p.text) && p.text[p.at] != '.' {
		c := p.text[p.at]
		if c == ':' {
			escaped, length := p.escape()
			if length == 0 {
				break
			}
			b.WriteRune(escaped)
			p.at += length
			continue
		}
		b.WriteByte(c)
		p.at++
	}
	return b.String()
}

func (p *textParser) typed() error {
	p.at++
	if p.at == len(p.text) {
		return p.bad(p.at, "expected something after ':' (a colon itself is '::')")
	}
	kind := p.text[p.at]
	switch kind {
	case 'e', 't', 'f', 'n':
		p.at++
		p.elements = append(p.elements, map[byte]any{'e': "", 't': true, 'f': false, 'n': nil}[kind])
		return nil
	}
	isBytes := strings.HasPrefix(p.rest(), "b'") || strings.HasPrefix(p.rest(), `b"`)
	if strings.IndexByte("xbvy", kind) >= 0 && !isBytes {
		p.at++
	}
	start := p.at
	if kind == 'u' {
		return p.bad(start+1, "expected a character's four hexadecimal digits after ':u', or up to six in braces")
	}
	if strings.IndexByte("xbvy0123456789+-iTFN('\"", kind) < 0 {
		r, _ := utf8.DecodeRuneInString(p.rest())
		return p.bad(start, "':%c' means nothing", r)
	}
	element, err := p.element(kind, p.content(), start, isBytes)
	if err != nil {
		return err
	}
	p.elements = append(p.elements, element)
	return nil
}

func (p *textParser) element(kind byte, content string, start int, isBytes bool) (any, error) {
	switch {
	case kind == 'b' && isBytes:
		return p.array(content, start)
	case kind == 'x' || kind == 'b':
		base, what := 16, "hexadecimal"
		if kind == 'b' {
			base, what = 2, "binary"
		}
		digits := strings.TrimPrefix(strings.TrimPrefix(content, "+"), "-")
		if strings.HasPrefix(digits, "+") || strings.HasPrefix(digits, "-") || len(content)-len(digits) > 1 {
			return nil, p.bad(start, "expected a %s number, found '%s'", what, shown(content))
		}
		number, ok := new(big.Int).SetString(digits, base)
		if !ok || strings.Contains(digits, "_") {
			return nil, p.bad(start, "expected a %s number, found '%s'", what, shown(content))
		}
		if strings.HasPrefix(content, "-") {
			number.Neg(number)
		}
		return p.integer(number, start)
	case kind == 'v':
		for i := range len(content) {
			if content[i] >= utf8.RuneSelf {
				return nil, p.bad(start, "expected ASCII after ':v'")
			}
		}
		return []byte(content), nil
	case kind == 'y':
		return p.hex(content, start)
	case strings.Contains(content, ",") || strings.HasPrefix(content, "(") ||
		strings.HasPrefix(content, "'") || strings.HasPrefix(content, `"`):
		return p.array(content, start)
	case kind == 'T' || kind == 'F' || kind == 'N':
		return nil, p.bad(start, "':%c' means nothing", kind)
	}
	return p.number(content, start)
}

func (p *textParser) hex(digits string, start int) (any, error) {
	found := make([]byte, 0, len(digits)/2)
	for i := 0; i+1 < len(digits); i += 2 {
		high, low := hexDigit(digits[i]), hexDigit(digits[i+1])
		if high < 0 || low < 0 {
			break
		}
		found = append(found, byte(high<<4|low))
	}
	if 2*len(found) != len(digits) {
		return nil, p.bad(start, "expected hexadecimal bytes, two digits each, after ':y'")
	}
	return found, nil
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// number is an integer, or a float if there is a dot, an exponent, or it is infinite.
func (p *textParser) number(text string, start int) (any, error) {
	digits := text
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		digits = text[1:]
	}
	if digits == "inf" {
		sign := 1
		if text[0] == '-' {
			sign = -1
		}
		return math.Inf(sign), nil
	}
	isInteger := digits != ""
	for i := range len(digits) {
		c := digits[i]
		if c < '0' || c > '9' {
			isInteger = false
			if strings.IndexByte(".eE+-", c) < 0 {
				return nil, p.bad(start, "expected a decimal number, found '%s'", shown(text))
			}
		}
	}
	if isInteger {
		if len(digits) > 1 && digits[0] == '0' {
			return nil, p.bad(start, "expected a decimal number, found '%s'", shown(text))
		}
		if len(digits) > shownChars {
			return nil, p.bad(start, "an integer in a path has at most 64 bits")
		}
		number, _ := new(big.Int).SetString(digits, 10)
		if text[0] == '-' {
			number.Neg(number)
		}
		return p.integer(number, start)
	}
	if digits == "" || (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9')) {
		return nil, p.bad(start, "expected a decimal number, found '%s'", shown(text))
	}
	number, err := strconv.ParseFloat(text, 64)
	if math.IsInf(number, 0) {
		return nil, p.bad(start, "the float '%s' is too great", shown(text))
	}
	if err != nil {
		return nil, p.bad(start, "expected a decimal number, found '%s'", shown(text))
	}
	return number, nil
}

func (p *textParser) integer(number *big.Int, start int) (any, error) {
	if number.IsInt64() {
		return number.Int64(), nil
	}
	if number.IsUint64() {
		return number.Uint64(), nil
	}
	return nil, p.bad(start, "an integer in a path has at most 64 bits")
}

func shown(text string) string {
	if runes := []rune(text[:min(len(text), 4*shownChars)]); len(runes) > shownChars {
		return string(runes[:shownChars]) + "…"
	}
	return text
}

// formatElements writes a path's text: each path has one.
func formatElements(elements []any) string {
	if len(elements) == 0 {
		return ":"
	}
	var b strings.Builder
	for i, element := range elements {
		switch e := element.(type) {
		case string:
			switch {
			case e == "":
				b.WriteString(":e")
			case i > 0:
				b.WriteByte('.')
				fallthrough
			default:
				escape(&b, e)
			}
		case nil:
			b.WriteString(":n")
		case bool:
			b.WriteString(map[bool]string{true: ":t", false: ":f"}[e])
		case []byte:
			if isPlain(e) {
				b.WriteString(":v")
				escape(&b, string(e))
			} else {
				fmt.Fprintf(&b, ":y%x", e)
			}
		case []any:
			b.WriteByte(':')
			escape(&b, arrayText(e))
		default:
			b.WriteByte(':')
			escape(&b, itemText(e))
		}
	}
	return b.String()
}

func isPlain(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

func escape(b *strings.Builder, text string) {
	for i := range len(text) {
		switch c := text[i]; c {
		case '.', ':':
			b.WriteByte(':')
			b.WriteByte(c)
		case ' ':
			b.WriteString(":_")
		default:
			b.WriteByte(c)
		}
	}
}
