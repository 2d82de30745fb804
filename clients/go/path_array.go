package distkv

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Arrays in the text of paths: as DistKV writes tuples, in the words of Python. Items are quoted strings, byte strings
// (b'…'), numbers, True, False, None, and arrays in parentheses, which are left out around the outermost items. The rest
// of Python's grammar is refused.

// arrayNestingMax bounds the recursion: the outermost items may turn out to be a single array.
const arrayNestingMax = PathNestingMax + 1

type arrayParser struct {
	outer *textParser
	whole string
	rest  string
	start int
}

// arrayList is what stands up to a closing parenthesis, or to the end.
type arrayList struct {
	items    []any
	hasComma bool
}

func (p *textParser) array(text string, start int) (any, error) {
	parser := &arrayParser{p, text, text, start}
	list, err := parser.list(1)
	if err != nil {
		return nil, err
	}
	parser.skipSpaces()
	if parser.rest != "" {
		return nil, parser.bad("expected a comma or the end of the array")
	}
	if list.hasComma {
		return list.items, nil
	}
	// Parentheses around all of it.
	if len(list.items) == 1 {
		if only, ok := list.items[0].([]any); ok {
			return only, nil
		}
	}
	return nil, parser.bad("an array of one item has a comma behind it, as in ('a',)")
}

func (p *arrayParser) bad(problem string) error {
	return p.outer.bad(p.start, "bad array \"%s\": %s", shown(p.whole), problem)
}

func (p *arrayParser) skipSpaces() { p.rest = strings.TrimLeft(p.rest, " ") }

func (p *arrayParser) list(level int) (arrayList, error) {
	list := arrayList{items: []any{}}
	if level > arrayNestingMax {
		return list, p.bad("it is too deep")
	}
	for {
		p.skipSpaces()
		if p.rest == "" || p.rest[0] == ')' {
			return list, nil
		}
		item, err := p.item(level)
		if err != nil {
			return list, err
		}
		list.items = append(list.items, item)
		p.skipSpaces()
		if !strings.HasPrefix(p.rest, ",") {
			return list, nil
		}
		p.rest = p.rest[1:]
		list.hasComma = true
	}
}

func (p *arrayParser) item(level int) (any, error) {
	switch {
	case p.rest[0] == '(':
		p.rest = p.rest[1:]
		inner, err := p.list(level + 1)
		if err != nil {
			return nil, err
		}
		if p.rest == "" {
			return nil, p.bad("a quote or a parenthesis is not closed")
		}
		if p.rest[0] != ')' {
			return nil, p.bad("expected a comma or the end of the array")
		}
		p.rest = p.rest[1:]
		if len(inner.items) == 1 && !inner.hasComma {
			return nil, p.bad("an array of one item has a comma behind it, as in ('a',)")
		}
		return inner.items, nil
	case p.rest[0] == '\'' || p.rest[0] == '"':
		return p.quoted(true)
	case strings.HasPrefix(p.rest, "b'") || strings.HasPrefix(p.rest, `b"`):
		p.rest = p.rest[1:]
		text, err := p.quoted(false)
		return []byte(text), err
	}
	end := strings.IndexAny(p.rest, ",) ")
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	switch word {
	case "None":
		return nil, nil
	case "True":
		return true, nil
	case "False":
		return false, nil
	}
	if word != "" && strings.IndexByte("0123456789+-i", word[0]) >= 0 {
		return p.outer.number(word, p.start)
	}
	return nil, p.bad("expected a quoted string, a number, True, False, None or '('")
}

// quoted reads a text, or the bytes of a byte string.
func (p *arrayParser) quoted(isText bool) (string, error) {
	quote := p.rest[0]
	var b strings.Builder
	at := 1
	for at < len(p.rest) {
		c := p.rest[at]
		switch {
		case c == quote:
			p.rest = p.rest[at+1:]
			return b.String(), nil
		case c == '\\' && at+1 < len(p.rest):
			size, err := p.escaped(&b, p.rest[at+1:], isText)
			if err != nil {
				return "", err
			}
			at += 1 + size
		case c >= utf8.RuneSelf && !isText:
			return "", p.bad("a byte string holds something other than ASCII")
		default:
			b.WriteByte(c)
			at++
		}
	}
	return "", p.bad("a quote or a parenthesis is not closed")
}

