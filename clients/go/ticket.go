package distkv

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"unicode"

	"distkv.example/client/internal/msgpack"
)

// Bounds of a ticket.
const (
	ticketStart        = "distkv1."
	ticketAddressesMax = 16
	ticketTextMax      = 1024 // bytes of one address, name, method or secret
	ticketChainMax     = 4
	ticketBytesMax     = 64 << 10
)

// Ticket is where the nodes are, how they are known, and who one is, in one text.
type Ticket struct {
	Addresses    []string
	Network      string
	Method, User string
	// CAHash is the SHA-256 of the CA's certificate; none: plain text.
	CAHash []byte

	secret hidden
	chain  [][]byte
	key    hidden
}

// String has nothing secret.
func (t Ticket) String() string { return fmt.Sprintf("Ticket(%s, %s)", t.Network, t.User) }

// Format has nothing secret either, whatever the verb is.
func (t Ticket) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, t.String()) }

// LogValue has nothing secret either.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ReadTicket reads a ticket, or "@" and the name of a file that holds one. The error is an [ErrUsage].
func ReadTicket(text string) (Ticket, error) {
	text = strings.TrimSpace(text)
	if name, isFile := strings.CutPrefix(text, "@"); isFile {
		data, err := readTicketFile(name)
		if err != nil {
			return Ticket{}, usage("the ticket's file cannot be read: " + err.Error())
		}
		text = string(data)
	}
	return parseTicket(text)
}

// parseTicket reads a ticket, with white space around it.
func parseTicket(text string) (Ticket, error) {
	text = strings.TrimSpace(text)
	encoded, isTicket := strings.CutPrefix(text, ticketStart)
	if !isTicket {
		version, _, hasDot := strings.Cut(strings.TrimPrefix(text, "distkv"), ".")
		isNumber := version != "" && strings.TrimFunc(version, unicode.IsDigit) == ""
		if strings.HasPrefix(text, "distkv") && hasDot && isNumber {
			return Ticket{}, usage("this ticket is of a later version of distkv")
		}
		return Ticket{}, usage("this is no ticket: a ticket begins with \"" + ticketStart + "\", or is @ and a file's name")
	}
	damaged := usage("the ticket is damaged: it was cut or mistyped; copy it again, whole")
	data, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(encoded, "="))
	if err != nil || len(text) > ticketBytesMax || len(data) < 4 {
		return Ticket{}, damaged
	}
	content, checksum := data[:len(data)-4], data[len(data)-4:]
	sum := sha256.Sum256(content)
	head, err := msgpack.ReadHead(content)
	if string(sum[:4]) != string(checksum) || err != nil || head.Kind != msgpack.Map || msgpack.Whole(content) != nil {
		return Ticket{}, damaged
	}
	return ticketOf(message(content), damaged)
}

// readTicketFile reads a file, and of one that is too long to be a ticket only so much that this is seen.
func readTicketFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// With the end of its line, and one byte that shows that there is too much.
	return io.ReadAll(io.LimitReader(file, ticketBytesMax+3))
}

func ticketOf(m message, damaged *Error) (Ticket, error) {
	t := Ticket{}
	isGood := true
	text := func(b []byte, isOptional bool) string {
		if isOptional && (b == nil || msgpack.IsNil(b)) {
			return ""
		}
		found, ok := msgpack.Text(b)
		isGood = isGood && ok && len(found) <= ticketTextMax
		return found
	}
	isGood = msgpack.Items(m.get("addresses"), func(item []byte) bool {
		t.Addresses = append(t.Addresses, text(item, false))
		return len(t.Addresses) <= ticketAddressesMax
	}) && isGood
	t.Network = text(m.get("network"), false)
	t.Method, t.User, t.secret = text(m.get("method"), true), text(m.get("user"), true), hide(text(m.get("secret"), true))
	if !isGood || len(t.Addresses) == 0 || len(t.Addresses) > ticketAddressesMax {
		return Ticket{}, damaged
	}
	if (t.Method == "") != (t.User == "") {
		return Ticket{}, usage("the ticket has a method of login without a user, or the other way round")
	}
	if ca := m.get("ca"); ca != nil && !msgpack.IsNil(ca) {
		if t.CAHash, _ = msgpack.Bytes(ca); len(t.CAHash) != sha256.Size {
			return Ticket{}, usage("the CA's hash in the ticket is not 32 bytes long")
		}
	}
	if key, isThere := msgpack.Bytes(m.get("key")); isThere {
		t.key = hide(string(key))
	}
	msgpack.Items(m.get("chain"), func(item []byte) bool {
		part, ok := msgpack.Bytes(item)
		isGood = isGood && ok
		t.chain = append(t.chain, part)
		return len(t.chain) <= ticketChainMax
	})
	if !isGood || len(t.chain) > ticketChainMax {
		return Ticket{}, damaged
	}
	return t, nil
}

// withTicket completes a configuration from a ticket, if there is one.
func (c *Config) withTicket() error {
	text := c.Ticket
	if text == "" && len(c.Seeds) == 0 {
		text = os.Getenv("DISTKV_TICKET")
	}
	if text != "" {
		ticket, err := ReadTicket(text)
		if err != nil {
			return err
		}
		if ticket.User != "" && c.Login == nil {
			c.Login = ticket.login()
			if file, isFile := strings.CutPrefix(strings.TrimSpace(text), "@"); isFile {
				c.own = ownLoginOf(file, ticket, c.Login, c.TLS == nil)
			}
		}
		if ticket.CAHash != nil && c.TLS == nil {
			c.TLS = &TLS{CAHash: ticket.CAHash, ticket: certificateOf(ticket, text)}
		}
		if c.Network == "" {
			c.Network, c.isTicketsNetwork = ticket.Network, true
		}
		if len(c.Seeds) == 0 {
			c.Seeds = ticket.Addresses
		}
		if c.Ticket == text && !strings.HasPrefix(strings.TrimSpace(text), "@") {
			c.Ticket = "" // It is read, and its text has the secret.
		}
	}
	if len(c.Seeds) == 0 {
		c.Seeds = []string{"127.0.0.1"}
	}
	if c.TLS != nil {
		settings := *c.TLS
		c.TLS = &settings
		return settings.prepare(c.Logger)
	}
	return nil
}
