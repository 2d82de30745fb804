package distkv

import (
	"bytes"
	"crypto/tls"
	"errors"
	"strings"
)

// ticketCertificate is the client certificate of a ticket, as whose user a node that asks for one lets the client in.
type ticketCertificate struct {
	file    string // which has the ticket; "": no file has it, and it cannot be replaced
	network string
	caHash  []byte

	chain [][]byte // as DER; nil: from now on, it is read from the file
	key   hidden
}

// certificateOf is that of a ticket which was read from this text: the ticket itself, or "@" and a file's name. Nil: it has none.
func certificateOf(ticket Ticket, text string) *ticketCertificate {
	if ticket.key.text == nil || len(ticket.chain) == 0 {
		return nil
	}
	c := &ticketCertificate{network: ticket.Network, caHash: ticket.CAHash, chain: ticket.chain, key: ticket.key}
	if file, isFile := strings.CutPrefix(strings.TrimSpace(text), "@"); isFile {
		c.file = wholeName(file)
	}
	return c
}

// read is the certificate that the ticket has now. That must be for the same network and CA; nothing else of it is looked at.
func (c *ticketCertificate) read() (tls.Certificate, error) {
	chain, key := c.chain, c.key
	c.chain, c.key = nil, hidden{}
	if chain == nil {
		text, err := readTicketFile(c.file)
		if err != nil {
			return tls.Certificate{}, err
		}
		ticket, err := parseTicket(string(text))
		switch {
		case err != nil:
			return tls.Certificate{}, err
		case ticket.Network != c.network || !bytes.Equal(ticket.CAHash, c.caHash):
			return tls.Certificate{}, errors.New("it is for another network, or of another CA")
		case ticket.key.text == nil || len(ticket.chain) == 0:
			return tls.Certificate{}, errors.New("it has none any more")
		}
		chain, key = ticket.chain, ticket.key
	}
	private, err := privateKey([]byte(key.shown()))
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: chain, PrivateKey: private}, nil
}