// escaped reads what stands behind a backslash, and returns how long that is.
func (p *arrayParser) escaped(b *strings.Builder, rest string, isText bool) (int, error) {
	digits := 0
	switch rest[0] {
	case '\\', '\'', '"':
		b.WriteByte(rest[0])
		return 1, nil
	case 'n':
		b.WriteByte('\n')
		return 1, nil
	case 'r':
		b.WriteByte('\r')
		return 1, nil
	case 't':
		b.WriteByte('\t')
		return 1, nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	if digits == 0 || (digits > 2 && !isText) || len(rest) < 1+digits {
		return 0, p.bad("an escape means nothing; a backslash itself is written twice")
	}
	number := rune(0)
	for i := range digits {
		digit := hexDigit(rest[1+i])
		if digit < 0 || number > utf8.MaxRune {
			return 0, p.bad("an escape means nothing; a backslash itself is written twice")
		}
		number = number<<4 | rune(digit)
	}
	switch {
	case !isText:
		b.WriteByte(byte(number))
	case !utf8.ValidRune(number):
		return 0, p.bad("an escape means nothing; a backslash itself is written twice")
	default:
		b.WriteRune(number)
	}
	return 1 + digits, nil
}

// arrayText is the text of an array that is a path's element.
func arrayText(items []any) string {
	if len(items) > 1 {
		if _, isBytes := items[0].([]byte); !isBytes {
			return itemsText(items, ",")
		}
	}
	return itemText(items)
}

func itemsText(items []any, separator string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = itemText(item)
	}
	return strings.Join(texts, separator)
}

// itemText is an element as Python writes it.
func itemText(item any) string {
	switch e := item.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[e]
	case int64:
		return strconv.FormatInt(e, 10)
	case uint64:
		return strconv.FormatUint(e, 10)
	case float64:
		return floatText(e)
	case string:
		return textText(e)
	case []byte:
		return bytesText(e)
	case []any:
		if len(e) == 1 {
			return "(" + itemText(e[0]) + ",)"
		}
		return "(" + itemsText(e, ", ") + ")"
	}
	return fmt.Sprint(item)
}

// floatText is a float as Python writes it: the fewest digits that read back equal, always with a dot or an exponent.
func floatText(number float64) string {
	if math.IsInf(number, 0) {
		return map[bool]string{true: "-inf", false: "inf"}[number < 0]
	}
	text := strconv.FormatFloat(number, 'e', -1, 64)
	_, exponent, _ := strings.Cut(text, "e")
	if power, _ := strconv.Atoi(exponent); power >= -4 && power < 16 {
		text = strconv.FormatFloat(number, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
	}
	return text
}

func quoteFor(text string) byte {
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		return '"'
	}
	return '\''
}

func textText(text string) string {
	quote := quoteFor(text)
	var b strings.Builder
	b.WriteByte(quote)
	for _, c := range text {
		if !simpleEscape(&b, c, quote) {
			switch {
			case unicode.IsPrint(c):
				b.WriteRune(c)
			case c < 0x100:
				fmt.Fprintf(&b, `\x%02x`, c)
			case c < 0x10000:
				fmt.Fprintf(&b, `\u%04x`, c)
			default:
				fmt.Fprintf(&b, `\U%08x`, c)
			}
		}
	}
	b.WriteByte(quote)
	return b.String()
}

func bytesText(data []byte) string {
	quote := quoteFor(string(data))
	var b strings.Builder
	b.WriteByte('b')
	b.WriteByte(quote)
	for _, c := range data {
		if !simpleEscape(&b, rune(c), quote) {
			if c >= ' ' && c <= '~' {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		}
	}
	b.WriteByte(quote)
	return b.String()
}

func simpleEscape(b *strings.Builder, c rune, quote byte) bool {
	switch c {
	case '\\':
		b.WriteString(`\\`)
	case '\n':
		b.WriteString(`\n`)
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	case rune(quote):
		b.WriteByte('\\')
		b.WriteByte(quote)
	default:
		return false
	}
	return true
}
